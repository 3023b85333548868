//! An attempt that failed goes again although its request has changed meanwhile.

use std::pin::pin;

use futures::future::FutureExt;
use leasehold::{
    AcquireError, LeaseManager, LeaseManagerBuilder, LostReason,
    machine::Applied,
    store::{Fault, FaultyStore, MemoryStore},
};

use crate::support::{
    doubles::SlowStore,
    world::{HEARTBEAT, LEASE, World, everywhere, ms, secs},
};

/// A context whose transactions take 20 ms and fail on demand.
fn slow(world: &World) -> (LeaseManager, FaultyStore<MemoryStore>) {
    let (context, store) = (world.sim.context(), FaultyStore::new(world.shared.clone()));
    let slow = SlowStore::new(store.clone(), context.clone(), 10..=10);
    (LeaseManager::builder(slow, context).lease(LEASE).heartbeat(HEARTBEAT).build().unwrap(), store)
}

/// The request of the try goes again, and waits no more.
#[test]
fn a_request_that_joins_a_try_keeps_its_place_when_the_try_fails() {
    everywhere(async |world| {
        let (holder, (two, store)) = (world.tab(), slow(world));
        let guard = holder.leases.lock("k").acquire().await.unwrap();
        let _other = two.lock("other").acquire().await.unwrap();
        store.inject(Fault::Refuse);
        let mut tries = Box::pin(two.lock("k").try_acquire());
        assert!(world.within(ms(1), &mut tries).await.is_none());
        let mut waits = Box::pin(two.lock("k").acquire());
        assert!(world.within(secs(1), &mut waits).await.is_none());
        let queue = holder.leases.status("k").await.unwrap().queue.len();
        guard.release().await.unwrap();
        let granted = world.within(ms(500), waits).await;
        assert!(granted.is_some_and(|granted| granted.is_ok()), "the key is free, and {queue} contexts wait for it");
    });
}

/// The thief gave up before its attempt failed.
#[test]
fn a_theft_that_was_given_up_and_failed_is_not_tried_again() {
    everywhere(async |world| {
        let (holder, (two, store)) = (world.tab(), slow(world));
        let guard = holder.leases.lock("k").acquire().await.unwrap();
        let _other = two.lock("other").acquire().await.unwrap();
        let mut waits = Box::pin(two.lock("k").acquire());
        assert!(world.within(ms(500), &mut waits).await.is_none());
        store.inject(Fault::Refuse);
        let mut theft = Box::pin(two.lock("k").steal());
        assert!(world.within(ms(1), &mut theft).await.is_none());
        drop(theft);
        assert!(world.within(secs(1), &mut waits).await.is_none(), "nobody robs");
        assert!(guard.is_valid() && guard.lost().now_or_never().is_none());
    });
}

/// An urgent request gave up before its attempt failed: the others do not go first in its place.
#[test]
fn a_priority_that_was_given_up_is_not_asked_for_again() {
    everywhere(async |world| {
        let (holder, (two, store), three) = (world.tab(), slow(world), world.tab());
        let _guard = holder.leases.lock("k").acquire().await.unwrap();
        let _other = two.lock("other").acquire().await.unwrap();
        let mut third = Box::pin(three.leases.lock("k").acquire());
        assert!(world.within(ms(500), &mut third).await.is_none());
        let mut waits = Box::pin(two.lock("k").acquire());
        assert!(world.within(ms(500), &mut waits).await.is_none());
        store.inject(Fault::Refuse);
        let mut urgent = Box::pin(two.lock("k").priority(1).acquire());
        assert!(world.within(ms(1), &mut urgent).await.is_none());
        drop(urgent);
        assert!(world.within(secs(1), &mut waits).await.is_none());
        let queue = holder.leases.status("k").await.unwrap().queue;
        assert_eq!(queue.iter().map(|waiter| waiter.priority).collect::<Vec<_>>(), [0, 0]);
    });
}

/// The store fails while an upgrade is given up, now slowly and now at once: the upgrade must not be asked for after that.
#[test]
fn an_upgrade_that_was_given_up_while_the_store_failed_is_not_granted_later() {
    everywhere(async |world| {
        for round in 0..32 {
            let (other, context, store) = (world.tab(), world.sim.context(), FaultyStore::new(world.shared.clone()));
            let uneven = SlowStore::new(store.clone(), context.clone(), 0..=40);
            let two = LeaseManager::builder(uneven, context).lease(LEASE).heartbeat(HEARTBEAT).build().unwrap();
            let key = format!("k{round}");
            let reader = other.leases.lock(&key).shared().acquire().await.unwrap();
            let guard = two.lock(&key).shared().acquire().await.unwrap();
            // The last bits of the number say which answers are lost.
            for fault in 0..3 + round % 2 {
                store.inject(if round >> fault & 2 == 0 { Fault::Refuse } else { Fault::LoseReply });
            }
            let mut upgrade = Box::pin(guard.upgrade());
            assert!(world.within(ms(1), &mut upgrade).await.is_none());
            drop(upgrade);
            world.sim.pass(secs(3)).await;
            reader.release().await.unwrap();
            world.sim.pass(ms(200)).await;
            let writer = other.leases.lock(&key).try_acquire().await.unwrap();
            assert!(writer.is_none() || !guard.is_valid(), "both hold in round {round}: {writer:?}, {guard:?}");
        }
    });
}

/// A store that is down answers nobody: the second call is told so as the first one would be.
#[test]
fn an_upgrade_after_one_that_was_given_up_is_told_that_the_store_fails() {
    everywhere(async |world| {
        let (other, (two, store)) = (world.tab(), slow(world));
        let _reader = other.leases.lock("k").shared().acquire().await.unwrap();
        let guard = two.lock("k").shared().acquire().await.unwrap();
        store.fail_always(Some(Fault::Refuse));
        let mut upgrade = Box::pin(guard.upgrade());
        assert!(world.within(ms(1), &mut upgrade).await.is_none());
        drop(upgrade);
        let told = world.within(secs(600), guard.upgrade()).await;
        assert!(matches!(told, Some(Err(_))), "{told:?}");
    });
}

/// Somebody waited together with the try, and gave up. What was asked for both is not kept when the try ends.
#[test]
fn a_try_that_somebody_joined_for_a_moment_leaves_no_lease_behind() {
    everywhere(async |world| {
        let holder = world.tab().with(|builder| builder.linger(ms(0)));
        let (two, _) = slow(world);
        let guard = holder.leases.lock("k").acquire().await.unwrap();
        let _other = two.lock("other").acquire().await.unwrap();
        let mut tries = Box::pin(two.lock("k").try_acquire());
        assert!(world.within(ms(1), &mut tries).await.is_none());
        let mut waits = Box::pin(two.lock("k").acquire());
        assert!(world.within(ms(1), &mut waits).await.is_none());
        drop(waits);
        assert!(tries.await.unwrap().is_none(), "the holder says that it uses the key");
        guard.release().await.unwrap();
        world.sim.pass(secs(1)).await;
        let next = world.within(secs(600), holder.leases.lock("k").acquire()).await;
        assert!(next.is_some_and(|next| next.is_ok()), "nobody uses the key: {:?}", holder.leases.status("k").await);
    });
}

/// The store needs longer than a beacon is watched to end the session of a rival that died.
#[test]
fn an_upgrade_over_a_slow_store_outlives_its_rival() {
    everywhere(async |world| {
        for each_way_ms in [10, 100, 150, 300] {
            let (rival, context) = (world.tab(), world.sim.context());
            let store = SlowStore::new(world.shared.clone(), context.clone(), each_way_ms..=each_way_ms);
            let two = LeaseManager::builder(store, context).lease(LEASE).heartbeat(HEARTBEAT).build().unwrap();
            let key = format!("k{each_way_ms}");
            let other = rival.leases.lock(&key).shared().acquire().await.unwrap();
            let guard = two.lock(&key).shared().acquire().await.unwrap();
            let mut upgrades = Box::pin(async move { other.upgrade().await });
            assert!(world.within(ms(10), &mut upgrades).await.is_none());
            // It answers nobody, and dies.
            rival.executor.freeze();
            let mut upgrade = Box::pin(guard.upgrade());
            assert!(world.within(ms(10), &mut upgrade).await.is_none());
            rival.crash(upgrades);
            assert_eq!(upgrade.await, Ok(()), "{each_way_ms} ms each way");
        }
    });
}

/// So does a request of its own instance, and a try, whether the rival is gone before they ask or while they look.
#[test]
fn a_request_over_a_slow_store_outlives_a_dead_holder() {
    everywhere(async |world| {
        for (each_way_ms, twins, waits) in [
            (100, true, true),
            (130, true, true),
            (300, true, true),
            (100, true, false),
            (300, true, false),
            (130, false, false),
            (300, false, false),
        ] {
            let named = |builder: LeaseManagerBuilder| if twins { builder.instance("worker-1") } else { builder };
            let (holder, context) = (world.tab().with(named), world.sim.context());
            let store = SlowStore::new(world.shared.clone(), context.clone(), each_way_ms..=each_way_ms);
            let builder = LeaseManager::builder(store, context).lease(LEASE).heartbeat(HEARTBEAT);
            let two = named(builder).build().unwrap();
            let key = format!("k{each_way_ms} {twins} {waits}");
            let guard = holder.leases.lock(&key).acquire().await.unwrap();
            let _other = two.lock("other").shared().acquire().await.unwrap();
            holder.crash(guard);
            let request = two.lock(&key);
            let granted = if waits { request.acquire().await.map(Some) } else { request.try_acquire().await };
            let is_granted = matches!(granted, Ok(Some(_)));
            assert!(is_granted, "{each_way_ms} ms each way, twins: {twins}, waits: {waits}: {granted:?}");
        }
    });
}

/// The store refuses to end the session of the earlier incarnation at first.
#[test]
fn a_dead_twin_is_not_taken_for_alive_because_the_store_failed_for_a_moment() {
    for refusals in [2, 5] {
        everywhere(async |world| {
            let (old, context) = (world.tab().with(|builder| builder.instance("worker-1")), world.sim.context());
            let store = FaultyStore::new(world.shared.clone());
            let slow = SlowStore::new(store.clone(), context.clone(), 100..=100);
            let builder = LeaseManager::builder(slow, context).lease(LEASE).heartbeat(HEARTBEAT);
            let new = builder.instance("worker-1").build().unwrap();
            let guard = old.leases.lock("k").acquire().await.unwrap();
            let _other = new.lock("other").acquire().await.unwrap();
            old.crash(guard);
            let mut waits = Box::pin(new.lock("k").acquire());
            assert!(world.within(ms(250), &mut waits).await.is_none());
            for _ in 0..refusals {
                store.inject(Fault::Refuse);
            }
            let granted = waits.await;
            assert!(granted.is_ok(), "after {refusals} refusals: {granted:?}");
        });
    }
}

/// The place was moved to the front for the sake of a try, which goes at once.
#[test]
fn a_try_lends_its_priority_to_nobody() {
    everywhere(async |world| {
        let (holder, two, three) = (world.tab(), world.tab(), world.tab());
        let guard = holder.leases.lock("k").acquire().await.unwrap();
        let mut third = Box::pin(three.leases.lock("k").priority(-1).acquire());
        assert!(world.within(ms(500), &mut third).await.is_none());
        let mut waits = Box::pin(two.leases.lock("k").priority(-5).acquire());
        assert!(world.within(ms(500), &mut waits).await.is_none());
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none());
        assert!(world.within(ms(100), &mut waits).await.is_none());
        guard.release().await.unwrap();
        assert!(world.within(ms(500), third).await.is_some(), "it came before, and is more urgent");
    });
}

/// The waiter was granted the key, and robbed of it before it heard of either.
#[test]
fn a_waiter_that_was_robbed_unheard_asks_again_at_once() {
    everywhere(async |world| {
        let (holder, (two, _)) = (world.tab().with(|builder| builder.linger(ms(0))), slow(world));
        let guard = two.lock("k").shared().acquire().await.unwrap();
        let mut writes = Box::pin(two.lock("k").acquire());
        assert!(world.within(secs(1), &mut writes).await.is_none());
        // The release grants the other request of its own context; the answer takes 10 ms.
        let mut release = Box::pin(guard.release());
        assert!(world.within(ms(12), &mut release).await.is_none());
        let stolen = holder.leases.lock("k").steal().await.unwrap();
        stolen.release().await.unwrap();
        let granted = world.within(secs(1), writes).await;
        assert!(granted.is_some_and(|granted| granted.is_ok()), "nobody else wants the key");
    });
}

/// The thief hears that its lease was stolen before it hears that it got the lease.
#[test]
fn a_thief_that_was_robbed_unheard_does_not_steal_again() {
    everywhere(async |world| {
        let (holder, (two, _)) = (world.tab(), slow(world));
        let _robbed = holder.leases.lock("k").acquire().await.unwrap();
        let _other = two.lock("other").acquire().await.unwrap();
        let mut theft = Box::pin(two.lock("k").steal());
        assert!(world.within(ms(12), &mut theft).await.is_none(), "the answer takes 10 ms");
        let later = holder.leases.lock("k").steal().await.unwrap();
        let told = world.within(secs(1), theft).await.expect("it is told");
        assert!(matches!(told, Err(AcquireError::Lost { reason: LostReason::Stolen, .. })), "{told:?}");
        assert!(later.verify().await.unwrap(), "the later thief keeps what it stole");
    });
}

/// Its lease was granted and stolen before its task ran again.
#[test]
fn a_thief_whose_lease_was_stolen_before_its_task_ran_does_not_steal_again() {
    everywhere(async |world| {
        let (holder, (two, _)) = (world.tab(), slow(world));
        let _robbed = holder.leases.lock("k").acquire().await.unwrap();
        let _other = two.lock("other").acquire().await.unwrap();
        let mut theft = Box::pin(two.lock("k").steal());
        assert!(world.within(ms(1), &mut theft).await.is_none());
        world.sim.pass(ms(50)).await;
        let later = holder.leases.lock("k").steal().await.unwrap();
        world.sim.pass(ms(50)).await;
        let told = world.within(secs(1), theft).await.expect("it is told");
        assert!(matches!(told, Err(AcquireError::Lost { reason: LostReason::Stolen, .. })), "{told:?}");
        assert!(later.verify().await.unwrap(), "the later thief keeps what it stole");
    });
}

/// The theft was applied, but the thief heard of neither it nor its session. Whoever is granted the key next is not robbed as well.
#[test]
fn a_thief_that_does_not_know_whether_it_stole_does_not_steal_again() {
    for fault in [Fault::LoseReply, Fault::Silence] {
        for times in [1, 2, 6] {
            everywhere(async |world| {
                let (holder, waiter, thief) = (world.tab(), world.tab(), world.tab());
                let robbed = holder.leases.lock("k").acquire().await.unwrap();
                let mut waits = pin!(waiter.leases.lock("k").acquire());
                assert!(world.within(secs(1), &mut waits).await.is_none());
                (0..times).for_each(|_| thief.store.inject(fault));
                let told = world.within(LEASE * 3, thief.leases.lock("k").steal()).await.expect("it is told");
                let waited = world.within(LEASE * 3, &mut waits).await.expect("the thief has not got it");
                world.sim.pass(LEASE * 3).await;
                let next = waited.unwrap();
                assert!(matches!(told, Err(AcquireError::Store(_))), "{told:?}");
                assert!(!robbed.is_valid() && next.verify().await.unwrap(), "one theft robs one holder");
            });
        }
    }
}

/// While the lease that it stole before still lingers, and after that.
#[test]
fn a_manager_steals_again_what_it_has_stolen_and_released() {
    everywhere(async |world| {
        for is_held in [false, true] {
            let (holder, thief) = (world.tab(), world.tab());
            let _robbed = if is_held { holder.leases.lock("k").try_acquire().await.unwrap() } else { None };
            for pause in [0, 1, 50, 99, 150, 0, 0] {
                let stolen = thief.leases.lock("k").steal().await;
                stolen.expect("nobody else steals").release().await.unwrap();
                world.sim.pass(ms(pause)).await;
            }
        }
    });
}

/// The lease was granted, its thief's task runs late, and by then the store fails.
#[test]
fn a_thief_whose_lease_the_store_cannot_confirm_is_told_that_the_store_fails() {
    everywhere(async |world| {
        let (holder, thief) = (world.tab(), world.tab());
        let _robbed = holder.leases.lock("k").acquire().await.unwrap();
        thief.store.inject(Fault::Refuse);
        let mut theft = Box::pin(thief.leases.lock("k").steal());
        assert!(world.within(ms(1), &mut theft).await.is_none());
        world.sim.pass(secs(2)).await;
        thief.store.fail_always(Some(Fault::Refuse));
        world.sim.pass(LEASE - secs(1)).await;
        let told = theft.await;
        let Err(AcquireError::Store(error)) = told else { panic!("{told:?}") };
        assert_eq!(error.applied, Applied::Unknown, "the holder was robbed: {error}");
    });
}

/// As if they began one after the other: the later ones rob the earlier ones, and wait for nobody.
#[test]
fn the_last_of_several_thefts_that_a_context_begins_together_wins() {
    everywhere(async |world| {
        let (two, _) = slow(world);
        let thefts = [(); 3].map(|()| two.lock("k").steal());
        let mut thieves =
            world.within(secs(1), futures::future::join_all(thefts)).await.expect("one thief waits for another");
        let last = thieves.pop().unwrap().unwrap();
        assert!(last.is_valid() && last.verify().await.unwrap());
    });
}

/// The store has answered, and the lease ends before the caller runs again.
#[test]
fn an_answer_about_a_lease_that_has_ended_since_is_not_told_as_good_news() {
    for steals in [true, false] {
        everywhere(async |world| {
            let (leases, _) = slow(world);
            for ask in 0..4 {
                let request = leases.lock("k");
                let guard = if ask == 2 { request } else { request.shared() }.acquire().await.unwrap();
                let mut asked = pin!(async {
                    match ask {
                        0 => guard.verify().await.unwrap(),
                        1 => guard.extend(secs(1)).await.is_ok(),
                        2 => guard.downgrade().await.is_ok(),
                        _ => guard.upgrade().await.is_ok(),
                    }
                });
                assert!(asked.as_mut().now_or_never().is_none());
                world.sim.pass(ms(50)).await;
                let thief = if steals { Some(leases.lock("k").steal().await.unwrap()) } else { None };
                if !steals {
                    guard.release().await.unwrap();
                }
                assert!(!guard.is_valid() && !asked.await, "question {ask}");
                drop(thief);
            }
        });
    }
}

/// The theft was granted, and the manager is suspended before its task runs.
#[test]
fn a_thief_that_was_suspended_before_its_task_ran_does_not_steal_again() {
    everywhere(async |world| {
        let (holder, waiter, (thief, _)) = (world.tab(), world.tab(), slow(world));
        let _robbed = holder.leases.lock("k").acquire().await.unwrap();
        let _other = thief.lock("other").acquire().await.unwrap();
        let mut waits = pin!(waiter.leases.lock("k").acquire());
        assert!(world.within(secs(1), &mut waits).await.is_none());
        let mut theft = pin!(thief.lock("k").steal());
        assert!(world.within(ms(1), &mut theft).await.is_none());
        world.sim.pass(ms(50)).await;
        thief.suspend();
        let next = world.within(LEASE * 3, &mut waits).await.expect("it is free").unwrap();
        thief.wake();
        let told = world.within(secs(5), theft).await;
        assert!(next.verify().await.unwrap(), "robbed; the thief: {told:?}");
        assert!(matches!(told, Some(Err(AcquireError::Lost { .. }))), "{told:?}");
    });
}

/// The page freezes between its theft and the answer, for longer than its lease.
#[test]
fn a_thief_that_was_frozen_does_not_steal_again() {
    for has_other in [false, true] {
        for span in [LEASE, LEASE * 5 / 4, LEASE * 3] {
            everywhere(async |world| {
                let (holder, waiter) = (world.tab(), world.tab());
                let context = world.sim.context();
                let store = SlowStore::new(world.shared.clone(), context.clone(), 10..=10);
                let thief = LeaseManager::builder(store, context.clone()).lease(LEASE).heartbeat(HEARTBEAT);
                let thief = thief.build().unwrap();
                let _robbed = holder.leases.lock("k").acquire().await.unwrap();
                let _other = if has_other { Some(thief.lock("other").acquire().await.unwrap()) } else { None };
                let mut waits = pin!(waiter.leases.lock("k").acquire());
                assert!(world.within(secs(1), &mut waits).await.is_none());
                let mut theft = pin!(thief.lock("k").steal());
                assert!(world.within(ms(12), &mut theft).await.is_none());
                context.freeze();
                let next = world.within(span, &mut waits).await;
                context.thaw();
                let told = world.within(LEASE * 3, &mut theft).await;
                if let Some(Ok(next)) = next {
                    assert!(next.verify().await.unwrap(), "robbed; the thief: {told:?}");
                }
            });
        }
    }
}

/// The handle is released while its upgrade waits, and a clone keeps the lease.
#[test]
fn the_upgrade_of_a_released_handle_leaves_its_clone_shared() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let reader = two.leases.lock("k").shared().acquire().await.unwrap();
        let guard = one.leases.lock("k").shared().acquire().await.unwrap();
        let clone = guard.clone();
        let mut upgrade = pin!(guard.upgrade());
        assert!(world.within(secs(1), &mut upgrade).await.is_none());
        drop(guard.release());
        reader.release().await.unwrap();
        let told = world.within(secs(5), upgrade).await.expect("the other reader has gone");
        world.sim.pass(secs(5)).await;
        let third = two.leases.lock("k").shared().try_acquire().await.unwrap();
        assert!(told.is_err() && third.is_some() && clone.is_valid(), "{told:?}, {clone:?}");
    });
}
