//! How connections are made: each is driven by a task of its own.

use core::{
    fmt,
    future::poll_fn,
    task::{Context, Poll},
    time::Duration,
};

use std::vec::Vec;

use async_trait::async_trait;
use tokio::{runtime::Handle, time::timeout};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error, Socket, config::Host, tls::MakeTlsConnect};

use super::{
    super::super::{
        carrier::{Answers, Exchange, Failure, Hear, Line, Round},
        failure,
    },
    carry, failed,
};
use crate::executor::{MaybeSendFuture, Shared};
use crate::machine::StoreError;
use crate::store::inside::check_io;

/// More than a server takes that answers at all.
const LIMIT: Duration = Duration::from_secs(10);
/// After so long without a word a connection for signals asks the server whether it is there.
const QUIET: Duration = Duration::from_secs(5);

/// The half of a connection that reads and writes, whatever it is encrypted with.
pub(in super::super) trait Wire: Send {
    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<AsyncMessage, Error>>>;
}

impl<T: tokio_postgres::tls::TlsStream + Unpin + Send> Wire for Connection<Socket, T> {
    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<AsyncMessage, Error>>> {
        Self::poll_message(self, context)
    }
}

type Opened = Result<(Client, Box<dyn Wire>), Error>;

/// Opens connections to one database.
#[derive(Clone)]
pub(in super::super) struct Dial {
    config: Config,
    connector: Shared<dyn Connector>,
    runtime: Handle,
}

impl fmt::Debug for Dial {
    /// The configuration may have a password in it.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Dial").finish_non_exhaustive()
    }
}

/// Connects, encrypted or not.
pub(in super::super) trait Connector: Send + Sync {
    fn connect(&self, config: Config) -> MaybeSendFuture<'static, Opened>;
}

struct Tls<T>(T);

pub(in super::super) fn connector<T>(tls: T) -> Shared<dyn Connector>
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::Stream: Send,
    T::TlsConnect: Send,
    <T::TlsConnect as tokio_postgres::tls::TlsConnect<Socket>>::Future: Send,
{
    Shared::new(Tls(tls))
}

impl<T> Connector for Tls<T>
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::Stream: Send,
    T::TlsConnect: Send,
    <T::TlsConnect as tokio_postgres::tls::TlsConnect<Socket>>::Future: Send,
{
    fn connect(&self, config: Config) -> MaybeSendFuture<'static, Opened> {
        let tls = self.0.clone();
        Box::pin(async move {
            let (client, connection) = config.connect(tls).await?;
            let wire: Box<dyn Wire> = Box::new(connection);
            Ok((client, wire))
        })
    }
}

impl Dial {
    pub(in super::super) fn new(config: Config, connector: Shared<dyn Connector>, runtime: Handle) -> Self {
        Self { config, connector, runtime }
    }

    /// The names of the servers, without those that are sockets.
    fn hosts(&self) -> Vec<&str> {
        let hosts = self.config.get_hosts().iter();
        hosts.filter_map(|host| if let Host::Tcp(name) = host { Some(name.as_str()) } else { None }).collect()
    }

    /// For signals: one that the server or the network dropped is noticed within seconds.
    pub(in super::super) fn watchful(&self) -> Self {
        let mut watchful = self.clone();
        watchful.config.keepalives(true).keepalives_idle(QUIET).keepalives_interval(QUIET).keepalives_retries(2);
        watchful.config.tcp_user_timeout(QUIET * 3);
        watchful
    }

    /// Opens a connection. What comes in unasked goes to `hear`, and `None` when the connection is over. It must be called on the
    /// runtime.
    pub(in super::super) async fn dial(
        &self,
        mut hear: impl FnMut(Option<AsyncMessage>) + Send + 'static,
    ) -> Result<Client, StoreError> {
        check_io("PostgreSQL")?;
        let user = self.config.get_user().unwrap_or("the one of this process");
        let opening = timeout(LIMIT, self.connector.connect(self.config.clone()));
        let (client, mut wire) = match opening.await {
            Ok(opened) => opened.map_err(|error| failure::of_connect(&failed(&error), user, &self.hosts()))?,
            Err(_) => {
                return Err(StoreError::transient(
                    "the server did not accept a connection within 10 s; check that the host and the port in the URL are those of PostgreSQL, and \
                 that it is not overloaded",
                ));
            }
        };
        self.runtime.spawn(async move {
            // It ends when the client is dropped, or the connection broke.
            while let Some(Ok(message)) = poll_fn(|context| wire.poll_message(context)).await {
                hear(Some(message));
            }
            hear(None);
        });
        Ok(client)
    }
}

#[async_trait]
impl Exchange for Dial {
    async fn open(&self, mut hear: Hear) -> Result<Shared<dyn Line>, StoreError> {
        let client = self.dial(move |message| match message {
            Some(AsyncMessage::Notification(heard)) => hear(Some(heard.payload().into())),
            Some(_) => {}
            None => hear(None),
        });
        Ok(Shared::new(client.await?))
    }
}

#[async_trait]
impl Line for Client {
    async fn carry(&self, round: Round) -> Result<Answers, Failure> {
        carry(self, &round).await
    }
}
