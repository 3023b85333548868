//! Real processes that share a server.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use etcd_client::{Client, GetOptions, TxnOp};
use leasehold::{FenceError, LeaseGuard, LeaseManager, executor::TokioExecutor, store::EtcdStore};
use tokio::runtime::Runtime;

use crate::{
    Scratch, connect,
    contract::client,
    fence::{self, Written},
    other::kills_more,
    prefix, server, start, told,
};

/// The shortest there is: others wait this long for whoever is killed while it holds.
const LEASE: Duration = Duration::from_secs(1);
/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);

/// The other process: counts under a fence, as fast as it can, until it is killed.
pub(crate) fn count(address: &str, prefix: &str) {
    // It does not outlive the first process, whatever that one died of.
    std::thread::spawn(|| {
        told().for_each(drop);
        std::process::exit(0);
    });
    Runtime::new().unwrap().block_on(async {
        let store = Arc::new(connect(address, prefix).await);
        let leases = LeaseManager::builder(Arc::clone(&store), TokioExecutor::new()).lease(LEASE).build().unwrap();
        let mut etcd = client(address).await;
        loop {
            // Whoever was stopped for long by a busy machine asks again.
            let Ok(guard) = leases.lock("k").timeout(BUSY).acquire().await else { continue };
            for step in 0..3 {
                count_once(&guard, step, (&store, &mut etcd), prefix).await;
            }
        }
    });
}

async fn count_once(guard: &LeaseGuard, step: u64, (store, etcd): (&EtcdStore, &mut Client), prefix: &str) {
    let last = format!("{prefix}-last");
    // Read outside of the transaction: only the lease makes that safe.
    let found = etcd.get(last.as_str(), None).await.unwrap();
    let count: u64 = found.kvs().first().map_or(0, |found| found.value_str().unwrap().parse().unwrap());
    let told = format!("{} {step}", guard.token().as_u64());
    let counted = TxnOp::put(format!("{prefix}-counts/{count:08}"), told, None);
    let writes = [counted, TxnOp::put(last, (count + 1).to_string(), None)];
    if let Written::No(why) = fence::put(guard, store, etcd, writes).await {
        assert!(matches!(why, FenceError::Lost { .. }), "{why}");
    }
}

/// Every count once, although processes are killed at any moment; and each holder's token is larger than those of all holders before it.
#[test]
fn a_fenced_counter_is_exact_though_processes_are_killed() {
    let Some(address) = server::shared() else { return };
    let scratch = Scratch::new();
    let start = || start("counter", &scratch, &address);
    let (runtime, last) = (Runtime::new().unwrap(), format!("{}-last", prefix(&scratch.0)));
    let mut etcd = runtime.block_on(client(&address));
    let mut counted = || {
        let found = runtime.block_on(etcd.get(last.as_str(), None)).unwrap();
        found.kvs().first().map_or(0, |found| found.value_str().unwrap().parse::<u64>().unwrap())
    };
    let (began, mut counters, mut kills) = (Instant::now(), [start(), start(), start()], 0_usize);
    while kills_more(began, || kills > 4) {
        // Somewhere in their work, after they got on a bit since the last death.
        let (goal, since) = (counted() + 5, Instant::now());
        while counted() < goal {
            assert!(since.elapsed() < BUSY, "they do not get on after {kills} deaths");
        }
        std::thread::sleep(Duration::from_micros(kills as u64 * 7_919 % 20_000));
        let unlucky = &mut counters[kills % 3];
        unlucky.kill();
        *unlucky = start();
        kills += 1;
    }
    drop(counters);
    runtime.block_on(async {
        let name = format!("{}-counts/", prefix(&scratch.0));
        let found = etcd.get(name.as_str(), Some(GetOptions::new().with_prefix())).await.unwrap();
        // A second holder of the same token would begin at the first step again.
        let mut last = (0, 0);
        for (index, count) in found.kvs().iter().enumerate() {
            assert_eq!(count.key_str().unwrap(), format!("{name}{index:08}"), "a count is missing");
            assert_eq!(count.version(), 1, "a count is there twice");
            let (token, step) = count.value_str().unwrap().split_once(' ').unwrap();
            let token_and_step: (u64, u64) = (token.parse().unwrap(), step.parse().unwrap());
            assert!(token_and_step > last, "{token_and_step:?}, a token and a step, came after {last:?}");
            last = token_and_step;
        }
        let counts = found.kvs().len();
        println!("{counts} counts, {kills} kills, last token {}", last.0);
        assert!(counts > 20 && kills > 4, "{counts} counts and {kills} kills prove little");
    });
}
