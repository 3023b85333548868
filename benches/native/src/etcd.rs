//! Leases in etcd, beside two transactions of a client and etcd's own lock service.

use std::time::Duration;

use etcd_client::{Client, Compare, CompareOp, GetOptions, LockOptions, Txn, TxnOp, WatchStream};
use leasehold::machine::SessionId;

use crate::{
    figures::{Figures, Target},
    keep_alive,
    port::free_port,
    servers,
    trial::{Engine, LONG, Place},
};

pub(crate) struct Etcd {
    client: Client,
    /// The server serves its metrics there, too.
    address: String,
    /// The revision of the row.
    revision: i64,
    heard: Option<WatchStream>,
    lease: i64,
    locked: Vec<u8>,
}

impl Engine for Etcd {
    const NAME: &'static str = "etcd";
    const USUAL: &'static str = "etcd_lock_service_lock_unlock";
    const USUAL_HANDS_OFF: bool = true;
    const NEWS: &'static str = "watch";
    const MORTAL: Duration = Duration::from_secs(1);
    const DEATHS: usize = 5;
    /// The silence that the death of a holder is known by is 1.1 s here.
    const TAKE_OVER: Target = Target::None;

    async fn start() -> Option<Place> {
        if !servers::is_installed("etcd") {
            return None;
        }
        let (folder, port) = (servers::folder::<Self>(), free_port());
        let (client, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{}", free_port()));
        let cluster = format!("bench={peer}");
        let addresses = ["--listen-client-urls", "--advertise-client-urls"].map(|flag| [flag, &client]).concat();
        let peers = ["--listen-peer-urls", "--initial-advertise-peer-urls"].map(|flag| [flag, &peer]).concat();
        let name = ["--name", "bench", "--initial-cluster", &cluster, "--logger", "zap", "--log-level", "error"];
        let command = [&["etcd", "--data-dir", "data"], &name[..], &addresses, &peers].concat();
        Some(servers::run(&folder, "TERM", &command, format!("etcd://127.0.0.1:{port}")).await)
    }

    async fn connect(url: &str) -> Self {
        let address = url.strip_prefix("etcd://").expect("it is the URL of a store");
        let mut client = Client::connect([address], None).await.expect("the server runs");
        let found = client.get("raw", None).await.expect("the server runs");
        let revision = found.kvs().first().map_or(0, etcd_client::KeyValue::mod_revision);
        let lease = client.lease_grant(i64::try_from(LONG.as_secs()).expect("it is short"), None).await;
        let lease = lease.expect("the server runs").id();
        Self { client, address: address.to_owned(), revision, heard: None, lease, locked: Vec::new() }
    }

    async fn version(&mut self) -> String {
        self.client.status().await.expect("the server runs").version().into()
    }

    /// The row is read where it has changed: the writer remembers it.
    async fn transact(&mut self, turn: usize) {
        let unchanged = Compare::mod_revision("raw", CompareOp::Equal, self.revision);
        let put = TxnOp::put("raw", format!("{turn:300}"), None);
        let txn = Txn::new().when([unchanged]).and_then([put]).or_else([TxnOp::get("raw", None)]);
        let answer = self.client.txn(txn).await.expect("the server runs");
        assert!(answer.succeeded(), "nobody else writes");
        self.revision = answer.header().expect("each answer has one").revision();
    }

    /// Those who watch the row are notified by its change.
    async fn notify(&mut self) {}

    async fn listen(&mut self) {
        let mut heard = self.client.watch("raw", None).await.expect("the server runs");
        // The first message says that the watch stands.
        heard.message().await.expect("the server runs");
        self.heard = Some(heard);
    }

    async fn hear(&mut self) {
        self.heard.as_mut().expect("it listens").message().await.expect("the server runs");
    }

    async fn lock(&mut self) {
        let options = LockOptions::new().with_lease(self.lease);
        let locked = self.client.lock("usual", Some(options)).await.expect("the server runs");
        self.locked = locked.key().to_vec();
    }

    async fn unlock(&mut self) {
        self.client.unlock(self.locked.as_slice()).await.expect("the server runs");
    }

    /// Each transaction that writes makes a revision.
    async fn transactions(&mut self) -> usize {
        let found = self.client.get("raw", None).await.expect("the server runs");
        let revision = found.header().expect("each answer has one").revision();
        usize::try_from(revision).expect("it counts from 1")
    }

    /// Each round trip of the store is one request to etcd's service `KV`.
    async fn round_trips(&mut self) -> Option<usize> {
        let told = keep_alive::metrics(&self.address).await;
        let answered = |line: &str| {
            let line = line.strip_prefix("grpc_server_handled_total")?;
            let (_, count) = line.split_once("grpc_service=\"etcdserverpb.KV\"")?.1.rsplit_once(' ')?;
            count.parse::<usize>().ok()
        };
        Some(told.lines().filter_map(answered).sum())
    }

    async fn logged(&mut self) -> f64 {
        let [_, _, bytes] = keep_alive::server(&self.address).await;
        bytes
    }

    async fn heartbeats(figures: &mut Figures, url: &str) {
        for keys in [1, 100, 10_000] {
            keep_alive::measure(figures, url, keys).await;
        }
    }

    async fn row(&mut self, session: SessionId) -> String {
        let row = format!("leasehold/session/{session}");
        let found = self.client.get(row, None).await.expect("the server runs");
        found.kvs().first().expect("there is a session").value_str().expect("it is text").to_owned()
    }

    async fn records(&mut self) -> usize {
        let all = GetOptions::new().with_prefix().with_count_only();
        let found = self.client.get("leasehold/record/", Some(all)).await.expect("the server runs");
        usize::try_from(found.count()).expect("it is a count")
    }
}
