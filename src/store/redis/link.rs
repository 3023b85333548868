//! One connection to the server, opened when it is needed and again after it broke.

use core::{fmt, time::Duration};
use std::{
    boxed::Box,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use futures::lock::Mutex;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ProtocolVersion, RedisError, Value, aio::MultiplexedConnection, aio::PubSub,
};
use tokio::time::{Instant, timeout};

use super::failure::{self, Stage};
use crate::machine::{StoreError, StoreErrorKind};

/// The way to one server. Commands of several tasks share the connection, and none of them is ever sent twice.
pub(super) struct Link {
    client: Client,
    /// What errors call the server. It has no password.
    address: Box<str>,
    connection: Mutex<Option<Kept>>,
    /// How many connections were opened so far.
    opened: AtomicU64,
    closed: AtomicBool,
}

struct Kept {
    connection: MultiplexedConnection,
    asked_at: Instant,
}

/// A connection that nobody used for so long is asked whether it still stands: servers and what stands before them cut idle
/// ones, and of a write into such a one nobody could say whether it arrived.
const IDLE: Duration = Duration::from_secs(2);
/// One that then says nothing for so long is given up.
const PATIENCE: Duration = Duration::from_secs(1);

impl Link {
    /// # Errors
    /// [`StoreError`] if the client's address is none.
    pub(super) fn new(client: &Client) -> Result<Self, StoreError> {
        let info = client.get_connection_info().clone();
        let address = info.addr().to_string().into();
        // A transaction is one small packet: it must not wait for the acknowledgement of the one before.
        let settings = info.tcp_settings().clone().set_nodelay(true);
        // Answers are read as this version of the protocol gives them, whatever the address asks for.
        let protocol = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP2);
        let client = Client::open(info.set_tcp_settings(settings).set_redis_settings(protocol))
            .map_err(|error| failure::of_url(&error))?;
        Ok(Self {
            client,
            address,
            connection: Mutex::default(),
            opened: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        })
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn database(&self) -> i64 {
        self.client.get_connection_info().redis_settings().db()
    }

    /// Sends one command, and gives back what the server answered; its refusal is an error.
    ///
    /// # Errors
    /// [`StoreError`], which says by `stage` whether something may have been written.
    pub(super) async fn send(&self, command: &Cmd, stage: Stage<'_>) -> Result<Value, StoreError> {
        match self.ask(command, stage).await? {
            Ok(value) => Ok(value),
            Err(refusal) => Err(self.refused(&refusal, stage)),
        }
    }

    /// Sends one command. The inner error is the server's refusal: it was answered.
    ///
    /// # Errors
    /// [`StoreError`] if there was no answer.
    pub(super) async fn ask(&self, command: &Cmd, stage: Stage<'_>) -> Result<Result<Value, RedisError>, StoreError> {
        let mut connection = self.connection().await?;
        stage.begins();
        let answer = connection.send_packed_command(command).await;
        stage.answered(answer.is_ok());
        match answer {
            Ok(Value::ServerError(refusal)) => Ok(Err(refusal.into())),
            Ok(value) => Ok(Ok(value)),
            Err(error) => {
                self.forget();
                Err(failure::of_silence(&self.address, &error, stage))
            }
        }
    }

    /// The meaning of a refusal. Whoever is a replica now may have a successor under the same name: the next command asks
    /// for it by a new connection.
    pub(super) fn refused(&self, refusal: &RedisError, stage: Stage<'_>) -> StoreError {
        if failure::is_of_a_replica(refusal) {
            self.forget();
        }
        failure::of_refusal(&self.address, refusal, stage)
    }

    async fn connection(&self) -> Result<MultiplexedConnection, StoreError> {
        let mut kept = self.connection.lock().await;
        self.check()?;
        if let Some(connection) = standing(&mut kept).await {
            return Ok(connection);
        }
        // The callers have a time limit of their own, and the library's would be half a second.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let opened = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let connection = opened.map_err(|error| failure::of_connect(&self.address, &error))?;
        self.opened.fetch_add(1, Ordering::SeqCst);
        *kept = Some(Kept { connection: connection.clone(), asked_at: Instant::now() });
        Ok(connection)
    }

    /// How many connections were opened so far. A new one may lead to a server that has lost writes.
    pub(super) fn opened(&self) -> u64 {
        self.opened.load(Ordering::SeqCst)
    }

    /// A connection of its own for messages.
    pub(super) async fn listen(&self) -> Option<PubSub> {
        self.check().ok()?;
        self.client.get_async_pubsub().await.ok()
    }

    /// Lets the next command open a connection anew: this one is broken, or nothing comes back on it.
    pub(super) fn forget(&self) {
        // Who holds the lock opens a new one already.
        if let Some(mut kept) = self.connection.try_lock() {
            *kept = None;
        }
    }

    pub(super) async fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        *self.connection.lock().await = None;
    }

    pub(super) fn check(&self) -> Result<(), StoreError> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(StoreError::permanent(
                StoreErrorKind::Closed,
                "this RedisStore was closed; connect another one",
            ));
        }
        Ok(())
    }

    /// Runs `work` for at most `limit`. What takes longer has an unknown outcome if a write was under way.
    ///
    /// # Errors
    /// That of `work`, or of the time limit.
    pub(super) async fn within<T>(
        &self,
        limit: Duration,
        writing: &AtomicBool,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        match timeout(limit, work).await {
            Ok(done) => done,
            Err(_) => {
                self.forget();
                Err(failure::of_time(&self.address, limit, writing.load(Ordering::Relaxed)))
            }
        }
    }
}

/// The connection that is kept, if it stands.
async fn standing(kept: &mut Option<Kept>) -> Option<MultiplexedConnection> {
    let Kept { connection, asked_at } = kept.as_mut()?;
    if asked_at.elapsed() > IDLE {
        let answer = timeout(PATIENCE, connection.send_packed_command(&redis::cmd("PING"))).await;
        if !matches!(answer, Ok(Ok(_))) {
            *kept = None;
            return None;
        }
    }
    *asked_at = Instant::now();
    Some(connection.clone())
}

impl fmt::Debug for Link {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Link({})", self.address)
    }
}
