//! What a heartbeat costs in etcd, beside a keep-alive of an etcd lease that as many keys are attached to.

use std::time::Duration;

use etcd_client::{Client, PutOptions, Txn, TxnOp};
use leasehold::{
    executor::process_clock,
    machine::{Acquire, Action, Batch, Beat, Key, Operation, RequestId, SessionId, SessionStep},
    store::{EtcdStore, Store},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    figures::{Figures, Target, micros, now, number, percentile},
    trial::LONG,
};

const BEATS: usize = 500;
/// etcd takes 128 operations in a transaction.
const AT_ONCE: usize = 50;
const LIMIT: Duration = Duration::from_secs(5);

/// Measures a heartbeat of a context that holds this many keys, and a keep-alive of a lease with this many.
pub(crate) async fn measure(figures: &mut Figures, url: &str, keys: usize) {
    let address = url.strip_prefix("etcd://").expect("it is the URL of a store");
    let store = EtcdStore::connect_with_prefix(url, &format!("beats-{keys}")).await.expect("the server runs");
    let session = SessionId(keys as u128);
    hold(&store, session, keys).await;
    let mut beat = 1;
    let cost = Cost::of(address, async || {
        beat += 1;
        let mut batch = Batch::new(session, Vec::new());
        batch.step = SessionStep::Beat(Beat { beat, ..first() });
        store.transact(batch, process_clock(), LIMIT).await.expect("the server runs");
    });
    cost.await.add(figures, &format!("etcd_heartbeat_{keys}_keys"));
    store.close().await;

    let mut client = Client::connect([address], None).await.expect("the server runs");
    let lease = client.lease_grant(i64::try_from(LONG.as_secs()).expect("it is short"), None).await;
    let lease = lease.expect("the server runs").id();
    attach(&mut client, lease, keys).await;
    let (mut keeper, mut answers) = client.lease_keep_alive(lease).await.expect("the server runs");
    let cost = Cost::of(address, async || {
        keeper.keep_alive().await.expect("the server runs");
        answers.message().await.expect("the server runs").expect("it answers");
    });
    cost.await.add(figures, &format!("etcd_keep_alive_{keys}_keys"));
    client.lease_revoke(lease).await.expect("the server runs");
}

fn first() -> Beat {
    Beat { beat: 1, lease_ms: 60_000, ..Beat::default() }
}

/// One session acquires all keys.
async fn hold(store: &EtcdStore, session: SessionId, keys: usize) {
    for begin in (0..keys).step_by(AT_ONCE) {
        let acquire = |key: usize| Operation {
            key: Key::new(&format!("k{key}")).expect("it is a key"),
            action: Action::Acquire(Acquire::new(RequestId(key as u64 + 1), 1)),
        };
        let mut batch = Batch::new(session, (begin..keys.min(begin + AT_ONCE)).map(acquire).collect());
        if begin == 0 {
            batch.step = SessionStep::Open { beat: first(), instance: String::new() };
        }
        store.transact(batch, process_clock(), LIMIT).await.expect("the server runs");
    }
}

/// Attaches keys, each as large as a record.
async fn attach(client: &mut Client, lease: i64, keys: usize) {
    for begin in (0..keys).step_by(AT_ONCE) {
        let put = |key: usize| {
            TxnOp::put(format!("hung {keys} {key}"), format!("{key:260}"), Some(PutOptions::new().with_lease(lease)))
        };
        let puts: Vec<_> = (begin..keys.min(begin + AT_ONCE)).map(put).collect();
        client.txn(Txn::new().and_then(puts)).await.expect("the server runs");
    }
}

/// What one heartbeat or keep-alive costs: the client's time, and the server's processor time, syncs of its disk and bytes of its log.
struct Cost {
    us: f64,
    server: [f64; 3],
}

impl Cost {
    async fn of(address: &str, mut beat: impl AsyncFnMut()) -> Self {
        let (before, mut samples) = (server(address).await, Vec::with_capacity(BEATS));
        for _ in 0..BEATS {
            let start = now();
            beat().await;
            samples.push(micros(start.elapsed()));
        }
        let after = server(address).await;
        let each = |part: usize| (after[part] - before[part]) / number(BEATS);
        Self { us: percentile(&mut samples, 50), server: [each(0) * 1e6, each(1), each(2)] }
    }

    fn add(self, figures: &mut Figures, what: &str) {
        let [cpu_us, syncs, bytes] = self.server;
        figures.add(format!("{what}_p50_us"), self.us, Target::None);
        figures.add(format!("{what}_server_cpu_us"), cpu_us, Target::None);
        figures.add(format!("{what}_disk_syncs"), syncs, Target::None);
        figures.add(format!("{what}_log_bytes"), bytes, Target::None);
    }
}

/// The server's processor time in seconds, the syncs of its disk, and the bytes of its log.
pub(crate) async fn server(address: &str) -> [f64; 3] {
    let told = metrics(address).await;
    let names = [
        "process_cpu_seconds_total ",
        "etcd_disk_wal_fsync_duration_seconds_count ",
        "etcd_disk_wal_write_bytes_total ",
    ];
    names.map(|name| {
        let mut values = told.lines().filter_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        values.next().unwrap_or_default()
    })
}

/// The server's own metrics.
pub(crate) async fn metrics(address: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("the server runs");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.expect("the server runs");
    let mut told = String::new();
    stream.read_to_string(&mut told).await.expect("the server runs");
    told
}
