//! From shared to exclusive, and back.

use std::cell::RefCell;

use futures::{
    future::{FutureExt, join_all},
    join,
};
use leasehold::{AcquireError, LeaseGuard, LeaseManager, LostReason, Mode, executor::Lifecycle, store::Store};

use crate::support::{
    doubles::{SlowStore, SlowVoice},
    world::{LEASE, Tab, World, everywhere, ms, secs},
};

async fn read(tab: &Tab) -> LeaseGuard {
    tab.leases.lock("k").shared().acquire().await.unwrap()
}

async fn may_read(tab: &Tab) -> bool {
    tab.leases.lock("k").shared().try_acquire().await.unwrap().is_some()
}

/// Whether the key is held exclusively, so that nobody may read.
fn is_exclusive(guard: &LeaseGuard) -> bool {
    guard.mode() == Mode::Exclusive && guard.is_valid()
}

/// A context whose store takes 4 ms for each answer.
fn slow(world: &World) -> LeaseManager {
    let context = world.sim.context();
    let store = SlowStore::new(world.shared.clone(), context.clone(), 2..=2);
    LeaseManager::builder(store, context).build().unwrap()
}

#[test]
fn a_downgrade_lets_readers_in_at_once() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        let token = guard.token();
        let mut readers = Box::pin(join_all([read(&one), read(&two)]));
        assert!(world.within(secs(1), &mut readers).await.is_none());
        guard.downgrade().await.unwrap();
        let readers = world.within(ms(1), readers).await.expect("at once");
        assert_eq!((guard.mode(), guard.token(), guard.is_valid()), (Mode::Shared, token, true));
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none());
        guard.downgrade().await.unwrap();
        world.sim.pass(LEASE * 2).await;
        assert!(guard.is_valid() && readers.iter().all(LeaseGuard::is_valid), "it is renewed like any other");
        drop((guard, readers));
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_some());
    });
}

#[test]
fn an_upgrade_waits_for_the_readers_and_goes_before_queued_writers() {
    everywhere(async |world| {
        let tabs: Vec<_> = (0..3).map(|_| world.tab()).collect();
        let (guard, local, remote) = (read(&tabs[0]).await, read(&tabs[0]).await, read(&tabs[1]).await);
        let token = guard.token();
        let order = RefCell::new(Vec::new());
        let writer = async {
            let writer = tabs[2].leases.lock("k").acquire().await.unwrap();
            order.borrow_mut().push("writer");
            writer.token()
        };
        let upgrade = async {
            world.sim.pass(ms(10)).await;
            guard.upgrade().await.unwrap();
            order.borrow_mut().push("upgrade");
            assert!(is_exclusive(&guard) && guard.token() > token);
            assert!(!may_read(&tabs[0]).await && !may_read(&tabs[1]).await);
            world.sim.pass(secs(30)).await;
            assert!(is_exclusive(&guard));
            guard.release().await.unwrap();
        };
        let readers = async {
            for (reader, left) in [(local, 1), (remote, 0)] {
                world.sim.pass(secs(1)).await;
                assert!(guard.is_valid() && guard.mode() == Mode::Shared, "it shares meanwhile, {left} others");
                assert!(order.borrow().is_empty());
                reader.release().await.unwrap();
            }
        };
        let (written, (), ()) = join!(writer, upgrade, readers);
        assert_eq!(order.into_inner(), ["upgrade", "writer"]);
        assert!(written > guard.token());
    });
}

/// Two who upgrade would wait for each other: the second is told, goes on sharing, and lets the first on by going.
#[test]
fn two_upgrades_conflict_here_and_elsewhere() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        for rival in [&one, &two] {
            let (first, second) = (read(&one).await, read(rival).await);
            let mut upgrade = Box::pin(first.upgrade());
            assert!(world.within(ms(10), &mut upgrade).await.is_none());
            let refused = world.within(ms(1), second.upgrade()).await.expect("at once");
            assert_eq!(refused.unwrap_err(), AcquireError::UpgradeConflict { key: "k".into() });
            assert!(second.is_valid() && second.mode() == Mode::Shared);
            assert!(upgrade.as_mut().now_or_never().is_none());
            second.release().await.unwrap();
            world.within(ms(1), upgrade).await.expect("the other one gets on").unwrap();
            assert!(is_exclusive(&first));
            first.release().await.unwrap();
        }
    });
}

/// A rival that died while it upgraded does not count. Its beacon shows that it is dead.
#[test]
fn an_upgrade_finds_out_that_its_rival_is_dead() {
    everywhere(async |world| {
        for others in [0, 1] {
            let (one, two, three) = (world.tab(), world.tab(), world.tab());
            let (first, second) = (read(&one).await, read(&two).await);
            let third = if others > 0 { Some(read(&three).await) } else { None };
            let mut dying = Box::pin(async move { first.upgrade().await });
            assert!(world.within(ms(10), &mut dying).await.is_none());
            one.crash(dying);
            let mut upgrade = Box::pin(second.upgrade());
            if let Some(third) = third {
                assert!(world.within(secs(1), &mut upgrade).await.is_none(), "it waits for the living holder");
                third.release().await.unwrap();
            }
            world.within(secs(1), upgrade).await.expect("nobody else is left").unwrap();
            assert!(is_exclusive(&second) && three.leases.lock("k").try_acquire().await.unwrap().is_none());
            second.release().await.unwrap();
        }
    });
}

/// A rival that does not answer may be dead. If its beacon stands, it is alive.
#[test]
fn a_rival_that_does_not_answer_is_watched_for_a_moment() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let (first, second) = (read(&one).await, read(&two).await);
        let mut silent = Box::pin(async move { first.upgrade().await });
        assert!(world.within(ms(10), &mut silent).await.is_none());
        one.executor.tell(Lifecycle::Ending);
        let refused = world.within(ms(300), second.upgrade()).await.expect("after 280 ms");
        assert_eq!(refused.unwrap_err(), AcquireError::UpgradeConflict { key: "k".into() });
        assert!(second.is_valid() && second.mode() == Mode::Shared);
        one.crash(silent);
        world.within(secs(1), second.upgrade()).await.expect("now it is dead").unwrap();
    });
}

/// Its word is on the way while it gives its upgrade up, so the other upgrade has a place in the queue by then.
#[test]
fn a_late_word_of_a_rival_that_gave_up_ends_no_upgrade() {
    everywhere(async |world| {
        let (one, two, three) = (world.tab(), world.tab(), world.tab());
        let voice = SlowVoice::new(&world.shared.reach(), one.executor.clone(), ms(40));
        let one = one.with(|builder| builder.signals(voice));
        let (first, second, third) = (read(&one).await, read(&two).await, read(&three).await);
        let mut given_up = Box::pin(first.upgrade());
        assert!(world.within(ms(10), &mut given_up).await.is_none());
        let mut upgrade = Box::pin(second.upgrade());
        assert!(world.within(ms(10), &mut upgrade).await.is_none());
        drop(given_up);
        let early = world.within(secs(1), &mut upgrade).await;
        join!(first.release(), third.release()).0.unwrap();
        world.sim.pass(secs(1)).await;
        let writer = three.leases.lock("k").try_acquire().await.unwrap();
        assert!(writer.is_none() || !second.is_valid(), "both hold");
        assert!(early.is_none(), "it waits for those who share: {early:?}");
        upgrade.await.unwrap();
        assert!(is_exclusive(&second));
    });
}

/// An upgrade that is given up leaves the guard sharing, and blocks neither readers nor the upgrade of another.
#[test]
fn a_dropped_upgrade_leaves_the_guard_sharing() {
    everywhere(async |world| {
        let (one, two, three) = (world.tab(), world.tab(), world.tab());
        for rival in [&one, &two] {
            let (guard, other) = (read(&one).await, read(rival).await);
            let mut upgrade = Box::pin(guard.upgrade());
            assert!(world.within(ms(10), &mut upgrade).await.is_none());
            assert!(!may_read(&one).await, "who upgrades is next");
            drop(upgrade);
            world.sim.pass(ms(1)).await;
            assert!(may_read(&one).await && may_read(&three).await);
            assert!(guard.is_valid() && guard.mode() == Mode::Shared);
            let mut upgrade = Box::pin(other.upgrade());
            assert!(world.within(ms(10), &mut upgrade).await.is_none());
            guard.release().await.unwrap();
            world.within(ms(1), upgrade).await.expect("there is no conflict").unwrap();
            other.release().await.unwrap();
        }
    });
}

/// The same when it is dropped in the very moment of its success, wherever that is: in the store, or on its way here.
#[test]
fn an_upgrade_that_is_dropped_as_it_succeeds_leaves_the_guard_sharing() {
    for after_ms in 0..8 {
        let world = World::new(after_ms);
        world.run(async {
            let (leases, other) = (slow(&world), world.tab());
            let guard = leases.lock("k").shared().acquire().await.unwrap();
            let mut upgrade = Box::pin(guard.upgrade());
            assert!((&mut upgrade).now_or_never().is_none());
            world.sim.pass(ms(after_ms)).await;
            drop(upgrade);
            let reader = world.within(secs(1), read(&other)).await;
            assert!(reader.is_some(), "dropped after {after_ms} ms, it keeps readers out as {:?}", guard.mode());
            assert!(guard.is_valid() && guard.mode() == Mode::Shared, "dropped after {after_ms} ms");
        });
    }
}

#[test]
fn an_upgrade_of_a_lost_guard_says_why() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let (guard, other) = (read(&one).await, read(&two).await);
        let theft = async {
            world.sim.pass(ms(10)).await;
            two.leases.lock("k").steal().await.unwrap()
        };
        let (upgraded, thief) = join!(guard.upgrade(), theft);
        let stolen = Err(AcquireError::Lost { key: "k".into(), reason: LostReason::Stolen });
        assert_eq!(upgraded, stolen, "while it waits");
        assert_eq!(guard.upgrade().await, stolen, "and afterwards");
        assert_eq!(guard.downgrade().await, stolen);
        assert_eq!(other.lost().await, LostReason::Stolen);
        thief.release().await.unwrap();
        let released = read(&one).await;
        released.release().await.unwrap();
        assert_eq!(released.upgrade().await, Err(AcquireError::Released { key: "k".into() }));
        assert!(one.leases.lock("k").try_acquire().await.unwrap().is_some(), "nothing is left behind");
    });
}

/// Who is alone upgrades at once, and back, as often as it likes; each time with a larger token.
#[test]
fn up_and_down_again() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let guard = read(&one).await;
        for _ in 0..3 {
            let token = guard.token();
            world.within(ms(1), guard.upgrade()).await.expect("at once").unwrap();
            assert!(is_exclusive(&guard) && guard.token() > token);
            guard.upgrade().await.unwrap();
            assert!(!may_read(&two).await);
            guard.downgrade().await.unwrap();
            assert!(may_read(&two).await && may_read(&one).await);
        }
        world.sim.pass(LEASE).await;
        assert!(guard.is_valid() && guard.verify().await.unwrap());
    });
}

/// Readers are let in when the last of those who hold together has downgraded: until then they hold exclusively.
#[test]
fn those_who_hold_together_downgrade_together() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let hold = || one.leases.lock("k").share_in_process().try_acquire();
        let (first, second) = (hold().await.unwrap().unwrap(), hold().await.unwrap().unwrap());
        first.downgrade().await.unwrap();
        assert!(first.mode() == Mode::Shared && is_exclusive(&second) && !may_read(&two).await);
        second.release().await.unwrap();
        let reader = two.leases.lock("k").shared().try_acquire().await.unwrap().expect("all who hold it share");
        assert!(hold().await.unwrap().is_none(), "somebody else reads");
        assert!(first.is_valid() && reader.is_valid());
    });
}

/// A downgrade lets readers in; writers who wait elsewhere are not forgotten for it.
#[test]
fn a_downgraded_lease_does_not_linger_while_a_writer_waits() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        for upgraded in [false, true] {
            let guard = if upgraded { read(&one).await } else { one.leases.lock("k").acquire().await.unwrap() };
            guard.upgrade().await.unwrap();
            let mut write = Box::pin(two.leases.lock("k").acquire());
            assert!(world.within(ms(10), &mut write).await.is_none());
            guard.downgrade().await.unwrap();
            assert!(world.within(ms(10), &mut write).await.is_none());
            drop(guard);
            assert!(world.within(ms(1), write).await.is_some());
        }
    });
}

#[test]
fn a_suspension_ends_an_upgrade_and_keeps_nobody_else_from_one() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let (guard, other) = (read(&one).await, read(&two).await);
        let mut upgrade = Box::pin(guard.upgrade());
        assert!(world.within(ms(1), &mut upgrade).await.is_none());
        one.leases.suspend();
        let told = (&mut upgrade).now_or_never().expect("at once");
        assert_eq!(told, Err(AcquireError::Lost { key: "k".into(), reason: LostReason::Suspended }));
        one.leases.wake();
        world.sim.pass(LEASE).await;
        assert!(other.is_valid());
        world.within(ms(1), other.upgrade()).await.expect("there is no conflict").unwrap();
    });
}
