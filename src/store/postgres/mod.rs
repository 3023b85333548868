//! The store in PostgreSQL: three tables, one transaction per batch, and signals through the server.

mod dial;
mod failure;
mod fence;
mod names;
mod options;
mod pool;
mod rows;
mod schema;
mod signals;
mod transaction;

use core::{fmt, time::Duration};
use std::{
    string::String,
    sync::atomic::{AtomicBool, Ordering},
    vec::Vec,
};

use async_trait::async_trait;
use tokio::time::timeout;
use tokio_postgres::types::Type;

use super::{Durability, Reach, Store};
use crate::executor::Shared;
use crate::machine::{Batch, Key, Now, Reply, StoreError, StoreId, StoreNow};
use crate::signal::Signals;

use names::Names;
pub use options::PostgresStoreBuilder;
use pool::{Errand, Pool};
use rows::Runner;
use signals::{PostgresSignals, Speaking};
use transaction::Work;

/// A list of keys takes no longer, nor do the statements that make the tables.
const LIMIT: Duration = Duration::from_secs(30);

/// Leases in a [PostgreSQL](https://www.postgresql.org/docs/current/) database (tested with version 15), shared by all programs that
/// connect to it. Clones are handles to the same pool of up to four connections.
///
/// Choose it if your programs use such a database anyway: then a write to it can be
/// [fenced](crate::LeaseGuard::fence), in your own [`tokio_postgres::Transaction`]. Create the tables once with
/// [`migrate`](Self::migrate). Connect to the primary, never to a replica: the store writes.
///
/// * **Durability.** A lease is on the server's disk before it is granted, whatever the default of `synchronous_commit` is. If the
///   server has synchronous replicas, declare it with [`PostgresStoreBuilder::durability`]. If an asynchronous replica is promoted, it
///   may lack the last transactions, so that a lease or a token is granted twice.
/// * **Clock.** The server's clock is not used: a waiter replaces a holder whose heartbeat it saw stand still for a lease and a tenth.
/// * **Signals.** Contexts notify each other by `LISTEN` and `NOTIFY`. Each uses one more connection while it holds or waits. See
///   [`PostgresStoreBuilder::without_signals`] for a pooler, and [`PostgresStoreBuilder::with_beacons`].
/// * **Poolers.** The store uses no named prepared statements and no session state, so it works behind pgbouncer in transaction mode,
///   where it needs [`without_signals`](PostgresStoreBuilder::without_signals).
///
/// The connections belong to the tokio runtime in which the store was connected, and end with it.
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
    closed: AtomicBool,
    /// The signals that this handle brought.
    speaking: Speaking,
}

/// What the handles of a store share.
struct Place {
    pool: Pool,
    names: Names,
    durability: Durability,
    signals: Option<Voice>,
}

/// What signals a store brings.
#[derive(Clone, Copy)]
struct Voice {
    beacons: bool,
}

impl PostgresStore {
    /// Connects to the database that the [URL or list of options](tokio_postgres::Config) names, with tables that begin with
    /// `leasehold`. Use a [`builder`](Self::builder) for other choices.
    ///
    /// # Errors
    /// [`StoreError`] names what is wrong with the URL, or why no server answers.
    ///
    /// # Cancel safety
    /// Cancel safe: the connection is closed.
    ///
    /// ```no_run
    /// # use leasehold::store::PostgresStore;
    /// # async fn example() -> Result<(), leasehold::StoreError> {
    /// let store = PostgresStore::connect("host=/run/postgresql dbname=app").await?;
    /// # Ok(()) }
    /// ```
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::builder(url).connect().await
    }

    /// A builder that chooses how to connect.
    pub fn builder(url: &str) -> PostgresStoreBuilder {
        PostgresStoreBuilder::new(url)
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
        self.on_runtime(LIMIT, |place| async move { schema::migrate(&place.pool, &place.names).await }).await
    }

    fn check(&self) -> Result<(), StoreError> {
        if self.closed.load(Ordering::Relaxed) { Err(pool::closed()) } else { Ok(()) }
    }

    /// Runs work in a task of its own, so that it comes to an end, and its connection back, although nobody awaits it any more.
    async fn on_runtime<T, W>(&self, limit: Duration, work: impl FnOnce(Shared<Place>) -> W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        self.check()?;
        let work = work(self.place.clone());
        let runtime = self.place.pool.dial().runtime();
        let task = runtime.spawn(async move {
            let late =
                |_| Err(StoreError::unknown(format!("the server did not answer within {} ms", limit.as_millis())));
            timeout(limit, work).await.unwrap_or_else(late)
        });
        task.await.unwrap_or_else(|ended| {
            Err(StoreError::unknown(format!(
                "the tokio runtime in which the store was connected has ended ({ended}); connect another one"
            )))
        })
    }
}

impl Clone for PostgresStore {
    /// Another handle of the same connections, open whether or not this one was closed.
    fn clone(&self) -> Self {
        self.place.pool.share();
        Self { place: self.place.clone(), closed: AtomicBool::new(false), speaking: Speaking::nobody() }
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        if !self.closed.swap(true, Ordering::Relaxed) {
            self.place.pool.leave();
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
        let work = Work { batch, now, limit, fresh: fresh_id()? };
        // It keeps to its limit by itself, and knows what became of its commit.
        self.on_runtime(limit.saturating_mul(2), |place| async move { work.run(&place.pool, &place.names).await }).await
    }

    async fn keys(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        let prefix = String::from(prefix);
        self.on_runtime(LIMIT, |place| async move { list(&place, &prefix).await }).await
    }

    fn signals(&self) -> Option<Shared<dyn Signals>> {
        let voice = self.place.signals?;
        let dial = self.place.pool.dial().watchful();
        Some(Shared::new(PostgresSignals::new(dial, self.place.names.clone(), voice.beacons, self.speaking.clone())))
    }

    async fn close(&self) {
        if !self.closed.swap(true, Ordering::Relaxed) {
            self.place.pool.leave();
        }
        // A program that ends now would take along what it said last: that somebody else was granted its lease.
        let speaking = self.speaking.clone();
        let ended = self.place.pool.dial().runtime().spawn(async move { speaking.end().await });
        // Its runtime has ended, and so have they.
        let _ = ended.await;
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
    let mut lent = place.pool.lend(Errand::Any).await?;
    // One that stood idle may have been cut meanwhile.
    if lent.used && lent.client.check_connection().await.is_err() {
        place.pool.forget_idle();
        drop(lent);
        lent = place.pool.lend(Errand::Any).await?;
    }
    let table = place.names.table("record");
    let statement = format!(
        "SELECT key FROM {table} WHERE key >= $1 AND key < $2 \
         UNION ALL SELECT key FROM {table} WHERE key >= $3 AND substr(key, 1, length($3)) = $3"
    );
    let (end, long) = (names::end_of(prefix), names::long_form(prefix));
    let parameters: [rows::Parameter<'_>; 3] =
        [(&prefix.as_bytes(), Type::BYTEA), (&end, Type::BYTEA), (&long, Type::BYTEA)];
    let found = Runner::Connection(&lent.client).query(&statement, &parameters).await;
    let found = found.map_err(|error| failure::of_statement(&error, &place.names))?;
    lent.give_back();
    let mut keys: Vec<Key> = found.iter().filter_map(|row| names::key_of(row.try_get(0).ok()?)).collect();
    keys.sort_unstable();
    Ok(keys)
}
