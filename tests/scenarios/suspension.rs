//! Rules o and p: what a context was before it was suspended is over, and one tombstone says so to everybody.

use futures::{FutureExt, future::join_all};
use leasehold::{
    AcquireError, LeaseGuard, LeaseManager, LostReason, Mode, OnLoss, ReleaseOutcome,
    machine::{Applied, SessionId, StoreClock},
    store::Fault,
};

use crate::support::{
    doubles::SlowStore,
    line::Line,
    oracle::{Oracle, Tally},
    vault::Vault,
    world::{HEARTBEAT, LEASE, Tab, World, everywhere, ms, secs},
};

fn slow(world: &World, each_way_ms: u64) -> LeaseManager {
    let tab = world.tab();
    let store = SlowStore::new(tab.store, world.sim.clone(), each_way_ms..=each_way_ms);
    LeaseManager::builder(store, tab.executor).lease(LEASE).heartbeat(HEARTBEAT).build().unwrap()
}

/// Frozen as the platform does it: told, and then stopped.
fn freeze(tab: &Tab) {
    tab.leases.suspend();
    tab.executor.freeze();
}

fn go_on(tab: &Tab) {
    tab.executor.thaw();
    tab.leases.wake();
}

/// Asks, and queues.
async fn queue<'a>(world: &World, tab: &Tab, key: &str) -> impl Future<Output = LeaseGuard> + Unpin + use<'a> {
    let mut wait = Box::pin(tab.leases.lock(key).acquire().map(Result::unwrap));
    assert!(world.within(ms(1), &mut wait).await.is_none(), "{key} is taken");
    wait
}

async fn names(tab: &Tab, key: &str) -> (Vec<SessionId>, Vec<SessionId>) {
    let status = tab.leases.status(key).await.unwrap();
    let holders = status.holders.iter().map(|holder| holder.holder).collect();
    (holders, status.queue.iter().map(|waiter| waiter.holder).collect())
}

#[test]
fn o_an_answer_to_the_incarnation_before_gives_no_lease_to_the_next() {
    everywhere(async |world| {
        let one = slow(world, 1_000);
        let mut asks = Box::pin(one.lock("k").acquire());
        assert!(world.within(ms(100), &mut asks).await.is_none());
        one.suspend();
        one.wake();
        let guard = asks.await.unwrap();
        let holders = one.status("k").await.unwrap().holders;
        let recorded: Vec<_> = holders.iter().map(|holder| (holder.holder, holder.token)).collect();
        assert_eq!(recorded, [(one.session(), guard.token())]);
    });
}

/// Nobody sees a beacon go, and the holder sends nothing but its tombstone.
#[test]
fn p_several_waiters_take_several_keys_over_at_once() {
    everywhere(async |world| {
        let one = world.dark_tab();
        let keys = ["a", "b", "c"];
        let held = join_all(keys.map(|key| one.leases.lock(key).acquire().map(Result::unwrap))).await;
        let waiters: Vec<_> = keys.iter().map(|key| (world.dark_tab(), *key)).collect();
        let mut waits = Vec::new();
        for (tab, key) in &waiters {
            waits.push(queue(world, tab, key).await);
        }
        one.take_transactions();
        let start = world.now();
        freeze(&one);
        assert_eq!(one.take_transactions(), 0, "one blind write, and no transaction");
        let granted = join_all(waits).await;
        assert_eq!(world.ms_since(start), 0);
        for (before, after) in held.iter().zip(&granted) {
            assert!(!before.is_valid() && after.is_valid() && after.token() > before.token());
        }
    });
}

#[test]
fn p_a_suspended_waiter_in_the_middle_of_a_queue_is_passed_over() {
    everywhere(async |world| {
        let [one, two, three] = [(); 3].map(|()| world.dark_tab());
        let held = one.leases.lock("k").acquire().await.unwrap();
        let second = queue(world, &two, "k").await;
        let third = queue(world, &three, "k").await;
        freeze(&two);
        world.sim.pass(ms(1)).await;
        assert_eq!(names(&one, "k").await.1, [three.leases.session()]);
        held.release().await.unwrap();
        let guard = world.within(ms(1), third).await.expect("nobody is before it");
        go_on(&two);
        world.sim.pass(ms(1)).await;
        assert_eq!(names(&one, "k").await.1, [two.leases.session()], "under its new name");
        guard.release().await.unwrap();
        assert!(world.within(ms(1), second).await.expect("it queued again").is_valid());
    });
}

#[test]
fn p_waiting_requests_of_several_keys_queue_again_inside_their_deadlines() {
    everywhere(async |world| {
        let [one, two] = [(); 2].map(|()| world.dark_tab());
        let mut held = join_all(["a", "b"].map(|key| one.leases.lock(key).acquire().map(Result::unwrap))).await;
        let start = world.now();
        let mut hasty = Box::pin(two.leases.lock("a").timeout(secs(10)).acquire());
        let mut patient = Box::pin(two.leases.lock("b").timeout(secs(30)).acquire());
        assert!(world.within(secs(1), &mut hasty).await.is_none());
        assert!((&mut patient).now_or_never().is_none());
        freeze(&two);
        world.sim.pass(secs(15)).await;
        go_on(&two);
        assert!(matches!(
            world.within(ms(1), hasty).await.expect("it is over").unwrap_err(),
            AcquireError::Timeout { .. }
        ));
        assert!(world.within(ms(1), &mut patient).await.is_none());
        assert_eq!(names(&one, "a").await.1, []);
        assert_eq!(names(&one, "b").await.1, [two.leases.session()]);
        held.pop().unwrap().release().await.unwrap();
        assert!(world.within(ms(1), patient).await.expect("there is time left").unwrap().is_valid());
        assert!(world.ms_since(start) < 30_000);
    });
}

#[test]
fn p_a_suspension_ends_whatever_is_under_way() {
    everywhere(async |world| {
        let [one, two] = [(); 2].map(|()| world.dark_tab());
        let suspended = AcquireError::Lost { key: "up".into(), reason: LostReason::Suspended };
        // An upgrade that waits for another reader.
        let shared = one.leases.lock("up").shared().acquire().await.unwrap();
        let reader = two.leases.lock("up").shared().acquire().await.unwrap();
        let mut upgrade = Box::pin(shared.upgrade());
        assert!(world.within(ms(1), &mut upgrade).await.is_none());
        // Several at once, a thief, and what lingers.
        let several = one.leases.lock_all([("m", Mode::Exclusive), ("n", Mode::Shared)]).try_acquire().await.unwrap();
        let victim = two.leases.lock("s").acquire().await.unwrap();
        let thief = one.leases.lock("s").steal().await.unwrap();
        drop(one.leases.lock("lingers").acquire().await.unwrap());
        let mut waits = Vec::new();
        for key in ["m", "s"] {
            waits.push(queue(world, &two, key).await);
        }
        freeze(&one);
        assert_eq!(world.within(ms(1), upgrade).await.expect("it is told").unwrap_err(), suspended);
        for guard in several.unwrap().into_guards().iter().chain([&shared, &thief]) {
            assert_eq!((guard.is_valid(), guard.lost().now_or_never()), (false, Some(LostReason::Suspended)));
        }
        assert!(world.within(ms(1), join_all(waits)).await.is_some());
        assert_eq!(victim.lost().now_or_never(), Some(LostReason::Stolen));
        for key in ["n", "lingers"] {
            assert!(two.leases.lock(key).try_acquire().await.unwrap().is_some(), "{key}");
        }
        reader.upgrade().await.unwrap();
        assert!(reader.is_valid() && reader.mode() == Mode::Exclusive, "no other reader is left");
    });
}

#[test]
fn p_work_that_is_to_end_with_its_lease_ends_and_a_leader_is_elected_anew() {
    everywhere(async |world| {
        let [one, two] = [(); 2].map(|()| world.dark_tab());
        let work = one.leases.lock("k").on_loss(OnLoss::Abort).run(async |_| world.sim.pass(secs(600)).await);
        let mut work = Box::pin(work);
        assert!(world.within(ms(1), &mut work).await.is_none());
        let mut reign = Box::pin(one.leases.elect("leader", async |_| world.sim.pass(secs(600)).await));
        assert!(world.within(ms(1), &mut reign).await.is_none());
        freeze(&one);
        let lost = world.within(ms(1), work).await.expect("it is aborted");
        assert!(lost.is_err(), "{lost:?}");
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_some());
        let mut next = Box::pin(two.leases.elect("leader", async |_| world.sim.pass(secs(600)).await));
        assert!(world.within(ms(1), &mut next).await.is_none());
        assert_eq!(names(&two, "leader").await.0, [two.leases.session()]);
    });
}

/// A lease that has left its guard has a session of its own: it outlives its context for a lease, and no longer.
#[test]
fn p_a_lease_without_a_guard_outlives_its_context_for_a_lease() {
    everywhere(async |world| {
        let [one, two] = [(); 2].map(|()| world.dark_tab());
        let parts = ["in time", "after its end", "never"].map(|key| one.leases.lock(key).acquire().map(Result::unwrap));
        let parts = join_all(parts).await.into_iter().map(LeaseGuard::into_parts);
        let [in_time, later, never] = <[_; 3]>::try_from(parts.collect::<Vec<_>>()).unwrap();
        let guard = two.leases.resume(in_time).await.unwrap();
        freeze(&one);
        world.sim.pass(LEASE / 2).await;
        let resumed = two.leases.resume(later).await.unwrap();
        let mut next = Box::pin(two.leases.lock("never").acquire());
        assert!(world.within(ms(1), &mut next).await.is_none(), "somebody may still resume it");
        assert!(world.within(LEASE * 2, next).await.expect("it is over").is_ok());
        assert_eq!(two.leases.resume(never).await.unwrap_err(), AcquireError::NotResumable);
        world.sim.pass(LEASE * 3).await;
        assert!(guard.is_valid() && resumed.is_valid(), "they are another's by then");
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
    });
}

/// Some of the last words are lost on the way.
#[test]
fn p_twenty_suspensions_leave_nothing_behind() {
    everywhere(async |world| {
        let tally = Tally::default();
        let oracle = Oracle::new(world.sim.clone(), tally.clone(), LEASE);
        let vault = Vault::new(StoreClock::Observed, false, 3, oracle.clone());
        let [one, two] = [(); 2].map(|()| {
            let executor = world.sim.context();
            let store = Line::new(vault.clone(), executor.clone(), oracle.clone(), 5_000);
            LeaseManager::builder(store, executor)
                .lease(LEASE)
                .heartbeat(HEARTBEAT)
                .beacon(false)
                .linger(ms(0))
                .build()
                .unwrap()
        });
        for _ in 0..20 {
            let held = join_all(["k0", "k1", "k2"].map(|key| one.lock(key).acquire().map(Result::unwrap))).await;
            let mut wait = Box::pin(two.lock("k0").acquire());
            assert!(world.within(ms(1), &mut wait).await.is_none());
            one.suspend();
            wait.await.unwrap().release().await.unwrap();
            assert!(held.iter().all(|held| !held.is_valid()));
            one.wake();
        }
        for key in ["k0", "k1", "k2"] {
            two.lock(key).acquire().await.unwrap().release().await.unwrap();
        }
        assert_eq!(vault.entries(), Vec::<String>::new());
        // Peers that nobody ended are ended by whoever opened after them and saw them stand still.
        let _held = two.lock("k0").acquire().await.unwrap();
        world.sim.pass(LEASE * 3).await;
        let left = vault.sessions();
        assert!(left.len() <= 2 && left.contains(&two.session()), "{left:?}");
        oracle.verdict().unwrap();
    });
}

/// The answer says that the holder is there. It is on its way while the holder leaves.
#[test]
fn p_whoever_asks_while_the_holder_leaves_waits_for_nobody() {
    everywhere(async |world| {
        for leaves_after_ms in [1, 9, 11, 19] {
            let (one, two) = (world.dark_tab(), slow(world, 10));
            let _held = one.leases.lock("k").acquire().await.unwrap();
            let mut wait = Box::pin(two.lock("k").acquire());
            assert!(world.within(ms(leaves_after_ms), &mut wait).await.is_none());
            freeze(&one);
            let guard = world.within(ms(60), wait).await;
            let guard = guard.unwrap_or_else(|| panic!("it waits for who left after {leaves_after_ms} ms"));
            guard.unwrap().release().await.unwrap();
        }
    });
}

/// The platform may stop a context while it closes.
#[test]
fn p_who_is_suspended_while_it_closes_is_gone_at_once() {
    everywhere(async |world| {
        let [one, two] = [(); 2].map(|()| world.dark_tab());
        let _held = one.leases.lock("k").acquire().await.unwrap();
        let wait = queue(world, &two, "k").await;
        one.store.inject(Fault::Stall);
        let closing = one.leases.close();
        freeze(&one);
        world.within(ms(1), closing).await.expect("it has ended by that");
        assert!(world.within(ms(1), wait).await.expect("its row is gone").is_valid());
    });
}

/// Without a last word and without a beacon it takes a lease, and no longer.
#[test]
fn p_where_the_last_word_is_lost_silence_proves_it() {
    everywhere(async |world| {
        let [one, two] = [(); 2].map(|()| world.dark_tab());
        let _held = one.leases.lock("k").acquire().await.unwrap();
        let wait = queue(world, &two, "k").await;
        one.store.fail_always(Some(Fault::Fail));
        freeze(&one);
        assert!(world.within(LEASE * 2, wait).await.expect("it is silent").is_valid());
    });
}

#[test]
fn whoever_asks_a_suspended_context_how_a_key_stands_is_answered_at_once() {
    everywhere(async |world| {
        let (tab, other) = (world.tab(), world.tab());
        let _held = other.leases.lock("k").acquire().await.unwrap();
        tab.leases.suspend();
        let status = world.within(ms(1), tab.leases.status("k")).await.expect("it is answered").unwrap_err();
        assert!(matches!(&status, AcquireError::Store(why) if why.retry && why.applied == Applied::No), "{status}");
        let listed = world.within(ms(1), tab.leases.list("")).await.expect("it is answered");
        assert!(listed.is_err());
        tab.leases.wake();
        assert_eq!(tab.leases.status("k").await.unwrap().holders.len(), 1);
    });
}
