//! What waiting costs, as the numbers grow: one context that waits for many keys, and many contexts that wait for one.

use std::time::Duration;

use cpu_time::ThreadTime;
use futures::future::{join, join_all};
use leasehold::{LeaseManager, store::MemoryStore};
use tokio::time::sleep;

use crate::{
    bare_context::{Context, store, turn},
    figures::{Figures, Target, micros, number},
    leases,
};

/// A bit longer than it takes until each context has sent a heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(6);

pub(crate) async fn measure(figures: &mut Figures) {
    awaited_keys(figures);
    // The contexts of earlier figures end their tasks meanwhile. Their CPU time would be counted.
    sleep(HEARTBEAT).await;
    for (count, target) in [(250, Target::None), (2_000, Target::AtMost(100.0))] {
        queue(figures, count, target).await;
    }
}

/// One context waits for many keys of another one: what it costs for each key to queue, and all that the context does from one heartbeat
/// to the next.
fn awaited_keys(figures: &mut Figures) {
    for count in [250, 1_000, 4_000] {
        let (mut records, mut holder, mut waiter) = (store(), Context::new(1), Context::new(2));
        let turns: Vec<_> = (0..count).map(|id| turn(id, &format!("key {id}"))).collect();
        turns.iter().cloned().for_each(|turn| holder.acquire(turn));
        holder.run(&mut records);
        let start = ThreadTime::now();
        turns.into_iter().for_each(|turn| waiter.acquire(turn));
        waiter.run(&mut records);
        let each = micros(start.elapsed()) / count as f64;
        figures.add(format!("queue_for_{count}_keys_each_us"), each, Target::None);
        // The holder falls silent meanwhile, but not for as long as its lease lasts.
        let interval = waiter.interval(&mut records) / count as f64;
        figures.add(format!("heartbeat_interval_{count}_awaited_keys_each_us"), interval, Target::None);
        assert_eq!(waiter.granted, 0, "the holder is taken for alive");
    }
}

/// Whole contexts queue for one key: what it costs to form the queue, to keep it for a heartbeat of all, and to serve it.
async fn queue(figures: &mut Figures, count: usize, forms: Target) {
    let store = MemoryStore::new();
    let first = leases::eager(store.clone());
    let others: Vec<_> = (0..count).map(|_| leases::eager(store.clone())).collect();
    let guard = first.lock("k").acquire().await.expect("it is free");
    let mut waiting: Vec<_> = others.iter().map(|leases| Box::pin(leases.lock("k").acquire())).collect();
    let start = ThreadTime::now();
    for request in &mut waiting {
        assert!(futures::poll!(request.as_mut()).is_pending(), "the key is held");
    }
    figures.add(format!("queue_of_{count}_contexts_forms_ms"), micros(start.elapsed()) / 1e3, forms);
    let (before, start) = (transactions(&others), ThreadTime::now());
    sleep(HEARTBEAT).await;
    let each = micros(start.elapsed()) / number(count);
    figures.add(format!("queue_of_{count}_contexts_kept_for_a_heartbeat_each_us"), each, Target::None);
    let kept = per_context(&others, before);
    figures.add(format!("queue_of_{count}_contexts_transactions_per_heartbeat"), kept, Target::None);
    let (before, start) = (transactions(&others), ThreadTime::now());
    let released = guard.release();
    let serve = async {
        for granted in join_all(waiting.into_iter().map(|request| async { request.await.map(drop) })).await {
            granted.expect("each gets its turn");
        }
    };
    join(async { released.await.map(drop).expect("a memory store releases") }, serve).await;
    figures.add(
        format!("queue_of_{count}_contexts_served_each_us"),
        micros(start.elapsed()) / number(count),
        Target::None,
    );
    let served = per_context(&others, before);
    figures.add(format!("queue_of_{count}_contexts_transactions_per_turn"), served, Target::None);
}

fn transactions(contexts: &[LeaseManager]) -> u64 {
    contexts.iter().map(|context| context.stats().transactions).sum()
}

/// How many transactions each context has sent since.
fn per_context(contexts: &[LeaseManager], before: u64) -> f64 {
    (transactions(contexts) - before) as f64 / number(contexts.len())
}
