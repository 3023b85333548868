//! tokio-postgres: connections that the store opens itself, by a URL.

mod address;
mod dial;
mod fence;
mod pool;
mod tls;
mod url;

use core::{any::Any, error::Error as _, pin::pin};
use std::{boxed::Box, string::String};

use async_trait::async_trait;
use futures::TryStreamExt;
use tokio::runtime::Handle;
use tokio_postgres::{
    Client, Error, NoTls, SimpleQueryMessage, SimpleQueryRow, Socket,
    error::DbError,
    tls::{MakeTlsConnect, TlsConnect},
};

use super::super::{
    PostgresStore, PostgresStoreBuilder,
    carrier::{Answers, Exchange, Failure, Gathering, Round, Row, Source, Supply},
    options::check_prefix,
};
use crate::executor::Shared;
use crate::machine::StoreError;

use address::Address;
pub(super) use dial::{Connector, Dial, connector as connector_of};
use pool::Pool;

/// Sends a round by one simple query.
pub(super) async fn carry(client: &Client, round: &Round) -> Result<Answers, Failure> {
    let mut gathering = Gathering::default();
    let sent = client.simple_query_raw(round.text()).await;
    let mut messages = pin!(sent.map_err(|error| failed(&error))?);
    loop {
        match messages.try_next().await {
            Ok(Some(SimpleQueryMessage::Row(row))) => match texts(&row) {
                Ok(row) => gathering.row(row),
                Err(error) => return Err(fail(gathering, &error)),
            },
            Ok(Some(SimpleQueryMessage::CommandComplete(count))) => gathering.completed(count),
            Ok(Some(_)) => {}
            Ok(None) => return Ok(gathering.answers()),
            Err(error) => return Err(fail(gathering, &error)),
        }
    }
}

/// The user of a connection may have chosen another encoding than UTF-8 for its answers.
fn texts(row: &SimpleQueryRow) -> Result<Row, Error> {
    let text = |column| Ok(row.try_get(column)?.map(String::from));
    Ok(Row((0..row.len()).map(text).collect::<Result<_, Error>>()?))
}

/// A failure before anything was completed.
pub(super) fn failed(error: &Error) -> Failure {
    fail(Gathering::default(), error)
}

fn fail(gathering: Gathering, error: &Error) -> Failure {
    let code = error.code().map(|code| code.code().into());
    gathering.failed(code, said(error)).by_routine(error.as_db_error().and_then(DbError::routine))
}

fn said(error: &Error) -> String {
    if let Some(answer) = error.as_db_error() {
        return format!("{} (SQLSTATE {})", answer.message(), answer.code().code());
    }
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// The database that a URL names.
struct Url {
    url: String,
    connector: Option<Shared<dyn Connector>>,
}

#[async_trait]
impl Source for Url {
    async fn open(self: Box<Self>, runtime: Handle) -> Result<Supply, StoreError> {
        let Address { config, encryption } = Address::read(&self.url, self.connector.is_some())?;
        let connector = match (self.connector, encryption) {
            (Some(connector), _) => connector,
            (None, Some(files)) => tls::connector_for(&files)?,
            (None, None) => connector_of(NoTls),
        };
        let dial = Dial::new(config, connector, runtime);
        let exchange: Shared<dyn Exchange> = Shared::new(dial.watchful());
        let first = dial.dial(|_| ()).await?;
        Ok(Supply { lender: Box::new(Pool::new(dial, first)), exchange: Some(exchange) })
    }

    fn encrypt(&mut self, connector: &dyn Any) -> bool {
        self.connector = connector.downcast_ref().cloned();
        self.connector.is_some()
    }
}

impl PostgresStore {
    /// Connects to the database that the [URL or list of options](tokio_postgres::Config) names, with tables that begin with
    /// `leasehold`. Use a [`builder`](Self::builder) for other choices.
    ///
    /// `sslmode=require` encrypts the connections, with the feature `store-postgres-tls` (rustls and ring) or with a connector of
    /// [yours](PostgresStoreBuilder::tls). The feature verifies the server's certificate and the server's name in it. A connector decides
    /// for itself what it verifies. Without a connector, the feature also takes `sslmode=verify-full` or `verify-ca`, which mean the same;
    /// `sslrootcert=` for the file of the authority, if it is not one that the system trusts; and `sslcert=` and `sslkey=` for a
    /// certificate of the program. Files are in PEM. They are read for each new connection, so replaced ones need no new store. A list of options
    /// with quotes cannot name files. With any other `sslmode`, or none, nothing is encrypted unless you give a connector.
    ///
    /// # Errors
    /// [`StoreError`] names what is wrong with the URL or a file, or why no server answers.
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

    /// A builder that chooses how to connect to the database that the URL names.
    pub fn builder(url: &str) -> PostgresStoreBuilder {
        PostgresStoreBuilder::new(Box::new(Url { url: url.into(), connector: None }))
    }
}

impl PostgresStoreBuilder {
    /// Encrypts all connections, for instance with `postgres_native_tls::MakeTlsConnector` or
    /// `tokio_postgres_rustls::MakeRustlsConnect`. The feature `store-postgres-tls` makes such a connector from the
    /// [URL](PostgresStore::connect).
    ///
    /// Whether the server's certificate is verified is up to the connector; `sslmode=require` in the URL forbids a connection
    /// without encryption.
    pub fn tls<T>(mut self, connector: T) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        self.encrypt(&connector_of(connector));
        self
    }
}

#[cfg(test)]
mod tests {
    use std::{
        format,
        io::{Read as _, Write as _},
        net::TcpListener,
        time::Duration,
    };

    use tokio::time::Instant;

    use super::*;

    /// Like a pooler that accepts every client, but reaches no server.
    #[test]
    fn connecting_gives_up_on_a_server_that_falls_silent_after_the_greeting() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let server = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("somebody connects");
            let mut heard = [0; 1_024];
            let _ = client.read(&mut heard);
            client.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").expect("it listens");
            while client.read(&mut heard).is_ok_and(|many| many > 0) {}
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
        let began = Instant::now();
        let url = format!("postgres://u@127.0.0.1:{port}/d");
        let error = runtime.block_on(async {
            let connecting = tokio::time::timeout(Duration::from_secs(20), PostgresStore::connect(&url));
            connecting.await.expect("it ends by itself").expect_err("nobody answers")
        });
        assert!(error.retry && error.message.contains("did not answer within 10 s"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
        drop(runtime);
        server.join().expect("it was left");
    }
}
