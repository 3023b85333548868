//! The master of a group that Sentinels watch.

use core::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};
use std::{
    format,
    string::{String, ToString},
    sync::Arc,
    vec::Vec,
};

use futures::{StreamExt, stream::FuturesUnordered};
use redis::{Client, ConnectionInfo, RedisConnectionInfo, RedisError, Value, aio::PubSub, cmd};
use tokio::time::{Instant, sleep, timeout};

use super::{
    failure::{self, Stage},
    node::{Node, address_of, client_at, first_of, one_of, prepared},
    tls,
};
use crate::executor::Mutex;
use crate::machine::StoreError;
use crate::store::{backoff::Backoff, tls::Certificates};

/// How long a Sentinel may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// A connection on which nothing was announced for this long is checked with a ping.
const QUIET: Duration = Duration::from_secs(15);
/// The pause before a Sentinel is asked again that did not let this user listen.
const REFUSED: Duration = Duration::from_secs(60);
/// The shortest pause before a Sentinel is listened to again.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// Sentinels, and the name by which they know a master and its replicas.
pub(super) struct Group {
    name: String,
    /// The one that answered last comes first.
    sentinels: Mutex<Vec<Client>>,
    /// How to connect to a master. The address in it is that of a Sentinel.
    master: ConnectionInfo,
}

impl Group {
    /// # Errors
    /// [`StoreError`] if there is no Sentinel or no name.
    pub(super) fn new(name: &str, sentinels: &[Client], login: &RedisConnectionInfo) -> Result<Self, StoreError> {
        let Some(first) = sentinels.first() else {
            return Err(failure::unsupported("no Sentinel is named; name at least one"));
        };
        if name.is_empty() {
            return Err(failure::unsupported(
                "the name of the master is missing; name it as the Sentinels do, as in redis-sentinel://host:26379/mymaster",
            ));
        }
        let master = first.get_connection_info().clone().set_redis_settings(login.clone());
        let sentinels =
            sentinels.iter().map(|one| prepared(one.get_connection_info().clone())).collect::<Result<_, _>>()?;
        Ok(Self { name: name.to_string(), sentinels: Mutex::new(sentinels), master })
    }

    pub(super) fn database(&self) -> i64 {
        self.master.redis_settings().db()
    }

    /// The name of the group in errors.
    pub(super) fn address(&self) -> String {
        let sentinels: Vec<_> = self.sentinels().iter().map(address_of).collect();
        format!("{} of the Sentinels {}", self.name, sentinels.join(", "))
    }

    fn sentinels(&self) -> Vec<Client> {
        self.sentinels.lock().clone()
    }

    /// Asks the Sentinels for the master, and connects to it.
    ///
    /// # Errors
    /// [`StoreError`] if no Sentinel leads to a master. Trying again does not help if none of them knows the group.
    pub(super) async fn open(&self, files: &Certificates) -> Result<Node, StoreError> {
        let sentinels = self.sentinels();
        let attempts = sentinels.iter().map(|sentinel| self.master_by(sentinel, files)).collect();
        let (master, sentinel) = first_of(attempts).await.map_err(one_of)?;
        self.put_first(&sentinel);
        Ok(master)
    }

    fn put_first(&self, sentinel: &str) {
        self.sentinels.lock().sort_by_key(|one| address_of(one) != sentinel);
    }

    /// Whether a Sentinel names another master than the one at this address. A former master may still
    /// consider itself the master for ten seconds.
    pub(super) async fn names_another(&self, address: &str, files: &Certificates) -> bool {
        let sentinels = self.sentinels();
        let attempts = sentinels.iter().map(|sentinel| self.named_by(sentinel, files)).collect();
        let Ok(Ok((named, sentinel))) = timeout(PATIENCE, first_of(attempts)).await else { return false };
        self.put_first(&sentinel);
        address_of(&named) != address
    }

    /// Completes when a Sentinel announces another master than the `current` one. `subscriptions` counts the Sentinels that it listens to.
    pub(super) async fn until_replaced(
        &self,
        files: &Certificates,
        subscriptions: &AtomicUsize,
        current: &Mutex<Arc<str>>,
    ) {
        let sentinels = self.sentinels();
        let mut announcements: FuturesUnordered<_> =
            sentinels.iter().map(|sentinel| self.until_announced(sentinel, files, subscriptions, current)).collect();
        announcements.next().await;
    }

    async fn until_announced(
        &self,
        sentinel: &Client,
        files: &Certificates,
        subscriptions: &AtomicUsize,
        current: &Mutex<Arc<str>>,
    ) {
        let mut backoff = Backoff::new(SHORTEST_PAUSE);
        loop {
            let began = Instant::now();
            if let Some(connection) = self.subscribe(sentinel, files).await {
                let _counted = Counted::among(subscriptions);
                if self.hears_announcement(connection, current).await {
                    // The other Sentinels may learn of the new master later, so this one is asked first.
                    return self.put_first(&address_of(sentinel));
                }
            }
            backoff.stood(began.elapsed());
            sleep(backoff.next()).await;
        }
    }

    async fn subscribe(&self, sentinel: &Client, files: &Certificates) -> Option<PubSub> {
        let client = tls::renewed(sentinel.clone(), files).ok()?;
        let subscribe = async {
            let mut connection = client.get_async_pubsub().await.ok()?;
            match connection.subscribe("+switch-master").await {
                Ok(()) => Some(connection),
                Err(refusal) => {
                    if refusal.code() == Some("NOPERM") {
                        sleep(REFUSED).await;
                    }
                    None
                }
            }
        };
        timeout(REFUSED, subscribe).await.ok().flatten()
    }

    /// Listens until another master than the current one is announced; false if the connection has ended.
    async fn hears_announcement(&self, connection: PubSub, current: &Mutex<Arc<str>>) -> bool {
        let (mut sink, mut messages) = connection.split();
        loop {
            match timeout(QUIET, messages.next()).await {
                Ok(Some(message)) => {
                    let announcement: String = message.get_payload().unwrap_or_default();
                    if self.announced_in(&announcement).is_some_and(|address| *address != **current.lock()) {
                        return true;
                    }
                }
                Ok(None) => return false,
                // A firewall may have forgotten the connection.
                Err(_) if !matches!(timeout(PATIENCE, sink.ping::<Value>()).await, Ok(Ok(_))) => return false,
                Err(_) => {}
            }
        }
    }

    /// The address of this group's new master, if the announcement is of this group: its name, and the old and the new address.
    fn announced_in(&self, announcement: &str) -> Option<String> {
        let words: Vec<&str> = announcement.split(' ').collect();
        let [name, _, _, host, port] = words[..] else { return None };
        let master = (name == self.name).then(|| client_at(&format!("{host}:{port}"), &self.master).ok())??;
        Some(address_of(&master))
    }

    /// The master that one Sentinel names, and the address of that Sentinel.
    async fn named_by(&self, sentinel: &Client, files: &Certificates) -> Result<(Client, String), StoreError> {
        let mut asked = Node::open_soon(sentinel.clone(), files).await?;
        let by = asked.address.to_string();
        let question = cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name).take();
        let named = asked.ask(&question).await?.map_err(|refusal| of_sentinel(&by, &refusal))?;
        // The host and the port.
        let named: Option<(String, u16)> = redis::from_redis_value(named).unwrap_or_default();
        let Some((host, port)) = named else {
            return Err(failure::unsupported(format!(
                "the Sentinel at {by} watches no master called {:?}; name one of those that `SENTINEL MASTERS` lists",
                self.name
            )));
        };
        Ok((client_at(&format!("{host}:{port}"), &self.master)?, by))
    }

    /// A connection to the master that one Sentinel names, and the address of that Sentinel.
    async fn master_by(&self, sentinel: &Client, files: &Certificates) -> Result<(Node, String), StoreError> {
        let (named, by) = self.named_by(sentinel, files).await?;
        let mut master = Node::open_soon(named, files).await?;
        self.check_role(&mut master, &by).await?;
        Ok((master, by))
    }

    /// Checks that the server is a master. A Sentinel that missed the latest failover names the former master, and so does every Sentinel
    /// until they have agreed on a new one.
    async fn check_role(&self, master: &mut Node, by: &str) -> Result<(), StoreError> {
        let Ok(Value::Array(role)) = master.ask(&cmd("ROLE")).await? else {
            // The user may lack the right to ask. If the server is a replica, it still refuses the scripts.
            return Ok(());
        };
        match role.first() {
            Some(Value::BulkString(role)) if role != b"master" => Err(StoreError::transient(format!(
                "the Sentinel at {by} names Redis at {} as the master {:?}, which is a replica now; wait until the Sentinels \
                 have agreed on a new master",
                master.address, self.name
            ))),
            _ => Ok(()),
        }
    }
}

/// Counts one subscription until it is dropped.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn among(all: &'a AtomicUsize) -> Self {
        all.fetch_add(1, Relaxed);
        Self(all)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// The error of a Sentinel that refused to name the master.
fn of_sentinel(address: &str, refusal: &RedisError) -> StoreError {
    let detail = refusal.detail().unwrap_or_default();
    match refusal.code() {
        Some("ERR") if detail.starts_with("unknown command") => failure::unsupported(format!(
            "the server at {address} is no Sentinel; to connect to a single server, leave out -sentinel and the name of the master in \
             the URL; or name the port of a Sentinel"
        )),
        Some("NOAUTH" | "NOPERM") => failure::unsupported(format!(
            "the Sentinel at {address} refused to name the master: {detail}; give the Sentinels' own password by \
             ?sentinel_password=, or by the clients that you pass"
        )),
        _ => failure::of_refusal(address, refusal, Stage::Reading),
    }
}
