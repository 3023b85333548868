//! How a store is connected.

use core::fmt;
use std::{boxed::Box, string::String, sync::Arc};

use futures::FutureExt;
use tokio::time::{Instant, timeout_at};

use super::{
    CONNECT, Place, PostgresPool, PostgresStore, Voice,
    carrier::{Answers, Failure, Round, Row, Source, Supply},
    failure, fresh_id,
    lending::{Errand, Lending},
    literal::text,
    memory::Memory,
    names::{Names, is_plain},
    neighbours::Neighbours,
    schema::KINDS,
    signals::{Ears, Hearing, Speaking, check_for_beacons},
    standing::Standing,
    sweep::Crowding,
    transaction::TRIES,
};
use crate::executor::Shared;
use crate::machine::{SessionId, StoreError, StoreErrorKind};
use crate::store::{Durability, inside::runtime_for};

/// Chooses how a [`PostgresStore`] connects.
///
/// ```no_run
/// # use leasehold::store::PostgresStore;
/// # async fn example() -> Result<(), leasehold::StoreError> {
/// let store = PostgresStore::builder("postgres://localhost/app").prefix("app_leases").connect().await?;
/// # Ok(()) }
/// ```
#[must_use = "nothing happens until it is connected"]
pub struct PostgresStoreBuilder {
    source: Box<dyn Source>,
    prefix: String,
    durability: Durability,
    signals: Option<Voice>,
    misuse: Option<&'static str>,
}

impl fmt::Debug for PostgresStoreBuilder {
    /// The URL may have a password in it.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("PostgresStoreBuilder").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// The pool of `with_beacons` has no connections that can listen.
const DEAF: &str = "beacons need a connection for signals, which a deadpool-postgres pool cannot give; hand over the pool together with a \
    tokio_postgres::Config, as PostgresStore::builder_from_pool((pool, config))";
const ENCRYPTED_ALREADY: &str = "PostgresStoreBuilder::tls is for connections that the store opens itself; set up encryption in \
    the pool's own options";

impl PostgresStoreBuilder {
    pub(super) fn new(source: Box<dyn Source>) -> Self {
        let signals = Some(Voice { beacons: false });
        Self { source, prefix: "leasehold".into(), durability: Durability::Local, signals, misuse: None }
    }

    /// Over the application's pool, see [`PostgresStore::from_pool`].
    pub(super) fn over(pool: PostgresPool) -> Self {
        Self::new(pool.0)
    }

    /// Gives the source a TLS connector for its driver.
    #[allow(dead_code, reason = "only one of the drivers takes a connector")]
    pub(super) fn encrypt(&mut self, connector: &dyn core::any::Any) {
        if !self.source.encrypt(connector) {
            self.misuse = Some(ENCRYPTED_ALREADY);
        }
    }

    /// What the names of the tables begin with, instead of `leasehold`: up to 50 lower-case letters, digits and underscores, and no
    /// digit first. Programs that share leases use the same prefix.
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Declares what a lease survives: [`Durability::Quorum`] if the server waits for replicas (`synchronous_standby_names`) and only
    /// those are ever promoted. It changes nothing in the database.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Raises beacons, so that a holder whose process dies is replaced within about 50 ms instead of after a lease of silence. A
    /// beacon is an advisory lock on the connection that carries the signals. Choose beacons in all programs that share the store, or in
    /// none.
    ///
    /// A context that waits looks only at the beacons right before it in the queue. It looks every 50 ms in the first 10 s after it
    /// connected, and later if a context that it watches does not wait, as the holder usually does not. Otherwise it looks every 500 ms, or
    /// every 2 s if it has watched the same contexts for 10 s. So it may take that long to notice the death of a holder whose context also
    /// waits (for another key, or for this one in the other mode), of a holder that waited and was granted the key since the last look, or of
    /// a holder that dies together with the first waiter.
    ///
    /// **A connection that a running server closes while its context lives counts as a death.** Another context may then be granted the
    /// lease before the holder notices. The holder notices within milliseconds if the end of the connection reaches it, and within 15 s
    /// if the network silently drops packets. Writes that are [fenced](crate::LeaseGuard::fence) or guarded by a token stay safe; other
    /// effects of the holder may overlap with the next holder's.
    ///
    /// A context that connected less than 10 s ago counts an absent beacon as a death only if it has seen that beacon over this
    /// connection. If a holder died before the waiter connected, the waiter may therefore replace it only 10 s after it connected.
    ///
    /// A restart of the server, or a failover to a replica, ends all beacons, although their contexts live. That counts as nobody's death:
    /// the row of a session says where its beacon was raised, and the absence of a beacon from elsewhere proves nothing. Until a context
    /// opens another session, the death of that context is noticed only after a lease of silence. The same happens if somebody resets the
    /// statistics of the archiver (`pg_stat_reset_shared`), and if the user may not read `pg_stat_archiver`: then only a waiter that has seen
    /// the beacon takes its absence for a death.
    ///
    /// [`connect`](Self::connect) tries out whether a notification arrives, and fails if none does. That is so behind a pooler that gives
    /// each transaction another connection, such as pgbouncer in transaction mode. Each session then tries it out for its own connection,
    /// and goes without a beacon if no notification arrives.
    ///
    /// A URL for [`from_url`](crate::store::from_url) says the same by `?signals=beacons`.
    pub fn with_beacons(mut self) -> Self {
        self.signals = Some(Voice { beacons: true });
        self
    }

    /// Uses no signals between processes. A waiter then reads the store once per heartbeat to see a release by another process. Choose
    /// this behind a pooler that gives each transaction another connection (pgbouncer in transaction mode): `LISTEN` does not work
    /// through it. A URL for [`from_url`](crate::store::from_url) says the same by `?signals=off`.
    pub fn without_signals(mut self) -> Self {
        self.signals = None;
        self
    }

    /// Connects, and identifies the database. The tables need not exist yet.
    ///
    /// # Errors
    /// [`StoreError`] says what is wrong with the options or the URL, or why no server answers.
    ///
    /// # Cancel safety
    /// Cancel safe: the connection is closed.
    pub async fn connect(self) -> Result<PostgresStore, StoreError> {
        check_prefix(&self.prefix)?;
        if let Some(misuse) = self.misuse {
            return Err(invalid(misuse));
        }
        let runtime = runtime_for("PostgreSQL")?;
        let deadline = Instant::now() + CONNECT;
        let Supply { lender, exchange } = self.source.open(runtime.clone()).await?;
        let beacons = self.signals.is_some_and(|voice| voice.beacons);
        if exchange.is_none() && beacons {
            return Err(invalid(DEAF));
        }
        let lending = Lending::new(lender);
        let asking = async {
            let names = names_in(&lending, self.prefix).await?;
            let hearing = match &exchange {
                Some(exchange) if beacons => {
                    check_for_beacons(&lending, &**exchange, &names, SessionId(fresh_id()?.0)).await?
                }
                _ => Hearing::default(),
            };
            Ok((names, hearing))
        };
        // Boxed, because an application's futures contain this one, and the compiler refuses futures that nest too deeply.
        let (names, hearing) = timeout_at(deadline, asking.boxed()).await.unwrap_or_else(|_| Err(silent()))?;
        let (neighbours, memory, crowding) = (Neighbours::default(), Memory::default(), Crowding::default());
        let (durability, signals) = (self.durability, self.signals);
        let (standing, ears) = (Standing::default(), Ears::default());
        let place = Place {
            lending,
            exchange,
            runtime,
            names,
            neighbours,
            memory,
            durability,
            signals,
            crowding,
            hearing,
            standing,
            ears,
        };
        Ok(PostgresStore { place: Shared::new(place), closed: Arc::default(), speaking: Speaking::nobody() })
    }
}

/// A pooler accepts a client before it has found a server for that client.
fn silent() -> StoreError {
    StoreError::transient(format!(
        "the server accepted the connection, but did not answer within {} s; check that it is not overloaded, and that a pooler in front \
         of it can reach it",
        CONNECT.as_secs()
    ))
}

pub(super) fn check_prefix(prefix: &str) -> Result<(), StoreError> {
    if is_plain(prefix) {
        return Ok(());
    }
    Err(invalid(format!(
        "the prefix {prefix:?} is not a plain name; choose up to 50 lower-case letters, digits and underscores, and no digit first"
    )))
}

pub(super) fn invalid(message: impl Into<String>) -> StoreError {
    StoreError::permanent(StoreErrorKind::Unsupported, message)
}

/// Where the store's tables are, or would be made; and how the database keeps text. If somebody dropped the first table, the two others
/// show where it was: it must not be made anew in another schema. One of these names alone may be another program's.
fn ask_where(names: &Names) -> String {
    let [store, record, session] = KINDS.map(|kind| format!("to_regclass({})", text(&names.plain_table(kind))));
    format!(
        "coalesce((SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.oid = coalesce({store}, CASE WHEN {session} IS NOT NULL THEN {record} END)), current_schema())::text, \
         current_setting('server_encoding')"
    )
}

/// The cluster's identifier, which replicas share.
const CLUSTER: &str = "SELECT (SELECT system_identifier FROM pg_control_system())::text";
/// Where that may not be asked: the server's address.
const ADDRESS: &str =
    "SELECT replace(coalesce(host(inet_server_addr()), 'local'), ':', '.') || '/' || current_setting('port')";
const DATABASE: &str = "(SELECT oid FROM pg_database WHERE datname = current_database())::text";

/// Asks which database it is, and more beside that. A fence asks in the same way as its store did, `by_cluster` or not.
pub(super) fn ask_database(by_cluster: bool, beside: &str) -> String {
    let server = if by_cluster { CLUSTER } else { ADDRESS };
    format!("{server}, {DATABASE}, {beside}")
}

/// What [`ask_database`] found, as a name without colons.
pub(super) fn name_of(row: &Row) -> Option<String> {
    Some(format!("{}/{}", row.text(0)?, row.text(1)?))
}

/// Whether a database was named by its cluster, and not by the address of its server, which has a slash of its own.
pub(super) fn is_by_cluster(database: &str) -> bool {
    database.matches('/').count() == 1
}

/// Asks by a connection of the pool, or by another one if that was cut while it stood idle.
pub(super) async fn ask(lending: &Lending, statement: &str) -> Result<Result<Answers, Failure>, StoreError> {
    let round = Round::one(statement);
    for _ in 0..TRIES {
        let mut lent = lending.lend(Errand::Any, CONNECT).await?;
        match lent.loan.carry(&round).await {
            Err(failure) if lent.used && failure.is_cut() => lending.lender().forget_idle(),
            // The server refused it, outside of any transaction.
            found => {
                if found.is_ok() || found.as_ref().is_err_and(|failure| !failure.is_cut()) {
                    lent.give_back();
                }
                return Ok(found);
            }
        }
    }
    Err(StoreError::transient(format!(
        "the last {TRIES} connections of {} broke; check the server and the network",
        lending.lender().name()
    )))
}

async fn names_in(lending: &Lending, prefix: String) -> Result<Names, StoreError> {
    let names = Names { database: String::new(), prefix, schema: String::new() };
    let beside = ask_where(&names);
    let mut found = ask(lending, &ask_database(true, &beside)).await?;
    if found.as_ref().is_err_and(|failure| failure.code == "42501") {
        found = ask(lending, &ask_database(false, &beside)).await?;
    }
    let found = found.map_err(|failure| failure::of_statement(&failure, &names))?;
    let silent = || StoreError::transient("the server did not say which database it is");
    let row = found.first(0).ok_or_else(silent)?;
    let database = name_of(row).ok_or_else(silent)?;
    let encoding = row.text(3).unwrap_or_default();
    if encoding != "UTF8" {
        return Err(invalid(format!(
            "the database keeps text as {encoding}, and leases need UTF8; create one by CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
        )));
    }
    let schema = row.text(2).map(String::from).ok_or_else(|| {
        invalid("no schema of the connection's search_path exists; create one, or name another by options=-csearch_path%3D… in the URL")
    })?;
    if schema.starts_with("pg_temp") {
        return Err(invalid(format!(
            "the connection's search_path finds the schema {schema} first, whose tables are temporary: each connection has its own, so no lease \
             would exclude another; name another schema by options=-csearch_path%3D… in the URL"
        )));
    }
    Ok(Names { database, schema, ..names })
}
