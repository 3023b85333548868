//! 1,000 keys that are held, and nobody wants.

use std::time::Duration;

use cpu_time::ProcessTime;
use tokio::time::sleep;

use crate::{
    counted::CountedStore,
    figures::{Figures, Target, micros, now, number},
    leases,
    matrix::Matrix,
    memory::Meter,
};

const KEYS: usize = 1_000;

pub(crate) async fn measure(mut figures: Figures) -> Figures {
    over_leases(&mut figures).await;
    over_matrix(&mut figures).await;
    figures
}

async fn over_leases(figures: &mut Figures) {
    let store = CountedStore::default();
    let context = leases::context(store.clone());
    let mut guards = Vec::new();
    for key in 0..KEYS {
        guards.push(context.lock(&format!("key {key}")).acquire().await.expect("a memory store grants"));
    }
    let (transactions, earlier) = (store.transactions(), store.heartbeats());
    let (start, cpu, meter) = (now(), ProcessTime::now(), Meter::start());
    // Two heartbeats and a bit.
    sleep(Duration::from_secs(11)).await;
    let (allocations, cpu, seconds) = (meter.allocations(), micros(cpu.elapsed()), start.elapsed().as_secs_f64());
    let transactions = number(store.transactions() - transactions);
    let heartbeats = number(store.heartbeats() - earlier);
    figures.add("idle_1000_keys_transactions_per_heartbeat", transactions / heartbeats, Target::AtMost(1.0));
    figures.add("idle_1000_keys_transactions_per_s", transactions / seconds, Target::None);
    figures.add("idle_1000_keys_cpu_us_per_s", cpu / seconds, Target::None);
    figures.add("heartbeat_1000_keys_cpu_us", cpu / heartbeats, Target::None);
    figures.add("heartbeat_1000_keys_allocations", allocations / heartbeats, Target::None);
}

async fn over_matrix(figures: &mut Figures) {
    let store = Matrix::default();
    let locks: Vec<_> = (0..KEYS).map(|key| store.lock(&format!("key {key}"), 0)).collect();
    let mut guards = Vec::new();
    for lock in &locks {
        guards.push(lock.try_lock_once().await);
    }
    let (start, cpu, writes) = (now(), ProcessTime::now(), store.writes());
    sleep(Duration::from_secs(3)).await;
    let (cpu, seconds) = (micros(cpu.elapsed()), start.elapsed().as_secs_f64());
    figures.add("matrix_idle_1000_keys_writes_per_s", number(store.writes() - writes) / seconds, Target::None);
    figures.add("matrix_idle_1000_keys_cpu_us_per_s", cpu / seconds, Target::None);
}
