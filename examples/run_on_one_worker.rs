//! Three workers want to run the same job. One runs it; when that one stops, another goes on.
//!
//! `cargo run --example run_on_one_worker --features tokio`

use std::{sync::Mutex, time::Duration};

use futures::future::join_all;
use leasehold::{LeaseManager, executor::TokioExecutor, store::MemoryStore};

/// Waits for the job, does two rounds of it, and stops.
async fn worker(name: &str, store: MemoryStore, rounds: &Mutex<Vec<String>>) {
    let leases = LeaseManager::builder(store, TokioExecutor::new()).instance(name).build().expect("the defaults fit");
    let job = async |lease: &leasehold::LeaseGuard| {
        for round in 1..=2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            assert!(lease.is_valid(), "nobody else runs it meanwhile");
            println!("{name} runs round {round}, with token {}", lease.token());
            rounds.lock().expect("nobody panics").push(name.to_owned());
        }
    };
    leases.lock("job").run(job).await.expect("a store in memory works");
    leases.close().await;
}

#[tokio::main]
async fn main() {
    let (store, rounds) = (MemoryStore::new(), Mutex::default());
    join_all(["ada", "bob", "eve"].map(|name| worker(name, store.clone(), &rounds))).await;
    let rounds = rounds.into_inner().expect("nobody panics");
    assert!(rounds.len() == 6 && rounds.chunks(2).all(|pair| pair[0] == pair[1]), "one after the other: {rounds:?}");
}

#[test]
fn one_worker_runs_it_at_a_time() {
    main();
}
