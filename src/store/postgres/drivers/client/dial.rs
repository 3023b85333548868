//! How connections are made: each is driven by a task of its own.

use core::{
    fmt,
    future::poll_fn,
    task::{Context, Poll},
    time::Duration,
};

use std::{
    net::SocketAddr,
    string::{String, ToString},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    vec::Vec,
};

use async_trait::async_trait;
use tokio::{
    runtime::Handle,
    time::{Instant, timeout},
};
use tokio_postgres::{
    AsyncMessage, Client, Config, Connection, Error, Socket,
    config::{Host, LoadBalanceHosts, TargetSessionAttrs},
    tls::MakeTlsConnect,
};

use super::{
    super::super::{
        carrier::{Answers, Exchange, Failure, Hear, Line, Round},
        failure,
    },
    carry, failed,
};
use crate::executor::{MaybeSendFuture, Mutex, Shared};
use crate::machine::StoreError;
use crate::store::inside::check_io;

/// More than a server takes that answers at all.
const LIMIT: Duration = Duration::from_secs(10);
/// After this long without a message, a connection for signals checks that the server still answers.
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

type Opened = (Client, Box<dyn Wire>);
pub(in super::super) type Opening = MaybeSendFuture<'static, Result<Opened, Error>>;

/// Opens connections to one database.
#[derive(Clone)]
pub(in super::super) struct Dial {
    config: Config,
    connector: Shared<dyn Connector>,
    runtime: Handle,
    /// Which of several hosts to ask first. It is the first one listed, unless the caller gave up on the last attempt, or on the server.
    turn: Arc<AtomicUsize>,
    /// The host that accepted the latest connection, and when.
    latest: Arc<Mutex<(usize, Option<Instant>)>>,
}

/// Notes the host to ask first once the attempt is over. Until then attempts beside it begin as it did.
struct Next<'a> {
    turn: &'a AtomicUsize,
    host: usize,
}

impl Drop for Next<'_> {
    fn drop(&mut self) {
        self.turn.store(self.host, Relaxed);
    }
}

impl fmt::Debug for Dial {
    /// The configuration may have a password in it.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Dial").finish_non_exhaustive()
    }
}

/// Connects, encrypted or not.
pub(in super::super) trait Connector: Send + Sync {
    /// # Errors
    /// [`StoreError`] if what encryption needs is not there. Then no server was asked.
    fn connect(&self, config: Config) -> Result<Opening, StoreError>;
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
    fn connect(&self, config: Config) -> Result<Opening, StoreError> {
        let tls = self.0.clone();
        Ok(Box::pin(async move {
            let (client, connection) = config.connect(tls).await?;
            let wire: Box<dyn Wire> = Box::new(connection);
            Ok((client, wire))
        }))
    }
}

impl Dial {
    pub(in super::super) fn new(config: Config, connector: Shared<dyn Connector>, runtime: Handle) -> Self {
        Self { config, connector, runtime, turn: Arc::default(), latest: Arc::default() }
    }

    /// A transaction that began at this time got no answer. The host of its connection may hang, as a machine that is about to be replaced
    /// does, so the next attempt begins with the one after it. Returns `false` if a connection was opened since: that one leads to a host
    /// that answers. Where a replica would be accepted, too, the next attempt begins as always.
    pub(super) fn pass_over(&self, began: Instant) -> bool {
        let (host, at) = *self.latest.lock();
        if at.is_some_and(|at| at > began) {
            return false;
        }
        if let Some(many) = several(&self.config).filter(|_| self.is_choosy()) {
            self.turn.store((host + 1) % many, Relaxed);
        }
        true
    }

    /// Whether hosts that take no writes, or only such, are refused.
    fn is_choosy(&self) -> bool {
        self.config.get_target_session_attrs() != TargetSessionAttrs::Any
    }

    /// Where the servers should be, for an error message.
    fn servers(&self) -> Vec<String> {
        let (hosts, addresses) = (self.config.get_hosts(), self.config.get_hostaddrs());
        let ports = self.config.get_ports();
        let server = |at| {
            let port = ports.get(at).or_else(|| ports.first()).copied().unwrap_or(5432);
            match (hosts.get(at), addresses.get(at)) {
                (Some(Host::Tcp(name)), _) => format!("{name}:{port}"),
                #[cfg(unix)]
                (Some(Host::Unix(folder)), _) => folder.join(format!(".s.PGSQL.{port}")).display().to_string(),
                (None, Some(address)) => SocketAddr::new(*address, port).to_string(),
                (None, None) => String::new(),
            }
        };
        (0..hosts.len().max(addresses.len())).map(server).collect()
    }

    /// For signals: one that the server or the network dropped is noticed within seconds.
    pub(in super::super) fn watchful(&self) -> Self {
        let mut watchful = self.clone();
        watchful.config.keepalives(true).keepalives_idle(QUIET).keepalives_interval(QUIET).keepalives_retries(2);
        watchful.config.tcp_user_timeout(QUIET * 3);
        watchful
    }

    /// Asks one host after the other. The client's own time limit ends when the host accepts the connection. Without a limit for each host
    /// here, one that accepts and then says nothing would keep the others from being asked.
    ///
    /// If no host lets this program in, the error is that of a host that refuses for good, else that of the last host that answered. The
    /// error is transient unless all hosts refuse for good: the host that has the store may only be restarting.
    async fn opened(&self) -> Result<Opened, StoreError> {
        let Some(many) = several(&self.config) else {
            let opening = self.connector.connect(self.config.clone())?;
            return timeout(LIMIT, opening).await.map_err(|_| self.silent())?.map_err(|error| self.refused(&error));
        };
        let connect = *self.config.get_connect_timeout().unwrap_or(&LIMIT);
        let limit = (LIMIT / u32::try_from(many).unwrap_or(u32::MAX)).min(connect.saturating_mul(2));
        let (first, mut told, mut may_pass) = (self.turn.load(Relaxed), None, false);
        // If the caller gives up meanwhile, the next attempt begins with the next host.
        let mut next = Next { turn: &self.turn, host: first };
        for at in (first..first + many).map(|at| at % many) {
            let mut one = only(&self.config, at);
            // The client tries one address of the host after the other. If the first leads nowhere, this limit leaves time for the second.
            one.connect_timeout(connect.min(limit / 2));
            let opening = self.connector.connect(one)?;
            next.host = at + 1;
            let error = match timeout(limit, opening).await {
                Ok(Ok(opened)) => {
                    // Until this host fails, the next connections do not ask the one again that hangs.
                    next.host = if self.is_choosy() && first > 0 { at } else { 0 };
                    *self.latest.lock() = (at, Some(Instant::now()));
                    return Ok(opened);
                }
                Ok(Err(error)) => Some(self.refused(&error)),
                Err(_) => None,
            };
            may_pass |= error.as_ref().is_none_or(|error| error.retry);
            told = told.filter(|known: &StoreError| !known.retry || error.is_none()).or(error);
        }
        next.host = 0;
        let told = told.unwrap_or_else(|| self.silent());
        Err(if may_pass && !told.retry { StoreError::transient(told.message) } else { told })
    }

    fn refused(&self, error: &Error) -> StoreError {
        let user = self.config.get_user().unwrap_or("of this process");
        failure::of_connect(&failed(error), user, &self.servers())
    }

    /// No host answered within the time limit.
    fn silent(&self) -> StoreError {
        StoreError::transient(format!(
            "no server accepted a connection{} within 10 s; check that the host and the port in the URL are those of PostgreSQL, and that \
             it is not overloaded",
            failure::listed(&self.servers())
        ))
    }

    /// Opens a connection. What comes in unasked goes to `hear`, and `None` when the connection is over. It must be called on the
    /// runtime.
    pub(in super::super) async fn dial(
        &self,
        mut hear: impl FnMut(Option<AsyncMessage>) + Send + 'static,
    ) -> Result<Client, StoreError> {
        check_io("PostgreSQL")?;
        let (client, mut wire) = self.opened().await?;
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

/// How many hosts there are, if there are several and they are to be asked in order.
fn several(config: &Config) -> Option<usize> {
    let (hosts, addresses, ports) = (config.get_hosts().len(), config.get_hostaddrs().len(), config.get_ports().len());
    let many = hosts.max(addresses);
    // Lists of different lengths are left to the client, which says what is wrong with them.
    let fits = |count, least| count <= least || count == many;
    let is_ordered = config.get_load_balance_hosts() == LoadBalanceHosts::Disable;
    (many > 1 && fits(hosts, 0) && fits(addresses, 0) && fits(ports, 1) && is_ordered).then_some(many)
}

/// The same options, with only one of the hosts.
fn only(all: &Config, at: usize) -> Config {
    let mut one = Config::new();
    all.get_user().map(|user| one.user(user));
    all.get_password().map(|password| one.password(password));
    all.get_dbname().map(|name| one.dbname(name));
    all.get_options().map(|options| one.options(options));
    all.get_application_name().map(|name| one.application_name(name));
    one.ssl_mode(all.get_ssl_mode()).ssl_negotiation(all.get_ssl_negotiation());
    match all.get_hosts().get(at) {
        Some(Host::Tcp(name)) => drop(one.host(name)),
        #[cfg(unix)]
        Some(Host::Unix(folder)) => drop(one.host_path(folder)),
        None => {}
    }
    all.get_hostaddrs().get(at).map(|address| one.hostaddr(*address));
    all.get_ports().get(at).or_else(|| all.get_ports().first()).map(|port| one.port(*port));
    all.get_connect_timeout().map(|limit| one.connect_timeout(*limit));
    all.get_tcp_user_timeout().map(|limit| one.tcp_user_timeout(*limit));
    one.keepalives(all.get_keepalives()).keepalives_idle(all.get_keepalives_idle());
    all.get_keepalives_interval().map(|interval| one.keepalives_interval(interval));
    all.get_keepalives_retries().map(|retries| one.keepalives_retries(retries));
    one.target_session_attrs(all.get_target_session_attrs()).channel_binding(all.get_channel_binding());
    one
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

#[cfg(test)]
mod tests {
    use std::{format, net::TcpListener, string::ToString};

    use tokio_postgres::NoTls;

    use super::*;

    #[test]
    fn a_connection_to_one_of_several_hosts_keeps_all_options() {
        let rest = "user=u password=p dbname=d options=-cgeqo=off application_name=a sslmode=require sslnegotiation=direct \
             connect_timeout=3 tcp_user_timeout=4 keepalives=0 keepalives_idle=5 keepalives_interval=6 keepalives_retries=7 \
             target_session_attrs=read-write channel_binding=require";
        let parsed = |hosts: &str| format!("{hosts} {rest}").parse::<Config>().expect("they are options");
        let all = parsed("host=one,two hostaddr=127.0.0.1,127.0.0.2 port=1,2");
        assert_eq!(several(&all), Some(2));
        assert_eq!(only(&all, 1), parsed("host=two hostaddr=127.0.0.2 port=2"));
        assert_eq!(only(&parsed("host=one,/run port=7"), 1), parsed("host=/run port=7"));
        for whole in [
            "host=one",
            "host=one,two hostaddr=127.0.0.1",
            "host=one,two port=1,2,3",
            "host=one,two load_balance_hosts=random",
        ] {
            assert_eq!(several(&parsed(whole)), None, "{whole}");
        }
    }

    /// How it is asked, while a server takes its time.
    struct Slow(std::sync::Mutex<Vec<Config>>);

    impl Connector for Shared<Slow> {
        fn connect(&self, config: Config) -> Result<Opening, StoreError> {
            self.0.lock().expect("nobody panicked").push(config);
            Ok(Box::pin(core::future::pending()))
        }
    }

    impl Slow {
        fn asked(&self) -> Vec<Config> {
            core::mem::take(&mut self.0.lock().expect("nobody panicked"))
        }
    }

    /// That of IPv6 leads nowhere in many networks.
    #[test]
    fn each_of_several_hosts_has_time_for_a_second_address() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
        for (given, used) in [("connect_timeout=5", 2_500), ("connect_timeout=1", 1_000), ("", 2_500)] {
            let slow = Shared::new(Slow(std::sync::Mutex::default()));
            let config = format!("user=u host=one,two {given}").parse().expect("they are options");
            let dial = Dial::new(config, Shared::new(slow.clone()), runtime.handle().clone());
            runtime.block_on(async { drop(timeout(Duration::from_millis(10), dial.opened()).await) });
            let limits: Vec<_> =
                slow.asked().iter().filter_map(|config| config.get_connect_timeout().copied()).collect();
            assert_eq!(limits, [Duration::from_millis(used)], "{given}");
        }
    }

    /// The second host may be a standby, which cannot write.
    #[test]
    fn connections_that_are_opened_side_by_side_all_ask_the_first_host_first() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
        let slow = Shared::new(Slow(std::sync::Mutex::default()));
        let config = "user=u host=one,two port=1,2".parse().expect("they are options");
        let dial = Dial::new(config, Shared::new(slow.clone()), runtime.handle().clone());
        let asked = || slow.asked().iter().map(|config| config.get_ports()[0]).collect::<Vec<_>>();
        let moment = Duration::from_millis(10);
        runtime.block_on(async {
            let side_by_side = futures::future::join(dial.opened(), dial.opened());
            assert!(timeout(moment, side_by_side).await.is_err());
            assert_eq!(asked(), [1, 1]);
            // Given up there, the next attempt begins with the next host.
            assert!(timeout(moment, dial.opened()).await.is_err());
            assert_eq!(asked(), [2]);
        });
    }

    /// Two transactions may have waited for the same host, and the second one must not lead back to it. Without a wish for a primary, the
    /// next host may be a replica.
    #[test]
    fn a_host_that_hangs_is_passed_over_once_and_only_where_a_primary_is_wished_for() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime starts");
        for (wish, expected) in [("read-write", 1), ("any", 0)] {
            let options = format!("user=u host=one,two target_session_attrs={wish}").parse().expect("they are options");
            let dial = Dial::new(options, connector(NoTls), runtime.handle().clone());
            let (first, second) = (Instant::now(), Instant::now());
            assert!(dial.pass_over(first));
            assert_eq!(dial.turn.load(Relaxed), expected, "{wish}");
            *dial.latest.lock() = (1, Some(Instant::now() + Duration::from_secs(1)));
            assert!(!dial.pass_over(second), "the host of the newer connection answers");
            assert_eq!(dial.turn.load(Relaxed), expected, "{wish}");
        }
    }

    /// The operating system accepts connections for a server that hangs.
    #[test]
    fn a_host_that_says_nothing_does_not_keep_the_next_one_from_being_asked() {
        let [silent, closing] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port is free"));
        let ports = [&silent, &closing].map(|listener| listener.local_addr().expect("it is bound").port().to_string());
        let closer = std::thread::spawn(move || drop(closing.accept()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
        let options = format!("user=u host=127.0.0.1,127.0.0.1 port={} connect_timeout=1", ports.join(","));
        let dial = Dial::new(options.parse().expect("they are options"), connector(NoTls), runtime.handle().clone());
        let began = Instant::now();
        let error = runtime.block_on(dial.dial(|_| ())).expect_err("nobody answers");
        // It is the error of the second host.
        assert!(!error.message.contains("did not accept") && began.elapsed() < LIMIT, "{error}");
        closer.join().expect("it was asked");
        drop(silent);
    }
}
