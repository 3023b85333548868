//! A store that refuses one key for good: what that costs the others.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use futures::future::{join, join_all, join3, join4};
use leasehold::{
    AcquireError,
    executor::Executor,
    machine::{Action, Batch},
};

use crate::support::{
    judged::{
        Judged,
        Verdict::{Answered, Refused, RefusedForGood, Unanswered},
    },
    world::{HEARTBEAT, everywhere, ms, secs},
};

/// Whether the transaction needs the key that the store refuses, because it is too long, for example.
fn needs_bad(batch: &Batch) -> bool {
    batch.operations.iter().any(|ask| ask.key.as_str().starts_with("bad"))
}

/// From now on the store refuses what `is_bad` says. Returns a counter of the transactions that it is asked for.
fn refuses(store: &Judged, is_bad: fn(&Batch) -> bool) -> Arc<AtomicUsize> {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    store.judge(move |batch| {
        counter.fetch_add(1, Relaxed);
        if is_bad(batch) { RefusedForGood } else { Answered }
    });
    asked
}

fn is_refused<T>(told: Result<T, AcquireError>) -> bool {
    matches!(told, Err(AcquireError::Store(error)) if !error.retry)
}

/// Requests of one moment share a transaction.
#[test]
fn a_request_that_is_refused_for_good_fails_no_other() {
    for (many, most) in [(1, 2), (10, 13), (100, 22), (1_000, 32)] {
        everywhere(async |world| {
            let (leases, store) = Judged::over(world);
            let asked = refuses(&store, needs_bad);
            let keys: Vec<_> = (0..many).map(|number| format!("k{number}")).collect();
            let (first, rest) = keys.split_at(many / 2);
            let ask = |keys: &[String]| join_all(keys.iter().map(|key| leases.lock(key).acquire()).collect::<Vec<_>>());
            let all = join(join(ask(first), leases.lock("bad").acquire()), ask(rest));
            let ((first, bad), rest) = world.within(secs(10), all).await.expect("each is told");
            assert!(is_refused(bad), "the one to blame is told");
            let failed = first.iter().chain(&rest).filter(|told| told.is_err()).count();
            assert_eq!(failed, 0, "of {many} others");
            let asked = asked.load(Relaxed);
            assert!(asked <= most, "{asked} transactions for {many} others");
        });
    }
}

/// If nothing works, every request is told, and a few transactions show it.
#[test]
fn a_store_that_refuses_everything_is_asked_a_few_times() {
    for many in [1, 10, 100, 1_000] {
        everywhere(async |world| {
            let (leases, store) = Judged::over(world);
            let asked = refuses(&store, |_| true);
            let keys: Vec<_> = (0..many).map(|number| format!("k{number}")).collect();
            let all = join_all(keys.iter().map(|key| leases.lock(key).acquire()));
            let told = world.within(secs(10), all).await.expect("each is told");
            assert!(told.into_iter().all(is_refused));
            let asked = asked.load(Relaxed);
            assert!(asked <= 20, "{asked} transactions for {many} requests");
        });
    }
}

/// The error says why, and comes long before a time limit.
#[test]
fn a_store_that_refuses_everything_keeps_nobody_waiting() {
    for many in [1, 100, 1_000] {
        everywhere(async |world| {
            let (leases, store) = Judged::over(world);
            store.take(ms(50));
            refuses(&store, |_| true);
            let keys: Vec<_> = (0..many).map(|number| format!("k{number}")).collect();
            let told = join_all(keys.iter().map(|key| leases.lock(key).timeout(secs(5)).acquire())).await;
            let late = told.into_iter().filter(|told| !matches!(told, Err(AcquireError::Store(_)))).count();
            assert_eq!(late, 0, "of {many} are told something else");
        });
    }
}

/// Size was not to blame.
#[test]
fn what_was_refused_for_good_makes_later_transactions_no_smaller() {
    everywhere(async |world| {
        let (leases, store) = Judged::over(world);
        let asked = refuses(&store, needs_bad);
        let keys: Vec<_> = (0..1_000).map(|number| format!("k{number}")).collect();
        let ask = || join_all(keys.iter().map(|key| leases.lock(key).acquire()).collect::<Vec<_>>());
        let (guards, bad) = join(ask(), leases.lock("bad").acquire()).await;
        assert!(is_refused(bad));
        let before = asked.load(Relaxed);
        drop(guards);
        drop(ask().await);
        let asked = asked.load(Relaxed) - before;
        assert!(asked <= 20, "{asked} transactions for 1,000 releases and 1,000 requests");
    });
}

/// Whoever asks while a transaction is under way shares the next one.
#[test]
fn what_is_refused_for_good_costs_no_waiter_its_place() {
    everywhere(async |world| {
        let holder = world.tab();
        let (leases, store) = Judged::over(world);
        let guard = holder.leases.lock("k").acquire().await.unwrap();
        refuses(&store, needs_bad);
        let first = leases.lock("first").acquire();
        let mut waits = Box::pin(leases.lock("k").acquire());
        let asked = join3(first, leases.lock("bad").acquire(), world.within(secs(20), &mut waits));
        let (first, bad, waited) = asked.await;
        assert!(first.is_ok() && is_refused(bad));
        assert!(waited.is_none(), "{waited:?}, although the holder is there");
        guard.release().await.unwrap();
        let granted = world.within(secs(10), waits).await.expect("it is granted");
        assert!(granted.is_ok(), "{granted:?}");
    });
}

/// An upgrade, a try, a question whether a lease is current, and a release.
/// Some tasks ask for a refused key now and then, and heartbeats are accepted in between.
#[test]
fn refusals_that_are_far_apart_fail_no_other_request() {
    everywhere(async |world| {
        let (leases, store) = Judged::over(world);
        refuses(&store, needs_bad);
        let _held = leases.lock("held").acquire().await.unwrap();
        for _ in 0..10 {
            assert!(is_refused(leases.lock("bad").acquire().await));
            world.sim.pass(HEARTBEAT * 2).await;
        }
        store.take(ms(100));
        let mut first = pin!(leases.lock("bad").acquire().into_future());
        assert!(world.within(ms(10), first.as_mut()).await.is_none(), "it is under way");
        let together = join(leases.lock("bad too").acquire(), leases.lock("good").acquire());
        let (first, (second, good)) = join(first, together).await;
        assert!(is_refused(first) && is_refused(second));
        assert!(good.is_ok(), "{good:?}");
    });
}

#[test]
fn what_is_refused_for_good_is_judged_by_itself() {
    everywhere(async |world| {
        let (leases, store) = Judged::over(world);
        let shared = leases.lock("shared").shared().acquire().await.unwrap();
        let held = leases.lock("held").acquire().await.unwrap();
        refuses(&store, needs_bad);
        for _ in 0..32 {
            let released = leases.lock("released").acquire().await.unwrap();
            let (first, bad) = (leases.lock("first").acquire(), leases.lock("bad").acquire());
            let (upgrade, verify, tries) = (shared.upgrade(), held.verify(), leases.lock("free").try_acquire());
            let others = join4(upgrade, verify, tries, released.release());
            let (first, bad, (upgraded, current, tried, released)) = join3(first, bad, others).await;
            assert!(first.is_ok() && is_refused(bad));
            upgraded.unwrap();
            assert!(current.unwrap());
            drop(tried.unwrap().expect("it is free"));
            released.unwrap();
            shared.downgrade().await.unwrap();
        }
        assert!(shared.is_valid() && held.is_valid());
    });
}

/// The store refuses to release one key, for ever.
#[test]
fn a_release_that_is_refused_for_good_costs_no_other_lease() {
    for lost in [1, 2, 3, 5] {
        everywhere(async |world| {
            let (leases, store) = Judged::over(world);
            let precious = leases.lock("precious").acquire().await.unwrap();
            let bad = leases.lock("bad").acquire().await.unwrap();
            let mut others = 0;
            store.judge(move |batch| {
                let releases = |action: &Action| matches!(action, Action::Release { .. });
                if batch.operations.iter().any(|ask| ask.key.as_str() == "bad" && releases(&ask.action)) {
                    return RefusedForGood;
                }
                others += 1;
                if others % (lost + 1) == lost { Unanswered } else { Answered }
            });
            assert!(world.within(secs(60), bad.release()).await.is_some());
            for _ in 0..20 {
                world.sim.pass(secs(1)).await;
                if let Some(Ok(Some(guard))) = world.within(secs(60), leases.lock("fine").try_acquire()).await {
                    drop(guard);
                }
                assert!(precious.verify().await.unwrap_or(true), "every {lost}th answer is lost");
            }
        });
    }
}

/// Guards that end together are released in one transaction.
#[test]
fn a_release_that_is_refused_for_good_delays_no_other_for_long() {
    for many in [10, 100] {
        everywhere(async |world| {
            let (leases, store) = Judged::over(world);
            let other = world.tab();
            let keys: Vec<_> = (0..many).map(|number| format!("k{number}")).chain(["bad".into()]).collect();
            let mut guards = Vec::new();
            for key in &keys {
                guards.push(leases.lock(key).acquire().await.unwrap());
            }
            store.judge(|batch| {
                let releases = |action: &Action| matches!(action, Action::Release { .. });
                let is_bad = batch.operations.iter().any(|ask| ask.key.as_str() == "bad" && releases(&ask.action));
                if is_bad { RefusedForGood } else { Answered }
            });
            drop(guards);
            let start = world.now();
            for key in &keys[..many] {
                drop(world.within(secs(60), other.leases.lock(key).acquire()).await.expect("it is free").unwrap());
            }
            assert!(world.ms_since(start) < 10_000, "{many} others are free after {} ms", world.ms_since(start));
        });
    }
}

fn releases(batch: &Batch) -> bool {
    batch.operations.iter().any(|ask| matches!(ask.action, Action::Release { .. }))
}

/// Each of them is tried once in a while, and all of them soon once one has been accepted.
#[test]
fn releases_that_were_refused_for_good_are_all_made_soon_after_the_first() {
    everywhere(async |world| {
        let (leases, store) = Judged::over(world);
        let other = world.tab();
        let _kept = leases.lock("kept").acquire().await.unwrap();
        let keys: Vec<_> = (0..100).map(|number| format!("k{number}")).collect();
        let mut guards = Vec::new();
        for key in &keys {
            guards.push(leases.lock(key).acquire().await.unwrap());
        }
        refuses(&store, releases);
        drop(guards);
        world.sim.pass(secs(30)).await;
        store.judge(|_| Answered);
        let start = world.now();
        for key in &keys {
            drop(world.within(secs(600), other.leases.lock(key).acquire()).await.expect("it is free").unwrap());
        }
        assert!(world.ms_since(start) < 10_000, "all are free after {} ms", world.ms_since(start));
    });
}

/// The store accepts again what it had refused, and what fails for a moment keeps its pauses.
#[test]
fn what_was_refused_for_good_uses_up_no_attempts_of_a_request() {
    everywhere(async |world| {
        let (leases, store) = Judged::over(world);
        let _kept = leases.lock("kept").acquire().await.unwrap();
        let mut guards = Vec::new();
        for number in 0..300 {
            guards.push(leases.lock(&format!("k{number}")).acquire().await.unwrap());
        }
        refuses(&store, releases);
        drop(guards);
        world.sim.pass(secs(5)).await;
        store.judge(|_| Answered);
        store.take(ms(10));
        // Releases are under way now, one after the other.
        world.sim.pass(ms(2_600)).await;
        let fails_until = world.now().plus(60);
        let clock = world.sim.clone();
        store.judge(move |batch| {
            let is_hard = batch.operations.iter().any(|ask| ask.key.as_str() == "hard");
            if is_hard && Executor::now(&clock).monotonic < fails_until { Refused } else { Answered }
        });
        let granted = world.within(secs(10), leases.lock("hard").acquire()).await.expect("it is told");
        assert!(granted.is_ok(), "it failed for 60 ms only: {granted:?}");
    });
}

/// As long as fewer than eight in a row are refused: more show that the store refuses everything.
#[test]
fn releases_that_are_refused_for_good_delay_no_other_release() {
    for (bad, good) in [(1, 10), (5, 10), (7, 100), (7, 1_000)] {
        everywhere(async |world| {
            let (leases, store) = Judged::over(world);
            let other = world.tab();
            let mut guards = vec![leases.lock("kept").acquire().await.unwrap()];
            let kept = guards.pop();
            let names =
                (0..bad).map(|number| format!("bad{number}")).chain((0..good).map(|number| format!("k{number}")));
            for key in names {
                guards.push(leases.lock(&key).acquire().await.unwrap());
            }
            store.judge(|batch| {
                let is_bad = batch.operations.iter().any(|ask| ask.key.as_str().starts_with("bad"));
                if is_bad && releases(batch) { RefusedForGood } else { Answered }
            });
            drop(guards);
            let start = world.now();
            for number in 0..good {
                let asked = other.leases.lock(&format!("k{number}")).acquire();
                drop(world.within(secs(200), asked).await.expect("it is free").unwrap());
            }
            assert!(world.ms_since(start) < 1_000, "{good} beside {bad} after {} ms", world.ms_since(start));
            drop(kept);
        });
    }
}
