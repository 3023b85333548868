//! Where two things happen at once: each of these went wrong once.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, future::poll_immediate};
use leasehold::{
    LeaseManager, LeaseState, LostReason, Mode, ReleaseOutcome,
    executor::{Executor, MaybeSendFuture, SimExecutor},
    machine::{Now, StoreClock},
    store::{Fault, FaultyStore, MemoryStore},
};

use crate::support::{
    doubles::{Deaf, SlowStore},
    world::{HEARTBEAT, LEASE, everywhere, ms, secs},
};

pub(crate) struct Yard {
    pub(crate) sim: SimExecutor,
    pub(crate) shared: MemoryStore,
}

impl Yard {
    fn run<F: Future<Output = ()>>(scenario: impl FnOnce(SimExecutor, MemoryStore) -> F) {
        let sim = SimExecutor::new(1);
        sim.block_on(scenario(sim.clone(), MemoryStore::with_clock(StoreClock::Observed)));
    }

    /// A context whose store needs so long each way.
    fn slow(&self, each_way_ms: u64) -> LeaseManager {
        let store = SlowStore::new(self.shared.clone(), self.sim.clone(), each_way_ms..=each_way_ms);
        LeaseManager::builder(store, self.sim.context()).lease(LEASE).heartbeat(HEARTBEAT).build().unwrap()
    }

    fn slow_and_deaf(&self, each_way_ms: u64) -> LeaseManager {
        let store = SlowStore::new(self.shared.clone(), self.sim.clone(), each_way_ms..=each_way_ms);
        let builder = LeaseManager::builder(store, self.sim.context()).signals(Deaf);
        builder.lease(LEASE).heartbeat(HEARTBEAT).build().unwrap()
    }

    fn deaf(&self) -> LeaseManager {
        let builder = LeaseManager::builder(self.shared.clone(), self.sim.context()).signals(Deaf);
        builder.lease(LEASE).heartbeat(HEARTBEAT).build().unwrap()
    }

    fn faulty(&self) -> (LeaseManager, FaultyStore<MemoryStore>) {
        let store = FaultyStore::new(self.shared.clone());
        let builder = LeaseManager::builder(store.clone(), self.sim.context()).lease(LEASE).heartbeat(HEARTBEAT);
        (builder.build().unwrap(), store)
    }

    fn named(&self, instance: &str) -> LeaseManager {
        let builder = LeaseManager::builder(self.shared.clone(), self.sim.context()).instance(instance);
        builder.lease(LEASE).heartbeat(HEARTBEAT).build().unwrap()
    }

    /// A context whose store needs so long each way, and how many alarms it sets.
    fn slow_and_counted(&self, each_way_ms: u64) -> (LeaseManager, Arc<AtomicUsize>) {
        let store = SlowStore::new(self.shared.clone(), self.sim.clone(), each_way_ms..=each_way_ms);
        let executor = CountingExecutor { sim: self.sim.context(), alarms: Arc::default() };
        let alarms = executor.alarms.clone();
        (LeaseManager::builder(store, executor).lease(LEASE).heartbeat(HEARTBEAT).build().unwrap(), alarms)
    }

    async fn within<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future.fuse());
        let mut limit = pin!(self.sim.pass(limit).fuse());
        futures::select_biased! { value = future => Some(value), () = limit => None }
    }
}

/// So many alarms are enough for half a minute.
const MOST_ALARMS: usize = 1_000;

/// An executor that counts the alarms of its context, which is not to run in circles.
#[derive(Clone, Debug)]
struct CountingExecutor {
    sim: SimExecutor,
    alarms: Arc<AtomicUsize>,
}

impl Executor for CountingExecutor {
    fn now(&self) -> Now {
        self.sim.now()
    }

    fn spawn(&self, future: MaybeSendFuture<'static, ()>) {
        self.sim.spawn(future);
    }

    fn sleep(&self, duration: Duration) -> MaybeSendFuture<'static, ()> {
        let alarms = self.alarms.fetch_add(1, Ordering::Relaxed);
        // Whoever counts them finds too many; the test comes to its end all the same.
        self.sim.sleep(if alarms < MOST_ALARMS { duration } else { LEASE })
    }

    fn random(&self) -> u128 {
        self.sim.random()
    }
}

fn with_a_twin(scenario: impl AsyncFnOnce(&Yard, LeaseManager, SimExecutor, FaultyStore<MemoryStore>)) {
    yard(async |yard| {
        let executor = yard.sim.context();
        let store = FaultyStore::new(yard.shared.clone());
        let builder = LeaseManager::builder(store.clone(), executor.clone()).instance("w");
        let leases = builder.lease(LEASE).heartbeat(HEARTBEAT).build().unwrap();
        scenario(yard, leases, executor, store).await;
    });
}

fn yard(scenario: impl AsyncFnOnce(&Yard)) {
    Yard::run(|sim, shared| async move { scenario(&Yard { sim, shared }).await });
}

/// 01
#[test]
fn a_request_that_waits_for_tokens_outlives_the_linger() {
    yard(async |yard| {
        let leases = yard.slow(100);
        for _ in 0..64 {
            let guard = leases.lock("k").acquire().await.unwrap();
            drop(guard);
        }
        let next = yard.within(secs(60), leases.lock("k").acquire()).await;
        assert!(next.is_some_and(|next| next.is_ok()), "it waited for ever");
    });
}

/// 01, by a wish of another context
#[test]
fn a_request_in_doubt_outlives_the_linger() {
    yard(async |yard| {
        let leases = yard.slow(100);
        drop(leases.lock("k").acquire().await.unwrap());
        yard.sim.set_wall_clock(3_600_000);
        let next = yard.within(secs(60), leases.lock("k").acquire()).await;
        assert!(next.is_some_and(|next| next.is_ok()), "it waited for ever");
    });
}

/// 02
#[test]
fn an_exclusive_request_does_not_join_a_downgraded_lease() {
    yard(async |yard| {
        let (one, two) = (yard.slow(1), yard.slow(1));
        let first = one.lock("k").share_in_process().acquire().await.unwrap();
        first.downgrade().await.unwrap();
        let _reader = two.lock("k").shared().acquire().await.unwrap();
        let second = one.lock("k").share_in_process().try_acquire().await.unwrap();
        assert!(second.is_none(), "exclusive while another context shares");
    });
}

/// 02
#[test]
fn a_downgrade_takes_nothing_from_those_who_hold_too() {
    yard(async |yard| {
        let (one, two) = (yard.slow(1), yard.slow(1));
        let first = one.lock("k").share_in_process().acquire().await.unwrap();
        let second = one.lock("k").share_in_process().acquire().await.unwrap();
        first.downgrade().await.unwrap();
        assert_eq!((first.mode(), second.mode()), (Mode::Shared, Mode::Exclusive));
        let reader = two.lock("k").shared().try_acquire().await.unwrap();
        assert!(reader.is_none() || !second.is_valid(), "shared while the second guard holds exclusively");
        drop(second);
        yard.sim.pass(ms(500)).await;
        assert!(two.lock("k").shared().try_acquire().await.unwrap().is_some(), "all who are left share");
        assert!(first.is_valid());
    });
}

/// 03
#[test]
fn a_lease_that_is_being_downgraded_is_not_handed_on_exclusively() {
    yard(async |yard| {
        let (one, two) = (yard.slow(100), yard.slow(1));
        let first = one.lock("k").acquire().await.unwrap();
        assert!(poll_immediate(first.downgrade()).await.is_none());
        let waits = one.lock("k").acquire();
        drop(first);
        let second = waits.await.unwrap();
        yard.sim.pass(ms(500)).await;
        let reader = two.lock("k").shared().try_acquire().await.unwrap();
        assert!(reader.is_none() || !second.is_valid(), "both hold");
    });
}

/// 03
#[test]
fn an_upgrade_after_a_dropped_downgrade_is_a_real_one() {
    yard(async |yard| {
        let (one, two) = (yard.slow(100), yard.slow(1));
        let guard = one.lock("k").acquire().await.unwrap();
        assert!(poll_immediate(guard.downgrade()).await.is_none());
        guard.upgrade().await.unwrap();
        yard.sim.pass(ms(500)).await;
        let reader = two.lock("k").shared().try_acquire().await.unwrap();
        assert!(reader.is_none() || guard.mode() == Mode::Shared, "both hold");
    });
}

/// 03
#[test]
fn a_dropped_downgrade_shows_in_the_mode() {
    yard(async |yard| {
        let one = yard.slow(100);
        let guard = one.lock("k").acquire().await.unwrap();
        assert!(poll_immediate(guard.downgrade()).await.is_none());
        yard.sim.pass(ms(500)).await;
        assert_eq!(one.status("k").await.unwrap().holders[0].mode, Mode::Shared);
        assert_eq!(guard.mode(), Mode::Shared);
    });
}

/// 04
#[test]
fn a_twin_that_shares_does_not_swallow_an_upgrade() {
    yard(async |yard| {
        let (one, two) = (yard.named("w"), yard.named("w"));
        let first = one.lock("k").shared().acquire().await.unwrap();
        let second = two.lock("k").shared().acquire().await.unwrap();
        let mut upgrade = Box::pin(second.upgrade());
        let early = yard.within(secs(30), &mut upgrade).await;
        assert!(second.is_valid() || yard.within(ms(1), second.lost()).await.is_some(), "neither valid nor lost");
        drop(first);
        assert!(early.is_some() || yard.within(secs(30), upgrade).await.is_some(), "never answered");
    });
}

/// 05
#[test]
fn a_guard_that_goes_while_it_is_upgraded_takes_its_lease_along() {
    yard(async |yard| {
        let (one, two) = (yard.slow_and_deaf(50), yard.deaf());
        let guard = one.lock("k").shared().acquire().await.unwrap();
        let other = two.lock("k").shared().acquire().await.unwrap();
        let mut upgrade = Box::pin(guard.upgrade());
        assert!(yard.within(ms(400), &mut upgrade).await.is_none());
        // The store upgrades now, and nobody hears.
        other.release().await.unwrap();
        yard.sim.pass(ms(200)).await;
        drop(upgrade);
        drop(guard);
        let next = one.lock("k").shared().acquire().await.unwrap();
        for _ in 0..20 {
            yard.sim.pass(ms(50)).await;
            let writer = two.lock("k").try_acquire().await.unwrap();
            assert!(writer.is_none() || !next.is_valid(), "both hold");
        }
    });
}

/// 06
#[test]
fn an_upgrade_whose_signal_was_lost_does_not_lose_the_guard() {
    yard(async |yard| {
        let (one, two) = (yard.deaf(), yard.deaf());
        let guard = one.lock("k").shared().acquire().await.unwrap();
        let other = two.lock("k").shared().acquire().await.unwrap();
        let mut upgrade = Box::pin(guard.upgrade());
        assert!(yard.within(ms(100), &mut upgrade).await.is_none());
        other.release().await.unwrap();
        two.close().await;
        assert_eq!(yard.within(secs(30), upgrade).await, Some(Ok(())));
        assert!(guard.is_valid() && guard.mode() == Mode::Exclusive);
    });
}

/// 06
#[test]
fn a_question_during_an_upgrade_does_not_lose_the_guard() {
    yard(async |yard| {
        let (one, two) = (yard.deaf(), yard.deaf());
        let guard = one.lock("k").shared().acquire().await.unwrap();
        let other = two.lock("k").shared().acquire().await.unwrap();
        let mut upgrade = Box::pin(guard.upgrade());
        assert!(yard.within(ms(100), &mut upgrade).await.is_none());
        other.release().await.unwrap();
        two.close().await;
        assert_eq!(guard.verify().await, Ok(true));
        assert_eq!(yard.within(secs(30), upgrade).await, Some(Ok(())));
        assert!(guard.is_valid() && guard.mode() == Mode::Exclusive);
    });
}

/// 07
#[test]
fn an_upgrade_without_an_answer_leaves_no_guard_without_a_lease() {
    yard(async |yard| {
        let ((one, store), two) = (yard.faulty(), yard.slow(1));
        let guard = one.lock("k").shared().acquire().await.unwrap();
        store.fail_always(Some(Fault::LoseReply));
        assert!(guard.upgrade().await.is_err(), "it waits for the answer for ever");
        store.heal();
        for _ in 0..40 {
            yard.sim.pass(ms(100)).await;
            let writer = two.lock("k").try_acquire().await.unwrap();
            assert!(writer.is_none() || !guard.is_valid(), "both hold");
        }
        yard.sim.pass(secs(10)).await;
        assert!(guard.is_valid(), "it goes on sharing");
        assert!(two.lock("k").shared().try_acquire().await.unwrap().is_some());
    });
}

/// 08
#[test]
fn a_thief_whose_context_queues_already_goes_first() {
    everywhere(async |world| {
        let (one, two, three) = (world.tab(), world.tab(), world.tab());
        let robbed = one.leases.lock("k").acquire().await.unwrap();
        let mut second = Box::pin(two.leases.lock("k").acquire());
        assert!(world.within(ms(100), &mut second).await.is_none());
        let mut third = Box::pin(three.leases.lock("k").acquire());
        assert!(world.within(ms(100), &mut third).await.is_none());
        let thief = world.within(ms(100), three.leases.lock("k").steal()).await;
        assert!(thief.is_some_and(|thief| thief.is_ok()), "somebody else got what it stole");
        assert_eq!(robbed.lost().await, LostReason::Stolen);
    });
}

/// 08
#[test]
fn who_got_it_instead_is_not_robbed_too() {
    everywhere(async |world| {
        let (one, two, three) = (world.tab(), world.tab(), world.tab());
        let _robbed = one.leases.lock("k").acquire().await.unwrap();
        let mut second = Box::pin(two.leases.lock("k").acquire());
        assert!(world.within(ms(100), &mut second).await.is_none());
        let mut third = Box::pin(three.leases.lock("k").acquire());
        assert!(world.within(ms(100), &mut third).await.is_none());
        let mut thief = Box::pin(three.leases.lock("k").steal());
        let stolen = world.within(ms(100), &mut thief).await;
        drop(stolen);
        let second = world.within(secs(1), second).await;
        if let Some(second) = second {
            assert!(world.within(secs(30), second.unwrap().lost()).await.is_none(), "robbed by a heartbeat");
        }
    });
}

/// 09
#[test]
fn parts_are_resumed_once() {
    yard(async |yard| {
        let leases = yard.slow(1);
        let parts = leases.lock("k").acquire().await.unwrap().into_parts();
        let first = leases.resume(parts.clone()).await.unwrap();
        let again = leases.resume(parts).await;
        assert!(again.is_err() || !first.is_valid(), "two guards of one lease");
    });
}

/// 09
#[test]
fn old_parts_of_a_lease_that_was_taken_apart_again_are_void() {
    yard(async |yard| {
        let leases = yard.slow(1);
        let parts = leases.lock("k").acquire().await.unwrap().into_parts();
        let first = leases.resume(parts.clone()).await.unwrap();
        let token = first.token();
        let _new = first.into_parts();
        let again = leases.resume(parts).await;
        assert!(again.is_err() || again.unwrap().token() > token, "the same token twice");
    });
}

/// 10
#[test]
fn trying_for_several_keys_replaces_a_dead_holder() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let held = one.leases.lock("a").acquire().await.unwrap();
        one.store.fail_always(Some(Fault::Stall));
        one.executor.kill();
        std::mem::forget(held);
        let keys = [("a", Mode::Exclusive), ("b", Mode::Exclusive)];
        for _ in 0..60 {
            if two.leases.lock_all(keys).try_acquire().await.unwrap().is_some() {
                return;
            }
            world.sim.pass(secs(1)).await;
        }
        panic!("its holder is dead for a minute");
    });
}

/// 11
#[test]
fn holding_for_no_time_is_refused_or_lost_but_ends() {
    yard(async |yard| {
        let leases = yard.slow(10);
        let guard = yard.within(secs(10), leases.lock("k").max_hold(Duration::ZERO).acquire()).await;
        assert!(guard.is_some(), "asks for ever");
        let guard = yard.within(secs(10), leases.lock("k").max_hold(Duration::ZERO).try_acquire()).await;
        assert!(guard.is_some(), "asks for ever");
    });
}

/// 12
#[test]
fn an_upgrade_dropped_in_the_moment_of_its_success_leaves_the_guard_sharing() {
    yard(async |yard| {
        let (one, two) = (yard.slow(10), yard.slow(1));
        let guard = one.lock("k").shared().acquire().await.unwrap();
        let mut upgrade = Box::pin(guard.upgrade());
        assert!(poll_immediate(&mut upgrade).await.is_none());
        yard.sim.pass(ms(500)).await;
        // Answered, but not polled again.
        drop(upgrade);
        yard.sim.pass(ms(500)).await;
        assert_eq!(guard.mode(), Mode::Shared);
        assert!(two.lock("k").shared().try_acquire().await.unwrap().is_some());
    });
}

/// 13
#[test]
fn an_extension_ends_with_its_guard() {
    yard(async |yard| {
        let leases = yard.slow(1);
        let first = leases.lock("k").acquire().await.unwrap();
        first.extend(secs(3_600)).await.unwrap();
        drop(first);
        let _second = leases.lock("k").acquire().await.unwrap();
        yard.sim.pass(HEARTBEAT * 2).await;
        let holder = leases.status("k").await.unwrap().holders.remove(0);
        let now = yard.sim.now().wall;
        assert!(holder.expires_at < now.plus(60_000), "{:?} at {now:?}", holder.expires_at);
    });
}

/// 14
#[test]
fn a_twin_that_renewed_right_before_it_died_is_dead() {
    with_a_twin(async |yard, one, executor, store| {
        let guard = one.lock("k").acquire().await.unwrap();
        let two = yard.named("w");
        let mut waits = Box::pin(two.lock("k").acquire());
        assert!(yard.within(ms(100), &mut waits).await.is_none());
        assert_eq!(guard.verify().await, Ok(true));
        // It dies: nothing of it is left.
        store.fail_always(Some(Fault::Stall));
        drop((guard, one));
        executor.kill();
        let granted = yard.within(secs(60), waits).await.expect("it waits for ever");
        assert!(granted.is_ok(), "{granted:?}");
    });
}

/// 15
#[test]
fn a_try_to_share_ends_although_the_store_is_down() {
    yard(async |yard| {
        let (one, store) = yard.faulty();
        let guard = one.lock("k").shared().acquire().await.unwrap();
        store.fail_always(Some(Fault::Refuse));
        yard.sim.pass(LEASE).await;
        assert!(!guard.is_valid());
        let tried = yard.within(LEASE * 2, one.lock("k").shared().try_acquire()).await;
        assert!(tried.is_some(), "it waits for the store for ever");
        store.heal();
        yard.sim.pass(HEARTBEAT * 2).await;
        assert!(guard.is_valid());
    });
}

/// 16
#[test]
fn a_watch_hears_that_a_lease_was_taken_out_of_its_guard() {
    yard(async |yard| {
        let leases = yard.slow(1);
        let guard = leases.lock("k").acquire().await.unwrap();
        let mut watch = guard.watch();
        let mut changed = Box::pin(watch.changed());
        assert!(poll_immediate(&mut changed).await.is_none());
        let _parts = guard.into_parts();
        assert_eq!(yard.within(secs(1), changed).await, Some(LeaseState::Released));
    });
}

/// 17
#[test]
fn a_release_during_a_granted_upgrade_is_no_loss() {
    yard(async |yard| {
        let (one, two) = (yard.slow_and_deaf(50), yard.deaf());
        let guard = one.lock("k").shared().acquire().await.unwrap();
        let other = two.lock("k").shared().acquire().await.unwrap();
        let mut upgrade = Box::pin(guard.upgrade());
        assert!(yard.within(ms(400), &mut upgrade).await.is_none());
        other.release().await.unwrap();
        yard.sim.pass(ms(200)).await;
        drop(upgrade);
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
        yard.sim.pass(ms(500)).await;
        assert!(two.lock("k").try_acquire().await.unwrap().is_some());
    });
}

/// 18: the first opening is answered after its time limit, while the second one is on its way.
#[test]
fn a_session_that_is_opened_too_late_is_ended_without_haste() {
    yard(async |yard| {
        let (leases, alarms) = yard.slow_and_counted(3_000);
        drop(yard.within(secs(30), leases.lock("k").acquire()).await);
        let alarms = alarms.load(Ordering::Relaxed);
        assert!(alarms < MOST_ALARMS, "it woke itself {alarms} times");
    });
}

/// 19: the move to a session of its own is not answered, and the lease is taken over before it is tried again.
#[test]
fn a_lease_that_was_taken_over_here_is_not_moved_away_by_a_late_attempt() {
    yard(async |yard| {
        let ((one, store), two) = (yard.faulty(), yard.deaf());
        let guard = one.lock("k").acquire().await.unwrap();
        store.inject(Fault::LoseReply);
        let parts = guard.into_parts();
        let again = one.resume(parts).await.unwrap();
        for _ in 0..60 {
            yard.sim.pass(secs(1)).await;
            assert!(two.lock("k").try_acquire().await.unwrap().is_none() || !again.is_valid(), "both hold");
        }
        assert!(again.is_valid(), "nobody took it");
    });
}

/// 20: a dead session stands ahead at two keys, was seen last at one of them, and nobody waits there any more.
#[test]
fn a_silent_session_is_ended_wherever_it_stands_ahead() {
    for left_ms in (20_000..25_000).step_by(250) {
        yard(async |yard| {
            let frozen = yard.sim.context();
            let builder = LeaseManager::builder(yard.shared.clone(), frozen.clone()).signals(Deaf);
            let dead = builder.lease(LEASE).heartbeat(HEARTBEAT).build().unwrap();
            let _held = (dead.lock("a").acquire().await.unwrap(), dead.lock("b").acquire().await.unwrap());
            frozen.freeze();
            let (living, alarms) = yard.slow_and_counted(1_000);
            let mut first = Box::pin(living.lock("a").acquire());
            assert!(yard.within(ms(100), &mut first).await.is_none());
            let mut second = Box::pin(living.lock("b").acquire());
            assert!(yard.within(ms(left_ms), &mut second).await.is_none());
            drop(second);
            assert!(yard.within(secs(15), first).await.is_some(), "the dead keep it");
            let alarms = alarms.load(Ordering::Relaxed);
            assert!(alarms < MOST_ALARMS, "it woke itself {alarms} times");
        });
    }
}

/// 21: a signal says that a request was granted whose session was not confirmed, and never will be.
#[test]
fn a_grant_of_an_opening_that_was_never_answered_is_asked_for_again() {
    yard(async |yard| {
        let (one, (two, store)) = (yard.slow(0), yard.faulty());
        let first = one.lock("k").acquire().await.unwrap();
        store.inject(Fault::Silence);
        let mut second = Box::pin(two.lock("k").acquire());
        assert!(yard.within(ms(500), &mut second).await.is_none());
        first.release().await.unwrap();
        assert!(yard.within(LEASE * 2, second).await.is_some(), "it waits for ever");
    });
}

/// 22: nothing is released for longer than anybody may be silent, and the session goes on all the same.
#[test]
fn a_release_goes_on_as_long_as_its_session_does() {
    yard(async |yard| {
        let ((one, store), two) = (yard.faulty(), yard.deaf());
        let (first, second) = (one.lock("a").acquire().await.unwrap(), one.lock("b").acquire().await.unwrap());
        store.fail_always(Some(Fault::Refuse));
        drop(first);
        yard.sim.pass(LEASE * 2).await;
        store.heal();
        yard.sim.pass(HEARTBEAT).await;
        assert!(second.is_valid(), "nobody ended its session");
        assert!(yard.within(LEASE * 2, two.lock("a").acquire()).await.is_some(), "nobody holds it, and nobody gets it");
    });
}

/// 23: the upgrade is granted and stolen before its answer comes, and a signal tells of the theft before that.
#[test]
fn an_upgrade_that_was_stolen_before_it_was_answered_is_not_believed() {
    yard(async |yard| {
        let (one, two) = (yard.slow(1_000), yard.slow(0));
        let guard = one.lock("k").shared().acquire().await.unwrap();
        let mut upgrade = Box::pin(guard.upgrade());
        assert!(yard.within(ms(1_500), &mut upgrade).await.is_none());
        let thief = two.lock("k").steal().await.unwrap();
        let upgraded = yard.within(secs(30), upgrade).await;
        yard.sim.pass(HEARTBEAT * 2).await;
        assert!(thief.is_valid() && !guard.is_valid(), "both hold: {upgraded:?}");
        assert_eq!(yard.within(secs(1), guard.lost()).await, Some(LostReason::Stolen));
    });
}

/// 24: the answer to a downgrade comes after the store upgraded the lease again.
#[test]
fn a_late_downgrade_does_not_lose_the_lease_that_was_upgraded_since() {
    yard(async |yard| {
        let (one, store) = yard.faulty();
        let guard = one.lock("k").acquire().await.unwrap();
        store.inject(Fault::LoseReply);
        assert!(guard.downgrade().await.is_err());
        store.inject(Fault::LoseReply);
        let upgrade = guard.upgrade();
        let lost = yard.within(secs(10), upgrade).await;
        assert_eq!((lost, guard.is_valid()), (Some(Ok(())), true));
    });
}

/// 25: a request is dropped while its session is being opened, and the session goes on for another one.
#[test]
fn a_request_that_is_dropped_during_the_opening_leaves_nothing() {
    yard(async |yard| {
        let (one, two) = (yard.slow(1_000), yard.slow(1));
        let mut first = Box::pin(one.lock("a").acquire());
        assert!(yard.within(ms(500), &mut first).await.is_none());
        drop(first);
        let second = one.lock("b").acquire().await.unwrap();
        assert!(yard.within(LEASE * 3, two.lock("a").acquire()).await.is_some(), "nobody holds it, and nobody gets it");
        assert!(second.is_valid());
    });
}
