//! How a store is connected.

use core::{fmt, time::Duration};
use std::{string::String, vec::Vec};

use tokio::runtime::Handle;
use tokio_postgres::{
    Client, Config, Socket,
    config::SslMode,
    tls::{MakeTlsConnect, TlsConnect},
    types::Type,
};

use super::{
    Place, PostgresStore, Voice,
    dial::Dial,
    failure,
    names::{Names, is_plain},
    pool::Pool,
    rows::{Parameter, Runner},
    signals::Speaking,
};
use crate::executor::Shared;
use crate::machine::{StoreError, StoreErrorKind};
use crate::store::Durability;

/// Gives a dial its encryption.
type Encrypt = Box<dyn FnOnce(Dial) -> Dial + Send>;

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
    url: String,
    prefix: String,
    durability: Durability,
    signals: Option<Voice>,
    encrypt: Option<Encrypt>,
}

impl fmt::Debug for PostgresStoreBuilder {
    /// The URL may have a password in it.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("PostgresStoreBuilder").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl PostgresStoreBuilder {
    pub(super) fn new(url: &str) -> Self {
        Self {
            url: url.into(),
            prefix: "leasehold".into(),
            durability: Durability::Local,
            signals: Some(Voice { beacons: false }),
            encrypt: None,
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
    /// **A connection that the server closes while its context lives counts as a death.** Another context may then be granted the
    /// lease before the holder notices. The holder notices within milliseconds if the end of the connection reaches it, and within 15 s
    /// if the network silently drops packets. Writes that are [fenced](crate::LeaseGuard::fence) or guarded by a token stay safe; other
    /// effects of the holder may overlap with the next holder's. For 10 s after a restart of the server, absent beacons prove nothing.
    /// A failover to a replica ends all beacons at once: do not choose beacons where that happens.
    pub fn with_beacons(mut self) -> Self {
        self.signals = Some(Voice { beacons: true });
        self
    }

    /// Uses no signals between processes. A waiter then reads the store once per heartbeat to see a release by another process. Choose
    /// this behind a pooler that gives each transaction another connection (pgbouncer in transaction mode): `LISTEN` does not work
    /// through it.
    pub fn without_signals(mut self) -> Self {
        self.signals = None;
        self
    }

    /// Encrypts all connections, for instance with `postgres_native_tls::MakeTlsConnector` or
    /// `tokio_postgres_rustls::MakeRustlsConnect`.
    /// Whether the server's certificate is verified is up to the connector; `sslmode=require` in the URL forbids a connection
    /// without encryption.
    pub fn tls<T>(mut self, connector: T) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        self.encrypt = Some(Box::new(|dial| dial.encrypted(connector)));
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
        if !is_plain(&self.prefix) {
            return Err(invalid(format!(
                "the prefix {:?} is not a plain name; choose up to 50 lower-case letters, digits and underscores, and no digit first",
                self.prefix
            )));
        }
        let runtime = Handle::try_current().map_err(|_| {
            invalid("there is no tokio runtime here to connect in; call this inside one, with I/O and timers enabled")
        })?;
        let config = read(&self.url, self.encrypt.is_some())?;
        let dial = Dial::new(config, runtime);
        let dial = if let Some(encrypt) = self.encrypt { encrypt(dial) } else { dial };
        let first = dial.open(|_| ()).await?;
        let names = names_in(&first, self.prefix).await?;
        let place = Place { pool: Pool::new(dial, first), names, durability: self.durability, signals: self.signals };
        Ok(PostgresStore { place: Shared::new(place), closed: false.into(), speaking: Speaking::nobody() })
    }
}

fn invalid(message: impl Into<String>) -> StoreError {
    StoreError::permanent(StoreErrorKind::Unsupported, message)
}

const NO_TLS: &str = "the URL asks for an encrypted connection (sslmode), and the store has no TLS of its own; give a connector by \
    PostgresStoreBuilder::tls, or write sslmode=disable where the network is trusted";
const VERIFIES: &str = "the URL asks for sslmode=verify-ca or verify-full, which tokio-postgres does not support; write \
    sslmode=require, and give a connector that verifies by PostgresStoreBuilder::tls";

/// The password is never part of a message.
fn read(url: &str, encrypted: bool) -> Result<Config, StoreError> {
    if url.contains("sslmode=verify") {
        return Err(invalid(VERIFIES));
    }
    let mut config: Config = url.parse().map_err(|error| {
        invalid(format!(
            "the URL of the database cannot be read: {}; write it like postgres://user@host/database",
            failure::said(&error)
        ))
    })?;
    if config.get_ssl_mode() == SslMode::Require && !encrypted {
        return Err(invalid(NO_TLS));
    }
    if config.get_application_name().is_none() {
        config.application_name("leasehold");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(Duration::from_secs(5));
    }
    Ok(config)
}

/// Which database it is; where the store's tables are, or would be made; and how it keeps text.
const WHERE: &str = "coalesce((SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.oid = to_regclass($1)), current_schema())::text, current_setting('server_encoding')";
/// The cluster's identifier, which replicas share.
const CLUSTER: &str = "SELECT (SELECT system_identifier FROM pg_control_system())::text";
/// Where that may not be asked: the server's address.
const ADDRESS: &str =
    "SELECT replace(coalesce(host(inet_server_addr()), 'local'), ':', '.') || '/' || current_setting('port')";
const DATABASE: &str = "(SELECT oid FROM pg_database WHERE datname = current_database())::text";

/// Asks which database it is, and more beside that. A fence asks in the same way as its store did, `by_cluster` or not.
pub(super) async fn ask_database(runner: Runner<'_>, by_cluster: bool, beside: &str, with: &[Parameter<'_>]) -> Found {
    let server = if by_cluster { CLUSTER } else { ADDRESS };
    runner.query(&format!("{server}, {DATABASE}, {beside}"), with).await
}

pub(super) type Found = Result<Vec<tokio_postgres::Row>, tokio_postgres::Error>;

/// What [`ask_database`] found, as a name without colons.
pub(super) fn name_of(row: &tokio_postgres::Row) -> Result<String, tokio_postgres::Error> {
    Ok(format!("{}/{}", row.try_get::<_, String>(0)?, row.try_get::<_, String>(1)?))
}

/// Whether a database was named by its cluster, and not by the address of its server, which has a slash of its own.
pub(super) fn is_by_cluster(database: &str) -> bool {
    database.matches('/').count() == 1
}

async fn names_in(client: &Client, prefix: String) -> Result<Names, StoreError> {
    let names = Names { database: String::new(), prefix, schema: String::new() };
    let table = names.plain_table("store");
    let with: [Parameter<'_>; 1] = [(&table, Type::TEXT)];
    let runner = Runner::Connection(client);
    let mut found = ask_database(runner, true, WHERE, &with).await;
    if found.as_ref().is_err_and(|error| failure::code(error) == "42501") {
        found = ask_database(runner, false, WHERE, &with).await;
    }
    let found = found.map_err(|error| failure::of_statement(&error, &names))?;
    let read = |row: &tokio_postgres::Row| -> Result<(String, Option<String>, String), tokio_postgres::Error> {
        Ok((name_of(row)?, row.try_get(2)?, row.try_get(3)?))
    };
    let row = found.first().ok_or_else(|| StoreError::transient("the server did not say which database it is"))?;
    let (database, schema, encoding) = read(row).map_err(|error| failure::of_statement(&error, &names))?;
    if encoding != "UTF8" {
        return Err(invalid(format!(
            "the database keeps text as {encoding}, and leases need UTF8; create one by CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
        )));
    }
    let schema = schema.ok_or_else(|| {
        invalid("no schema of the connection's search_path exists; create one, or name another by options=-csearch_path%3D… in the URL")
    })?;
    Ok(Names { database, schema, ..names })
}
