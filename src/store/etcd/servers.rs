//! The servers of a cluster. One of them is asked, and the next one after it failed.

use core::time::Duration;
use std::{
    format,
    string::String,
    sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed},
    vec,
    vec::Vec,
};

use etcd_client::{Client, ConnectOptions, Error, GetOptions, ResponseHeader, Txn, TxnResponse};
use tokio::time::{Instant, timeout_at};

use super::{
    address::{Address, refused},
    failure::{Failure, Load, SILENCE},
    tls,
};
use crate::executor::Mutex;
use crate::machine::StoreError;

/// How long to wait for a connection.
const CONNECTING: Duration = Duration::from_secs(2);
/// etcd closes a connection on which pings come more often than every 5 s.
const PING: Duration = Duration::from_secs(10);
/// A ping that is not answered for this long ends the connection.
const PONG: Duration = Duration::from_secs(5);
/// A transaction has 128 rows, and a row up to 1.5 MiB, unless etcd was told otherwise.
pub(super) const LONGEST_ANSWER: usize = 192 * 1024 * 1024;

pub(super) struct Servers {
    address: Address,
    /// Asked for by whoever connects: it must be allowed to be read.
    probe: Vec<u8>,
    /// With the time at which each was connected.
    clients: Mutex<Vec<Option<(Instant, Client)>>>,
    current: AtomicUsize,
    cluster: AtomicU64,
    revision: AtomicI64,
    /// Whether each connection ends with the call that opened it.
    closed: AtomicBool,
    /// Whether the latest call had too little time.
    is_late: AtomicBool,
    /// The error by which each server has refused this program for good, if it has since the program last connected to any of them.
    refusals: Mutex<Vec<Option<StoreError>>>,
}

impl Servers {
    /// Connects to the first server that answers.
    pub(super) async fn connect(address: Address, probe: Vec<u8>, deadline: Instant) -> Result<Self, StoreError> {
        let many = address.hosts.len();
        let servers = Self {
            address,
            probe,
            clients: Mutex::new(vec![None; many]),
            current: AtomicUsize::new(0),
            cluster: AtomicU64::new(0),
            revision: AtomicI64::new(0),
            closed: AtomicBool::new(false),
            is_late: AtomicBool::new(false),
            refusals: Mutex::new(vec![None; many]),
        };
        let mut failure = None;
        for _ in 0..many {
            match servers.client(deadline).await {
                Ok(_) => return Ok(servers),
                // A lasting refusal by one server is reported, rather than that another one is down.
                Err(next) => failure = failure.filter(|known: &Failure| !known.error.retry).or(Some(next)),
            }
        }
        let encrypts = servers.address.tls.is_some();
        let told = failure.map(|failure| failure.of_connecting(encrypts));
        Err(told.unwrap_or_else(|| refused("no server of etcd is named")))
    }

    /// The id of the cluster.
    pub(super) fn cluster(&self) -> u64 {
        self.cluster.load(Relaxed)
    }

    /// The newest revision that any answer named.
    pub(super) fn revision(&self) -> i64 {
        self.revision.load(Relaxed)
    }

    pub(super) fn many(&self) -> usize {
        self.address.hosts.len()
    }

    /// Closes the connections. A later call opens one that ends with the call.
    pub(super) fn close(&self) {
        self.closed.store(true, Relaxed);
        self.forget();
    }

    /// Forgets the connections. The next call opens a new one, and so gets a new token.
    pub(super) fn forget(&self) {
        self.clients.lock().fill(None);
    }

    /// The server whose turn it is, and a client of it.
    async fn client(&self, deadline: Instant) -> Result<(usize, Client), Failure> {
        let at = self.current.load(Relaxed) % self.many();
        let known = self.clients.lock()[at].clone();
        if let Some((_, client)) = known {
            return Ok((at, client));
        }
        match self.open(at, deadline).await {
            Ok(client) => {
                // Under the lock that `close` takes, so that it leaves no client behind.
                let mut clients = self.clients.lock();
                clients[at] = (!self.closed.load(Relaxed)).then(|| (Instant::now(), client.clone()));
                drop(clients);
                self.refusals.lock().fill(None);
                Ok((at, client))
            }
            Err(failure) => {
                self.refusals.lock()[at] = (!failure.error.retry).then(|| failure.error.clone());
                self.turn_from(at);
                // It only asked to read.
                Err(Failure { in_doubt: false, ..failure })
            }
        }
    }

    async fn open(&self, at: usize, deadline: Instant) -> Result<Client, Failure> {
        let (client, header) = self.dial(at, deadline).await?;
        let found = header.as_ref().map_or(0, ResponseHeader::cluster_id);
        let known = self.cluster.compare_exchange(0, found, Relaxed, Relaxed).map_or_else(|known| known, |_| found);
        if known != found {
            self.follow(at, found, deadline).await?;
        }
        self.note(header.as_ref());
        Ok(client)
    }

    /// Connects to a server, and asks it which cluster it belongs to.
    async fn dial(&self, at: usize, deadline: Instant) -> Result<(Client, Option<ResponseHeader>), Failure> {
        let host = &self.address.hosts[at];
        let deadline = deadline.min(Instant::now() + CONNECTING);
        let options = self.options()?;
        let dialled = timeout_at(deadline, async {
            let mut client = Client::connect([host], Some(options)).await?;
            let options = GetOptions::new().with_count_only();
            let mut found = client.get(self.probe.clone(), Some(options)).await?;
            Ok((client, found.take_header()))
        });
        let dialled = dialled.await.map_err(|_| Failure::late(format!("{host} {SILENCE}")))?;
        dialled.map_err(|error| named(host, Failure::of(&error, Load::default())))
    }

    /// Changes to another cluster if all servers belong to it: then it has replaced the known one, whose leases are lost. If only some
    /// servers do, two clusters may be in use, and each would grant the same lease.
    async fn follow(&self, at: usize, found: u64, deadline: Instant) -> Result<(), Failure> {
        for other in (0..self.many()).filter(|other| *other != at) {
            let its = self.dial(other, deadline).await.ok().and_then(|(_, header)| header);
            if its.is_none_or(|header| header.cluster_id() != found) {
                let host = &self.address.hosts[at];
                return Err(Failure::certain(refused(&format!(
                    "{host} belongs to another etcd cluster than the servers before it; name servers of one cluster. A cluster that \
                     replaces another is used once all named servers answer and belong to it"
                ))));
            }
        }
        self.forget();
        self.cluster.store(found, Relaxed);
        Ok(())
    }

    fn options(&self) -> Result<ConnectOptions, Failure> {
        // A server without a leader cannot know whether what it says is still true.
        let options = ConnectOptions::new().with_connect_timeout(CONNECTING).with_require_leader(true);
        let options = options.with_keep_alive(PING, PONG).with_keep_alive_while_idle(true);
        let options = match &self.address.tls {
            Some(tls) => tls::encrypt(options, tls)?,
            None => options,
        };
        Ok(match &self.address.user {
            Some((name, password)) => options.with_user(name, password),
            None => options,
        })
    }

    fn note(&self, header: Option<&ResponseHeader>) {
        self.revision.fetch_max(header.map_or(0, ResponseHeader::revision), Relaxed);
    }

    /// Turns to the next server, because this one failed.
    fn turn_from(&self, at: usize) {
        let (current, next) = (self.current.load(Relaxed), (at + 1) % self.many());
        if current % self.many() == at {
            // It fails if somebody else turned.
            let _ = self.current.compare_exchange(current, next, Relaxed, Relaxed);
        }
    }

    /// If a server has refused for good, the error says so, rather than that another server is down. But unless all servers have refused,
    /// the error is worth a retry: another server may be back soon, and a lasting error would cost the leases.
    fn while_others_may_answer(&self, failure: Failure) -> Failure {
        let refusals = self.refusals.lock();
        let Some(refusal) = refusals.iter().flatten().next() else { return failure };
        if refusals.iter().all(Option::is_some) {
            return failure;
        }
        let message = refusal.message.clone();
        let error =
            if failure.error.retry { StoreError { message, ..failure.error } } else { StoreError::transient(message) };
        Failure { error, ..failure }
    }

    /// Makes a call, once.
    pub(super) async fn ask<T, F>(
        &self,
        load: Load,
        deadline: Instant,
        call: impl FnOnce(Client) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let connected = self.client(deadline).await;
        let (at, client) = connected.map_err(|failure| self.while_others_may_answer(failure))?;
        let began = Instant::now();
        let given = deadline.saturating_duration_since(began);
        let answered = timeout_at(deadline, call(client)).await;
        // A server that is far away may need the time that another connection would cost. The connection is dropped if the server was
        // silent twice, or for as long as it may take to connect: a firewall in between may have forgotten the connection.
        let was_late = self.is_late.swap(answered.is_err(), Relaxed);
        let (failure, is_left) = match answered {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => (Failure::of(&error, load), true),
            Err(_) => {
                (Failure::late("etcd did not answer in time"), was_late || given >= CONNECTING || self.many() > 1)
            }
        };
        if failure.error.retry && is_left {
            // Nothing of an old connection is used again: its token may be out of date as well. A connection that another call has opened
            // meanwhile is kept.
            let dropped = self.clients.lock()[at].take_if(|(connected_at, _)| *connected_at <= began);
            if dropped.is_some() {
                self.turn_from(at);
            }
        }
        Err(named(&self.address.hosts[at], failure))
    }

    /// Runs a transaction, once. The client sends it once, too: it repeats only what was refused for an old token, and only if
    /// it is told to.
    pub(super) async fn txn(&self, txn: Txn, load: Load, deadline: Instant) -> Result<TxnResponse, Failure> {
        let asked = self.ask(load, deadline, |client| async move {
            client.kv_client().max_decoding_message_size(LONGEST_ANSWER).txn(txn).await
        });
        let answer = asked.await?;
        self.note(answer.header());
        Ok(answer)
    }
}

fn named(host: &str, failure: Failure) -> Failure {
    let message: String = format!("{host}: {}", failure.error.message);
    Failure { error: StoreError { message, ..failure.error }, ..failure }
}
