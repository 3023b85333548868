//! More at one moment than one transaction of etcd takes.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    time::Duration,
};

use futures::future::join_all;
use leasehold::{
    LeaseGuard, LeaseManager,
    executor::process_clock,
    machine::{Acquire, Action, Batch, Beat, Key, Operation, Outcome, RequestId, SessionId, SessionStep},
    store::{EtcdStore, Store},
};
use tokio::runtime::Runtime;

use crate::{
    connect,
    faults::{BUSY, ask},
    manager, server,
};

const PATIENCE: Duration = Duration::from_secs(60);

async fn acquire_at_once(leases: &LeaseManager, many: usize) -> Vec<LeaseGuard> {
    let keys: Vec<_> = (0..many).map(|number| format!("k{number}")).collect();
    let asked = join_all(keys.iter().map(|key| leases.lock(key).timeout(PATIENCE).acquire())).await;
    asked.into_iter().map(Result::unwrap).collect()
}

/// By two contexts, so that each key has another session to look at, too.
#[test]
fn a_thousand_keys_asked_for_at_one_moment_are_granted_and_handed_over() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let one = manager(&address, "division").await.build().unwrap();
        let two = manager(&address, "division").await.build().unwrap();
        let guards = acquire_at_once(&one, 1_000).await;
        assert!(guards.iter().all(LeaseGuard::is_valid));
        let (heirs, ()) = futures::join!(acquire_at_once(&two, 1_000), one.close());
        assert!(heirs.iter().all(LeaseGuard::is_valid) && !guards.iter().any(LeaseGuard::is_valid));
        let transactions = (one.stats().transactions, two.stats().transactions);
        assert!(transactions.0 < 100 && transactions.1 < 100, "{transactions:?} transactions");
        two.close().await;
    });
}

/// This many contexts wait for one key. etcd takes 128 rows in a transaction.
const WAITERS: u64 = 250;

fn at(key: &str, action: Action) -> Operation {
    Operation { key: Key::new(key).unwrap(), action }
}

/// A heartbeat writes the same number into the session's row as into the record's queue entry.
fn queue_anew(session: u128, number: u64) -> Batch {
    let mut acquire = Acquire::new(RequestId(number), number);
    (acquire.wait, acquire.info) = (true, number.to_string());
    let mut batch = Batch::new(SessionId(session), vec![at("k", Action::Acquire(acquire))]);
    let beat = Beat { beat: number, lease_ms: 1_000_000 + number, ..Beat::default() };
    batch.step = if number == 1 {
        SessionStep::Open { beat, instance: String::new() }
    } else {
        let withdraw = Action::Withdraw { request: RequestId(number - 1) };
        batch.operations.insert(0, at("k", withdraw));
        SessionStep::Beat(beat)
    };
    batch
}

/// One holds the key, the others wait.
async fn fill_queue(store: &EtcdStore) {
    for session in 1..=u128::from(WAITERS) + 1 {
        let reply = store.transact(queue_anew(session, 1), process_clock(), BUSY).await.unwrap();
        assert_eq!(matches!(reply.answers[0].outcome, Outcome::Granted(_)), session == 1);
    }
}

#[test]
fn a_queue_of_more_rows_than_a_transaction_takes_is_seen_whole_and_at_one_moment() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let store = connect(&address, "long-queue").await;
        fill_queue(&store).await;
        let onlooker = manager(&address, "long-queue").await.build().unwrap();
        let (is_over, written) = (AtomicBool::new(false), AtomicU64::new(1));
        // The sessions with the largest ids are read last.
        let last = u128::from(WAITERS) + 1;
        let write = async {
            while !is_over.load(SeqCst) {
                let number = written.load(SeqCst) + 1;
                store.transact(queue_anew(last, number), process_clock(), BUSY).await.unwrap();
                written.store(number, SeqCst);
            }
        };
        let look = async {
            while written.load(SeqCst) < 100 {
                let status = onlooker.status("k").await.unwrap();
                assert_eq!((status.holders.len(), status.queue.len() as u64), (1, WAITERS));
                for waiter in status.queue {
                    let lease = Duration::from_millis(1_000_000 + waiter.info.parse::<u64>().unwrap());
                    assert_eq!(waiter.lease, lease, "its place and its session were read at different moments");
                }
            }
            is_over.store(true, SeqCst);
        };
        futures::join!(write, look);
        onlooker.close().await;
    });
}

#[test]
fn a_heartbeat_that_goes_with_a_look_at_a_long_queue_is_written() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let store = connect(&address, "look-and-beat").await;
        fill_queue(&store).await;
        for number in 2..5 {
            let mut batch = Batch::new(SessionId(1), vec![at("k", Action::Inspect)]);
            batch.step = SessionStep::Beat(Beat { beat: number, lease_ms: 2_000_000 + number, ..Beat::default() });
            // A fresh handle remembers nothing.
            let other = connect(&address, "look-and-beat").await;
            for handle in [&store, &other] {
                handle.transact(batch.clone(), process_clock(), BUSY).await.unwrap();
            }
            let onlooker = manager(&address, "look-and-beat").await.build().unwrap();
            let status = onlooker.status("k").await.unwrap();
            assert_eq!(status.holders[0].lease, Duration::from_millis(2_000_000 + number));
            assert_eq!(status.queue.len() as u64, WAITERS);
        }
    });
}

#[test]
fn a_session_that_opens_with_many_keys_is_told_of_others() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        connect(&address, "many-peers").await.transact(ask(90), process_clock(), BUSY).await.unwrap();
        let mut batch = ask(91);
        let acquire = |number: u64| Action::Acquire(Acquire::new(RequestId(number), 1));
        batch.operations = (1..=100).map(|number| at(&format!("k{number}"), acquire(number))).collect();
        let reply = connect(&address, "many-peers").await.transact(batch, process_clock(), BUSY).await.unwrap();
        let told: Vec<_> = reply.peers.iter().map(|peer| peer.session).collect();
        assert_eq!(told, [SessionId(90)]);
        assert!(reply.answers.iter().all(|answer| matches!(answer.outcome, Outcome::Granted(_))));
    });
}
