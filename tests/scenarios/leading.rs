//! waymaker's client, from its code: W1 to W15. A lost lease is never revived here (W5): winning again gives a new guard.

use std::time::Duration;
use std::{
    cell::RefCell,
    sync::{Arc, Mutex},
};

use futures::future::{FutureExt, join_all};
use leasehold::{
    AcquireError, LeaseGuard, LeaseManager, LeaseState, LostReason, Mode, ReleaseOutcome, StoreError,
    machine::{Action, Batch, Now, Reply, StoreClock},
    store::{Durability, Fault, MemoryStore, Reach, Store},
};

use crate::support::{
    doubles::Deaf,
    world::{HEARTBEAT, LEASE, World, everywhere, ms, secs},
};

/// W1: a try fails at once; without signals it looks once more, a moment later.
#[test]
fn w1_a_try_does_not_wait() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let deaf = world.tab().with(|builder| builder.signals(Deaf));
        let _held = one.leases.lock("k").acquire().await.unwrap();
        let start = world.now();
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none());
        let refused = two.leases.lock("k").timeout(ms(0)).acquire().await;
        assert!(matches!(refused.unwrap_err(), AcquireError::Timeout { .. }));
        assert_eq!(world.ms_since(start), 0);
        assert!(deaf.leases.lock("k").try_acquire().await.unwrap().is_none());
        assert_eq!(world.ms_since(start), 30);
    });
}

/// W2: a wait ends with its time-out, and leaves no place behind.
#[test]
fn w2_a_wait_ends_in_time_and_leaves_no_place() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let _held = one.leases.lock("k").acquire().await.unwrap();
        let start = world.now();
        let refused = two.leases.lock("k").timeout(secs(90)).acquire().await;
        assert!(matches!(refused.unwrap_err(), AcquireError::Timeout { .. }));
        assert_eq!(world.ms_since(start), 90_000);
        assert!(one.leases.status("k").await.unwrap().queue.is_empty());
    });
}

/// W3: a request whose answer was lost is asked again by the same name, and gets the same lease.
#[test]
fn w3_asking_again_is_the_same_request() {
    everywhere(async |world| {
        let tab = world.tab();
        tab.store.inject(Fault::LoseReply);
        let guard = tab.leases.lock("k").acquire().await.unwrap();
        let asked: Vec<_> = actions(&tab.store.take_seen())
            .filter_map(|action| if let Action::Acquire(ask) = action { Some(ask.request) } else { None })
            .collect();
        assert_eq!(asked.len(), 2);
        assert_eq!(asked[0], asked[1]);
        let status = tab.leases.status("k").await.unwrap();
        assert_eq!(status.holders.iter().map(|holder| holder.token).collect::<Vec<_>>(), [guard.token()]);
    });
}

fn actions(batches: &[Batch]) -> impl Iterator<Item = &Action> {
    batches.iter().flat_map(|batch| &batch.operations).map(|operation| &operation.action)
}

/// W4: the store was away for less than a lease: the same lease goes on, and nobody is told of a loss.
#[test]
fn w4_a_short_absence_of_the_store_loses_nothing() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        let (token, watch) = (guard.token(), guard.watch());
        one.store.fail_always(Some(Fault::Refuse));
        world.sim.pass(LEASE / 2).await;
        one.store.heal();
        world.sim.pass(LEASE).await;
        assert_eq!((watch.state(), guard.token()), (LeaseState::Held, token));
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none());
    });
}

/// W5: the lease is gone when the store comes back, and the key is free: a new term, with a larger token.
#[test]
fn w5_who_lost_the_lead_wins_it_anew_with_a_larger_token() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let terms = RefCell::new(Vec::new());
        let lead = one.leases.elect("k", async |guard| {
            let mut watch = guard.watch();
            terms.borrow_mut().push(guard.token());
            if terms.borrow().len() == 1 {
                watch.changed().await;
                std::future::pending().await
            }
        });
        let events = async {
            world.sim.pass(HEARTBEAT).await;
            one.store.fail_always(Some(Fault::Refuse));
            let between = two.leases.lock("k").acquire().await.unwrap();
            assert_eq!(between.release().await.unwrap(), ReleaseOutcome::Released);
            one.store.heal();
            between.token()
        };
        let (led, between) = futures::join!(world.within(LEASE * 10, lead), events);
        led.expect("it leads again").unwrap();
        let terms = terms.into_inner();
        assert_eq!(terms.len(), 2);
        assert!(terms[0] < between && between < terms[1], "{terms:?}, {between:?}");
    });
}

/// W6: the lease is gone and taken: lost, told once, and never held again.
#[test]
fn w6_what_was_taken_is_lost_once_and_for_good() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        let mut watch = guard.watch();
        one.store.fail_always(Some(Fault::Refuse));
        let next = two.leases.lock("k").acquire().await.unwrap();
        assert_eq!(watch.changed().await, LeaseState::Suspect);
        one.store.heal();
        assert_eq!(watch.changed().await, LeaseState::Lost(LostReason::Expired));
        next.release().await.unwrap();
        assert!(world.within(LEASE * 5, watch.changed()).await.is_none(), "told once");
        assert!(!guard.is_valid() && !guard.verify().await.unwrap());
        assert!(one.leases.status("k").await.unwrap().is_idle(), "nobody took it anew");
    });
}

/// W7: as long as nobody knows, it is tried again, and not lost.
#[test]
fn w7_what_nobody_knows_is_not_lost() {
    everywhere(async |world| {
        for fault in [Fault::Refuse, Fault::Stall, Fault::LoseReply, Fault::Silence] {
            let tab = world.dark_tab();
            let guard = tab.leases.lock("k").acquire().await.unwrap();
            tab.store.fail_always(Some(fault));
            tab.store.take_seen();
            world.sim.pass(LEASE * 3).await;
            assert_eq!((guard.watch().state(), guard.is_valid()), (LeaseState::Suspect, false), "{fault:?}");
            assert!(tab.store.take_beats() > 5, "it goes on asking: {fault:?}");
            tab.store.heal();
            world.sim.pass(HEARTBEAT * 2).await;
            assert_eq!((guard.watch().state(), guard.is_valid()), (LeaseState::Held, true), "{fault:?}");
            guard.release().await.unwrap();
        }
    });
}

/// W8: a release while the store is away ends it: nothing is asked for again when the store comes back.
#[test]
fn w8_a_release_in_bad_times_never_comes_to_hold_again() {
    everywhere(async |world| {
        let tab = world.tab().with(|builder| builder.beacon(false).linger(ms(0)));
        let guard = tab.leases.lock("k").acquire().await.unwrap();
        tab.store.fail_always(Some(Fault::Refuse));
        world.sim.pass(HEARTBEAT * 2).await;
        let released = guard.release();
        tab.store.take_seen();
        world.sim.pass(secs(1)).await;
        tab.store.heal();
        assert_eq!(released.await.unwrap(), ReleaseOutcome::Released);
        world.sim.pass(LEASE * 2).await;
        let asked = tab.store.take_seen();
        assert!(actions(&asked).all(|action| matches!(action, Action::Release { .. })), "{asked:?}");
        assert!(tab.leases.status("k").await.unwrap().is_idle());
    });
}

/// W9: after an upgrade the heartbeat keeps the grant that is held now, and not the one before it.
#[test]
fn w9_heartbeats_keep_the_present_grant() {
    everywhere(async |world| {
        let tab = world.tab();
        let guard = tab.leases.lock("k").shared().acquire().await.unwrap();
        world.sim.pass(HEARTBEAT).await;
        guard.upgrade().await.unwrap();
        world.sim.pass(ms(1)).await;
        tab.store.take_seen();
        world.sim.pass(LEASE).await;
        let seen = tab.store.take_seen();
        assert!(seen.len() >= 3 && actions(&seen).next().is_none(), "a heartbeat names no grant: {seen:?}");
        let recorded = tab.leases.status("k").await.unwrap().holders[0].token;
        assert_eq!(recorded, guard.token());
        assert!(guard.is_valid() && guard.verify().await.unwrap());
    });
}

/// W10: after the release there are no renewals.
#[test]
fn w10_a_release_ends_the_renewals() {
    everywhere(async |world| {
        let tab = world.tab();
        let guard = tab.leases.lock("k").acquire().await.unwrap();
        world.sim.pass(LEASE).await;
        assert!(tab.store.take_beats() > 0);
        guard.release().await.unwrap();
        world.sim.pass(LEASE * 5).await;
        assert_eq!(tab.store.take_beats(), 0);
    });
}

/// W11: several keys: sorted, all or nothing, each in its own mode.
#[test]
fn w11_several_keys_are_sorted_mixed_and_all_or_nothing() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let keys = [("c", Mode::Shared), ("a", Mode::Exclusive), ("b", Mode::Shared)];
        let all = one.leases.lock_all(keys).acquire().await.unwrap();
        assert_eq!(all.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
        let readable = [("b", Mode::Shared), ("c", Mode::Shared)];
        let readers = two.leases.lock_all(readable).try_acquire().await.unwrap().expect("shared by both");
        assert!(
            two.leases.lock_all([("d", Mode::Exclusive), ("a", Mode::Shared)]).try_acquire().await.unwrap().is_none()
        );
        assert!(one.leases.lock("d").try_acquire().await.unwrap().is_some(), "nothing was taken in part");
        assert!(all.is_valid() && readers.is_valid());
    });
}

/// W12: a higher priority goes first, whoever came first.
#[test]
fn w12_a_higher_priority_goes_first() {
    everywhere(async |world| {
        let tabs: Vec<_> = (0..4).map(|_| world.tab()).collect();
        let held = tabs[0].leases.lock("k").acquire().await.unwrap();
        let order = RefCell::new(Vec::new());
        let waits = [-1, 0, 5].into_iter().zip(&tabs[1..]).map(|(priority, tab)| {
            let order = &order;
            async move {
                // Who comes last has the highest priority.
                world.sim.pass(ms(u64::try_from(priority + 2).unwrap())).await;
                let guard = tab.leases.lock("k").priority(priority).acquire().await.unwrap();
                order.borrow_mut().push(priority);
                guard.release().await.unwrap();
            }
        });
        let release = async {
            world.sim.pass(secs(1)).await;
            held.release().await.unwrap();
        };
        futures::join!(join_all(waits), release);
        assert_eq!(order.into_inner(), [5, 0, -1]);
    });
}

/// W13: two readers share; a writer waits for both.
#[test]
fn w13_readers_share_and_a_writer_waits_for_both() {
    everywhere(async |world| {
        let (one, two, three) = (world.tab(), world.tab(), world.tab());
        let first = one.leases.lock("k").shared().acquire().await.unwrap();
        let second = two.leases.lock("k").shared().try_acquire().await.unwrap().expect("shared");
        let mut write = Box::pin(three.leases.lock("k").acquire());
        assert!(world.within(secs(1), &mut write).await.is_none());
        first.release().await.unwrap();
        assert!(world.within(secs(1), &mut write).await.is_none(), "the other one still reads");
        second.release().await.unwrap();
        let writer = world.within(ms(1), write).await.expect("at once").unwrap();
        assert!(writer.token() > second.token());
        assert!(one.leases.lock("k").shared().try_acquire().await.unwrap().is_none());
    });
}

/// W14: what is held or waited for, by the beginning of its name.
#[test]
fn w14_what_is_held_is_listed_by_prefix() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let _held = [
            one.leases.lock("jobs/2").acquire().await.unwrap(),
            two.leases.lock("jobs/1").shared().acquire().await.unwrap(),
            one.leases.lock("users/1").acquire().await.unwrap(),
        ];
        let gone = one.leases.lock("jobs/3").acquire().await.unwrap();
        drop(gone);
        world.sim.pass(secs(1)).await;
        let names = async |prefix: &str| {
            let listed = two.leases.list(prefix).await.unwrap();
            listed.into_iter().map(|status| status.key.as_str().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names("jobs/").await, ["jobs/1", "jobs/2"]);
        assert_eq!(names("").await, ["jobs/1", "jobs/2", "users/1"]);
        assert!(names("jobs/10").await.is_empty());
    });
}

/// W15: a store says what it outlives. When it forgot all the same, holders are told, and tokens go on growing, for the
/// wall clock is in them.
#[test]
fn w15_a_store_that_forgets_is_noticed_and_tokens_go_on_growing() {
    assert!(Durability::Ephemeral < Durability::Local && Durability::Local < Durability::Quorum);
    for clock in [StoreClock::Trusted, StoreClock::Observed] {
        let world = World::with_clock(1, clock);
        let contents = Arc::new(Mutex::new(MemoryStore::with_clock(clock)));
        let forgetful = Forgetful { reach: world.shared.reach(), contents: contents.clone() };
        assert_eq!(forgetful.durability(), Durability::Ephemeral);
        world.run(async {
            let leases = LeaseManager::builder(forgetful, world.sim.context()).build().unwrap();
            let guard = leases.lock("k").acquire().await.unwrap();
            world.sim.pass(ms(1)).await;
            *contents.lock().unwrap() = MemoryStore::with_clock(clock);
            let next = leases.lock("other").acquire().await.unwrap();
            assert_eq!(guard.lost().now_or_never(), Some(LostReason::StoreCleared), "at the first answer");
            let again = leases.lock("k").acquire().await.unwrap();
            assert!(again.token() > guard.token() && next.token() > guard.token());
            assert!(!guard.is_valid() && again.is_valid());
        });
    }
}

/// The store was wiped while the lease was in use, and nobody asked it in between.
#[test]
fn who_releases_a_lease_of_a_wiped_store_is_told_that_it_was_wiped() {
    for clock in [StoreClock::Trusted, StoreClock::Observed] {
        let world = World::with_clock(1, clock);
        let contents = Arc::new(Mutex::new(MemoryStore::with_clock(clock)));
        let forgetful = Forgetful { reach: world.shared.reach(), contents: contents.clone() };
        world.run(async {
            let leases = LeaseManager::builder(forgetful, world.sim.context()).linger(ms(0)).build().unwrap();
            let wipe = async |_: &LeaseGuard| {
                world.sim.pass(secs(1)).await;
                *contents.lock().unwrap() = MemoryStore::with_clock(clock);
            };
            let ran = leases.lock("k").run(wipe).await.unwrap();
            assert_eq!(ran.lost, Some(LostReason::StoreCleared));
        });
    }
}

/// A store whose contents may be lost.
#[derive(Debug)]
struct Forgetful {
    reach: Reach,
    contents: Arc<Mutex<MemoryStore>>,
}

impl Forgetful {
    fn contents(&self) -> MemoryStore {
        self.contents.lock().unwrap().clone()
    }
}

#[async_trait::async_trait]
impl Store for Forgetful {
    async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError> {
        self.contents().transact(batch, now, limit).await
    }

    async fn close(&self) {}

    fn clock(&self) -> StoreClock {
        self.contents().clock()
    }

    fn durability(&self) -> Durability {
        self.contents().durability()
    }

    fn reach(&self) -> Reach {
        self.reach.clone()
    }
}
