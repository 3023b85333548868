//! A store that takes its time, and contexts that have much to do: everybody is still served.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use futures::future::{Either, select};
use leasehold::{
    LeaseManager, LeaseManagerBuilder,
    executor::{Executor, SimExecutor},
    machine::StoreClock,
    store::MemoryStore,
};

use crate::support::{
    doubles::{Deaf, SlowStore},
    world::{Dice, HEARTBEAT, LEASE, ms, secs},
};

const BUSY_WORKERS: u64 = 20;

/// A context whose store takes this long each way.
fn slow(memory: &MemoryStore, context: &SimExecutor, least_ms: u64, most_ms: u64) -> LeaseManagerBuilder {
    let store = SlowStore::new(memory.clone(), context.clone(), least_ms..=most_ms);
    LeaseManager::builder(store, context.clone())
}

/// Somebody who takes a key over and over, for less than `work_ms` each time.
fn spawn_worker(leases: &LeaseManager, context: &SimExecutor, key: String, work_ms: u64) {
    let (leases, executor) = (leases.clone(), context.clone());
    context.spawn(Box::pin(async move {
        loop {
            let guard = leases.lock(&key).acquire().await.unwrap();
            executor.sleep(ms(Dice(&executor).below(work_ms))).await;
            guard.release().await.unwrap();
        }
    }));
}

fn keep_busy(leases: &LeaseManager, context: &SimExecutor) {
    for worker in 0..BUSY_WORKERS {
        spawn_worker(leases, context, format!("k{worker}"), 8);
    }
}

#[test]
fn traffic_does_not_starve_the_heartbeat() {
    let sim = SimExecutor::new(1);
    sim.block_on(async {
        let context = sim.context();
        let memory = MemoryStore::with_clock(StoreClock::Observed);
        let leases = slow(&memory, &context, 1, 4).lease(secs(1)).build().unwrap();
        let guard = leases.lock("kept").acquire().await.unwrap();
        keep_busy(&leases, &context);
        for step in 0..10_000 {
            sim.pass(ms(1)).await;
            assert!(guard.is_valid(), "after {step} ms a lease in a healthy store is in doubt");
        }
    });
}

/// A heartbeat, and the transaction before it, may both take all the time that they have.
#[test]
fn answers_just_within_the_time_limit_lose_nothing() {
    let sim = SimExecutor::new(1);
    sim.block_on(async {
        let context = sim.context();
        let memory = MemoryStore::with_clock(StoreClock::Observed);
        let leases = slow(&memory, &context, 2_350, 2_450).lease(LEASE).heartbeat(HEARTBEAT).build().unwrap();
        let guard = leases.lock("kept").acquire().await.unwrap();
        spawn_worker(&leases, &context, "other".into(), 3_000);
        for step in 0..6_000 {
            sim.pass(ms(100)).await;
            assert!(guard.is_valid(), "after {} ms", step * 100);
        }
    });
}

#[test]
fn a_store_slower_than_the_heartbeat_serves_everybody() {
    for clock in [StoreClock::Trusted, StoreClock::Observed] {
        for (least_ms, most_ms) in [(20, 40), (50, 90), (100, 140), (150, 190)] {
            let sim = SimExecutor::new(5);
            let memory = MemoryStore::with_clock(clock);
            let turns: Vec<_> = (0..5).map(|_| impatient(&sim, &memory, least_ms, most_ms)).collect();
            sim.block_on(sim.pass(secs(100)));
            let turns: Vec<_> = turns.iter().map(|turns| turns.load(Ordering::Relaxed)).collect();
            assert!(turns.iter().all(|turns| *turns > 6), "{clock:?}, {least_ms} to {most_ms} ms: {turns:?}");
        }
    }
}

/// A context that asks anew whatever it is told; how many turns it had.
fn impatient(sim: &SimExecutor, memory: &MemoryStore, least_ms: u64, most_ms: u64) -> Arc<AtomicU64> {
    let (context, turns) = (sim.context(), Arc::new(AtomicU64::new(0)));
    let builder = slow(memory, &context, least_ms, most_ms).lease(secs(2)).heartbeat(ms(100));
    let leases = builder.store_timeout(ms(400)).build().unwrap();
    let (executor, counted) = (context.clone(), turns.clone());
    context.spawn(Box::pin(async move {
        loop {
            let Ok(guard) = leases.lock("k").acquire().await else { continue };
            counted.fetch_add(1, Ordering::Relaxed);
            executor.sleep(ms(5)).await;
            // Whether it was lost meanwhile is not the question here.
            let _ = guard.release().await;
        }
    }));
    turns
}

/// However eager a busy context is, it hands over when another one waits.
#[test]
fn a_rival_waits_for_one_tenure() {
    let worst_ms = Cell::new(0);
    for seed in 0..12 {
        let sim = SimExecutor::new(seed);
        sim.block_on(async {
            let memory = MemoryStore::with_clock(StoreClock::Observed);
            let (busy, other) = (sim.context(), sim.context());
            let leases = slow(&memory, &busy, 1, 10).lease(LEASE).build().unwrap();
            (0..3).for_each(|_| spawn_worker(&leases, &busy, "k".into(), 2));
            let rival = slow(&memory, &other, 1, 10).lease(LEASE).build().unwrap();
            for _ in 0..100 {
                sim.pass(ms(Dice(&other).below(50))).await;
                let start = sim.now().monotonic;
                let guard = rival.lock("k").acquire().await.unwrap();
                worst_ms.set(worst_ms.get().max(sim.now().monotonic.since(start)));
                guard.release().await.unwrap();
            }
        });
    }
    assert!(worst_ms.get() < 300, "a rival waited for {} ms", worst_ms.get());
}

/// Without signals a waiter learns of its turn by asking, however much else its context does.
#[test]
fn a_busy_waiter_without_signals_is_served_within_two_heartbeats() {
    for seed in 0..4 {
        let sim = SimExecutor::new(seed);
        sim.block_on(async {
            let memory = MemoryStore::with_clock(StoreClock::Observed);
            let build = |context| slow(&memory, context, 1, 4).signals(Deaf).lease(secs(1)).build().unwrap();
            let (busy, other) = (sim.context(), sim.context());
            let (leases, other) = (build(&busy), build(&other));
            keep_busy(&leases, &busy);
            for _ in 0..10 {
                let held = other.lock("k").acquire().await.unwrap();
                let mut wait = Box::pin(leases.lock("k").acquire());
                assert!(futures::poll!(wait.as_mut()).is_pending());
                sim.pass(ms(50)).await;
                held.release().await.unwrap();
                // The heartbeat comes every 250 ms.
                let served = select(wait, Box::pin(sim.pass(ms(600)))).await;
                let Either::Left((guard, _)) = served else { panic!("it is free for 600 ms, and nobody has it") };
                guard.unwrap().release().await.unwrap();
            }
        });
    }
}
