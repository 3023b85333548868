//! One server and a connection to it, and the choice among several servers that may answer.

use core::time::Duration;
use std::{
    format,
    string::{String, ToString},
    sync::Arc,
    vec::Vec,
};

use futures::{StreamExt, stream::FuturesUnordered};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ProtocolVersion, RedisError, Value,
    aio::MultiplexedConnection,
};
use tokio::time::timeout;

use super::{
    failure::{self, Stage},
    tls,
};
use crate::{
    machine::StoreError,
    store::{inside::check_io, tls::Certificates},
};

/// The store gives up on a server that takes longer to connect, or to name the master.
const PATIENCE: Duration = Duration::from_secs(2);
/// After this long without an answer, the next server is asked too.
const HEAD_START: Duration = Duration::from_millis(100);

/// A server, and a connection to it. Clones share the connection.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) connection: MultiplexedConnection,
    pub(super) client: Client,
    /// The name of the server in errors, without a password.
    pub(super) address: Arc<str>,
}

impl Node {
    /// # Errors
    /// [`StoreError`] if it cannot be reached, or a file cannot be used. Then nothing was sent but the password and the number of the
    /// database.
    pub(super) async fn open(client: Client, files: &Certificates) -> Result<Self, StoreError> {
        let address: Arc<str> = address_of(&client).into();
        check_io(&format!("Redis at {address}"))?;
        let client = tls::renewed(client, files)?;
        tls::provide(client.get_connection_info().addr());
        // The callers have their own time limits; the library's would be half a second.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let opened = client.get_multiplexed_async_connection_with_config(&config).await;
        let connection = opened.map_err(|error| failure::of_connect(client.get_connection_info(), &error))?;
        Ok(Self { connection, client, address })
    }

    /// Connects to one of several servers, and gives up after [`PATIENCE`].
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub(super) async fn open_soon(client: Client, files: &Certificates) -> Result<Self, StoreError> {
        let opening = timeout(PATIENCE, Self::open(client.clone(), files)).await;
        opening.unwrap_or_else(|_| Err(failure::of_opening(client.get_connection_info().addr(), PATIENCE)))
    }

    /// Sends a command that writes nothing. The inner error is the server's refusal.
    ///
    /// # Errors
    /// [`StoreError`] if there was no answer.
    pub(super) async fn ask(&mut self, command: &Cmd) -> Result<Result<Value, RedisError>, StoreError> {
        match timeout(PATIENCE, self.connection.send_packed_command(command)).await {
            Ok(Ok(Value::ServerError(refusal))) => Ok(Err(refusal.into())),
            Ok(Ok(value)) => Ok(Ok(value)),
            Ok(Err(error)) => Err(failure::of_silence(&self.address, &error, Stage::Reading)),
            Err(_) => Err(failure::of_time(&self.address, PATIENCE, false)),
        }
    }
}

pub(super) fn address_of(client: &Client) -> String {
    client.get_connection_info().addr().to_string()
}

/// A client as the store uses it.
///
/// # Errors
/// [`StoreError`] if its address is invalid.
pub(super) fn prepared(info: ConnectionInfo) -> Result<Client, StoreError> {
    // A transaction is one small packet: it must not wait for the acknowledgement of the one before.
    let settings = info.tcp_settings().clone().set_nodelay(true);
    // The store reads the answers of this version of the protocol, whatever version the address asks for.
    let protocol = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP2);
    Client::open(info.set_tcp_settings(settings).set_redis_settings(protocol)).map_err(|error| failure::of_url(&error))
}

/// A client for the server at `address`, which is a host and a port, with the password and the TLS of another server.
///
/// # Errors
/// [`StoreError`] if the address is invalid.
pub(super) fn client_at(address: &str, like: &ConnectionInfo) -> Result<Client, StoreError> {
    let named = address.rsplit_once(':').and_then(|(host, port)| Some((host.to_string(), port.parse().ok()?)));
    let Some((host, port)) = named else {
        return Err(StoreError::transient(format!("Redis named {address:?} as a server; its port is missing")));
    };
    let addr = match like.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    prepared(like.clone().set_addr(addr))
}

/// The first success. An attempt begins when one before it has failed, or has taken [`HEAD_START`].
///
/// # Errors
/// Those of all attempts.
pub(super) async fn first_of<T>(
    attempts: Vec<impl Future<Output = Result<T, StoreError>>>,
) -> Result<T, Vec<StoreError>> {
    let (mut waiting, mut running, mut errors) = (attempts.into_iter(), FuturesUnordered::new(), Vec::new());
    loop {
        if let Some(attempt) = waiting.next() {
            running.push(attempt);
        }
        let next = if waiting.len() > 0 { timeout(HEAD_START, running.next()).await } else { Ok(running.next().await) };
        match next {
            Ok(Some(Ok(success))) => return Ok(success),
            Ok(Some(Err(error))) => errors.push(error),
            Ok(None) if waiting.len() == 0 => return Err(errors),
            // The next one begins.
            Ok(None) | Err(_) => {}
        }
    }
}

/// The error of a whole group. It is transient if the error of any server is.
pub(super) fn one_of(errors: Vec<StoreError>) -> StoreError {
    let may_pass = errors.iter().any(|error| error.retry);
    // A server's answer says more than the silence of another.
    let told = errors.iter().find(|error| !error.retry).or_else(|| errors.first());
    match told {
        Some(error) if may_pass => StoreError::transient(error.message.clone()),
        Some(error) => error.clone(),
        None => failure::unsupported("no server is named; name at least one"),
    }
}

#[cfg(test)]
mod tests {
    use core::future::{pending, ready};
    use std::boxed::Box;

    use futures::future::BoxFuture;

    use super::*;

    fn run(attempts: Vec<BoxFuture<'_, Result<u8, StoreError>>>) -> Result<u8, Vec<StoreError>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime starts").block_on(first_of(attempts))
    }

    /// A store that was made elsewhere opens a new connection where it is used. Tokio would panic there.
    #[test]
    fn a_connection_in_a_runtime_without_io_is_refused() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime starts");
        let client = Client::open("redis://127.0.0.1:1").expect("it is a URL");
        let error = runtime.block_on(Node::open(client, &Certificates::default())).err().expect("it cannot be opened");
        assert!(error.message.contains("127.0.0.1:1") && error.message.contains("enable_all()"), "{error}");
    }

    #[test]
    fn a_server_that_hangs_or_fails_does_not_keep_the_next_one_from_being_asked() {
        let failed = || Box::pin(ready(Err(StoreError::transient("refused"))));
        assert_eq!(run(Vec::from([Box::pin(pending()) as BoxFuture<'_, _>, failed(), Box::pin(ready(Ok(3)))])), Ok(3));
        assert_eq!(run(Vec::from([failed() as BoxFuture<'_, _>, failed()])).map_err(|all| all.len()), Err(2));
        assert_eq!(run(Vec::new()).map_err(|all| all.len()), Err(0));
    }

    #[test]
    fn a_group_fails_for_good_only_if_all_its_servers_do() {
        let (may_pass, stays) = (StoreError::transient("refused"), failure::unsupported("unknown name"));
        assert_eq!(one_of(Vec::from([stays.clone(), stays.clone()])), stays);
        let mixed = one_of(Vec::from([may_pass, stays]));
        assert_eq!((mixed.retry, mixed.message.as_str()), (true, "unknown name"));
        assert!(!one_of(Vec::new()).retry);
    }
}
