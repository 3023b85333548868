//! The store in PostgreSQL: three tables, one transaction per batch, and signals through the server.

mod begin;
mod carrier;
mod drivers;
mod failure;
mod fence;
mod finishing;
mod last_word;
mod lending;
mod literal;
mod memory;
mod names;
mod neighbours;
mod often;
mod options;
mod rows;
mod schema;
mod signals;
mod standing;
mod sweep;
mod transaction;

use core::{fmt, time::Duration};
use std::{
    string::String,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    vec::Vec,
};

use async_trait::async_trait;
use futures::FutureExt;
use tokio::{runtime::Handle, time::timeout};

use super::{Durability, Reach, Store, inside::inside};
use crate::executor::Shared;
use crate::machine::{Batch, Key, Now, Reply, SessionId, StoreError, StoreErrorKind, StoreId, StoreNow};
use crate::signal::Signals;

use begin::{Begin, stalled};
use carrier::{Exchange, Source};
use finishing::Finishing;
use lending::Lending;
use memory::Memory;
use names::Names;
use neighbours::Neighbours;
pub use options::PostgresStoreBuilder;
use signals::{Ears, Hearing, PostgresSignals, Speaking};
use standing::Standing;
use sweep::Crowding;
use transaction::Work;

/// The time limit of a list of keys, and of the statements that create the tables.
const LIMIT: Duration = Duration::from_secs(30);
/// A runtime that has not run a new task after this time counts as one that nobody drives.
const STANDS_STILL: Duration = Duration::from_secs(2);
/// How long anything that is not for a lease waits for a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// Leases in a [PostgreSQL](https://www.postgresql.org/docs/current/) database (tested with version 15), shared by all programs that
/// connect to it. Clones are handles to the same connections: up to four of its own, or those of the application's pool.
///
/// Choose it if your programs use such a database anyway: then a write to it can be
/// [fenced](crate::LeaseGuard::fence), in your own transaction. Create the tables once with
/// [`migrate`](Self::migrate). Connect to the primary, never to a replica: the store writes.
///
/// * **Driver.** With the feature `store-postgres` it opens its own connections with tokio-postgres, see `connect`. With
///   `store-postgres-deadpool` or `store-postgres-sqlx` it runs over the application's pool, see [`from_pool`](Self::from_pool).
///   Programs with different drivers share leases. Choose the driver whose transactions you fence.
///
/// * **Durability.** A lease is on the server's disk before it is granted, whatever the default of `synchronous_commit` is. If the
///   server has synchronous replicas, declare it with [`PostgresStoreBuilder::durability`]. If an asynchronous replica is promoted, it
///   may lack the last transactions, so that a lease or a token is granted twice. The guide *Beyond one process* says more of replicas.
/// * **Clock.** The server's clock is not used: a waiter replaces a holder if it has seen no heartbeat for a lease and a tenth.
/// * **Signals.** Contexts notify each other by `LISTEN` and `NOTIFY`. Each uses one more connection while it holds or waits. See
///   [`PostgresStoreBuilder::without_signals`] for a pooler, and [`PostgresStoreBuilder::with_beacons`].
/// * **Poolers.** Behind pgbouncer in transaction mode choose [`without_signals`](PostgresStoreBuilder::without_signals). The store then
///   uses no named prepared statements and no session state. If you leave signals on there, no notification arrives, and a
///   `tracing` warning says so after a few seconds. With signals, the store prepares the seven statements that
///   transactions run most, on connections that it opened itself.
///
/// Everything runs on the tokio runtime in which the store was connected; the store's own connections end with it. A current-thread runtime
/// runs only while a thread is inside its `block_on`. Until then, each transaction from another runtime waits, and fails after half of the
/// `store_timeout` or 2 s, whichever is shorter.
///
/// ```no_run
/// use leasehold::{LeaseManager, executor::TokioExecutor, store::PostgresStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = PostgresStore::connect("postgres://app:secret@localhost/app").await?;
/// store.migrate().await?;
/// let leases = LeaseManager::builder(store, TokioExecutor::new()).build()?;
/// let guard = leases.lock("notes").acquire().await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
pub struct PostgresStore {
    place: Shared<Place>,
    closed: Arc<AtomicBool>,
    /// The signals that this handle brought.
    speaking: Speaking,
}

/// The application's own connection pool, for [`PostgresStore::from_pool`].
///
/// It is made from a `sqlx::PgPool` (feature `store-postgres-sqlx`), or from a `deadpool_postgres::Pool`, alone or with a
/// `tokio_postgres::Config` for signals (feature `store-postgres-deadpool`).
///
/// The store takes up to four connections at once, each for one transaction, and waits for a free one within the time limit of its request.
/// A connection returns without an open transaction, a changed setting or an advisory lock. If a transaction is abandoned half-way, its
/// connection leaves the pool and is closed. Closing the store leaves the pool open.
pub struct PostgresPool(Box<dyn Source>);

impl fmt::Debug for PostgresPool {
    /// Its options may have a password in them.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("PostgresPool").finish_non_exhaustive()
    }
}

/// The state that all handles of a store share.
struct Place {
    lending: Lending,
    exchange: Option<Shared<dyn Exchange>>,
    /// The runtime on which everything runs.
    runtime: Handle,
    names: Names,
    neighbours: Neighbours,
    memory: Memory,
    durability: Durability,
    signals: Option<Voice>,
    crowding: Crowding,
    hearing: Hearing,
    standing: Standing,
    ears: Ears,
}

/// The kind of signals that a store has.
#[derive(Clone, Copy)]
struct Voice {
    beacons: bool,
}

impl PostgresStore {
    /// A store over the application's own connection pool, with tables whose names begin with `leasehold`. Use
    /// [`builder_from_pool`](Self::builder_from_pool) for other choices. [`PostgresPool`] lists the supported pools.
    ///
    /// # Errors
    /// [`StoreError`] says why the pool gives no connection, or what is wrong with its database.
    ///
    /// # Cancel safety
    /// Cancel safe: the connection is closed, or goes back to the pool.
    ///
    /// ```no_run
    /// # use leasehold::store::{PostgresPool, PostgresStore};
    /// # async fn example(pool: impl Into<PostgresPool>) -> Result<(), leasehold::StoreError> {
    /// let store = PostgresStore::from_pool(pool).await?;
    /// # Ok(()) }
    /// ```
    pub async fn from_pool(pool: impl Into<PostgresPool>) -> Result<Self, StoreError> {
        Self::builder_from_pool(pool).connect().await
    }

    /// A builder over the application's own connection pool.
    ///
    /// ```no_run
    /// # use leasehold::store::{PostgresPool, PostgresStore};
    /// # async fn example(pool: impl Into<PostgresPool>) -> Result<(), leasehold::StoreError> {
    /// let store = PostgresStore::builder_from_pool(pool).prefix("app_leases").connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn builder_from_pool(pool: impl Into<PostgresPool>) -> PostgresStoreBuilder {
        PostgresStoreBuilder::over(pool.into())
    }

    /// Creates the tables `<prefix>_store`, `<prefix>_record` and `<prefix>_session` if they are missing, in the first existing schema of
    /// the connection's `search_path`. Several programs may call it at once, and at every start: it changes no table that exists.
    ///
    /// # Errors
    /// [`StoreError`] if the user may not create tables, tables of other programs have these names, or a newer version of
    /// this crate created them. Then nothing was changed.
    ///
    /// # Cancel safety
    /// Cancel safe: either all tables are created or none.
    ///
    /// ```no_run
    /// # use leasehold::store::PostgresStore;
    /// # async fn example(store: PostgresStore) -> Result<(), leasehold::StoreError> {
    /// store.migrate().await?;
    /// # Ok(()) }
    /// ```
    pub async fn migrate(&self) -> Result<(), StoreError> {
        // Boxed for the same reason as the future that `connect` awaits.
        self.on_runtime(LIMIT, |place| {
            async move { schema::migrate(&place.lending, &place.names, CONNECT).await }.boxed()
        })
        .await
    }

    /// Sweeps once, if the first session that was opened found many records.
    fn sweep(&self, session: SessionId, own: Option<Key>, now: StoreNow, limit: Duration) {
        if self.place.crowding.takes_sweep() {
            let limit = limit.min(super::sweep::PATIENCE);
            let records = sweep::Records { place: self.place.clone(), closed: self.closed.clone(), now, limit };
            self.place.runtime.spawn(super::sweep::sweep(records, session, own));
        }
    }

    fn check(&self) -> Result<(), StoreError> {
        if self.closed.load(Ordering::Relaxed) { Err(closed()) } else { Ok(()) }
    }

    /// Runs work in a task of its own, so that the work ends and its connection is returned, even if nobody awaits it any more.
    async fn on_runtime<T, W>(&self, limit: Duration, work: impl FnOnce(Shared<Place>) -> W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        self.check()?;
        let (work, begin) = (work(self.place.clone()), Shared::new(Begin::default()));
        let begins = begin.clone();
        let task = self.place.runtime.spawn(async move {
            if !begins.begin() {
                return Err(stalled());
            }
            let late =
                |_| Err(StoreError::unknown(format!("the server did not answer within {} ms", limit.as_millis())));
            timeout(limit, work).await.unwrap_or_else(late)
        });
        begin.watch(task, (limit / 4).min(STANDS_STILL)).await?.unwrap_or_else(|ended| {
            let message =
                format!("the tokio runtime in which the store was connected has ended ({ended}); connect another one");
            // Work that never began wrote nothing, and none will ever begin in that runtime.
            Err(if begin.has_begun() { StoreError::unknown(message) } else { options::invalid(message) })
        })
    }
}

impl Clone for PostgresStore {
    /// Another handle to the same connections, which is open even if this one was closed.
    fn clone(&self) -> Self {
        self.place.lending.lender().share();
        Self { place: self.place.clone(), closed: Arc::default(), speaking: Speaking::nobody() }
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        if !self.closed.swap(true, Ordering::Relaxed) {
            self.place.lending.lender().leave();
        }
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PostgresStore({:?})", self.place.names.reach())
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError> {
        let now = StoreNow::new(self.clock(), now);
        let tells = self.place.signals.is_some();
        let first = self.place.crowding.is_open().then(|| (batch.session, batch.keys().pop()));
        let work = Work { batch, now, limit, fresh: fresh_id()?, tells, yields: false };
        // The work enforces its limit by itself, and knows the outcome of its commit.
        let runs = |place: Shared<Place>| async move { work.run(&place).await };
        let reply = if Handle::try_current().is_ok_and(|here| here.id() == self.place.runtime.id()) {
            self.check()?;
            // In a task of its own, the work would be woken twice for each transaction.
            Finishing::new(runs(self.place.clone()), self.place.runtime.clone()).await?
        } else {
            self.on_runtime(limit.saturating_mul(2), runs).await?
        };
        if let Some((session, own)) = first {
            self.sweep(session, own, now, limit);
        }
        Ok(reply)
    }

    async fn keys(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        let prefix = String::from(prefix);
        self.on_runtime(LIMIT, |place| async move { list(&place, &prefix).await }).await
    }

    fn signals(&self) -> Option<Shared<dyn Signals>> {
        let voice = self.place.signals?;
        let exchange = self.place.exchange.clone()?;
        let place = self.place.clone();
        Some(Shared::new(PostgresSignals::new(exchange, place, voice.beacons, self.speaking.clone())))
    }

    fn abandon(&self, session: SessionId) {
        let turn = self.speaking.begin();
        self.place.runtime.spawn(last_word::say(self.place.clone(), session, turn));
    }

    async fn close(&self) {
        if !self.closed.swap(true, Ordering::Relaxed) {
            self.place.lending.lender().leave();
        }
        // A program that ends now would lose its last messages: reports of grants to other contexts, and deletes of rows.
        let speaking = self.speaking.clone();
        // If the runtime has ended, the messages have ended with it.
        let _ = inside(&self.place.runtime, async move { speaking.end().await }).await;
    }

    fn durability(&self) -> Durability {
        self.place.durability
    }

    fn reach(&self) -> Reach {
        self.place.names.reach()
    }
}

/// The random id of a store that may turn out to be new.
fn fresh_id() -> Result<StoreId, StoreError> {
    let mut bits = [0; 16];
    let drawn = getrandom::fill(&mut bits);
    drawn.map_err(|error| StoreError::transient(format!("the system gives no random bits: {error}")))?;
    Ok(StoreId(u128::from_ne_bytes(bits)))
}

async fn list(place: &Place, prefix: &str) -> Result<Vec<Key>, StoreError> {
    let names = &place.names;
    let statements =
        format!("{}; {}; {}", names.read_keys(prefix), failure::IS_STANDBY, names.ask_hiding(rows::Access::Look));
    let found = options::ask(&place.lending, &statements).await?.and_then(|found| {
        if failure::is_standby(found.rows(1)) {
            return Err(failure::of_a_standby());
        }
        failure::check_hiding(found.rows(2)).map(|()| found)
    });
    if found.as_ref().is_err_and(failure::is_of_a_standby) {
        place.lending.lender().forget_idle();
    }
    let found = found.map_err(|failure| failure::of_look(&failure, names))?;
    Ok(rows::keys_of(found.rows(0)))
}

fn closed() -> StoreError {
    StoreError::permanent(StoreErrorKind::Closed, "this handle of the PostgreSQL store was closed; connect another one")
}
