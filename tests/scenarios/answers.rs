//! What the library says of a wait, an end and a refusal is true.

use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

use futures::future::{FutureExt, join, join_all};
use leasehold::{
    AcquireError, LeaseEventKind, Mode, OnLoss, ReleaseOutcome,
    store::{Fault, MemoryStore},
};

use crate::support::world::{HEARTBEAT, LEASE, Tab, everywhere, ms, secs};

async fn info_of_holder(onlooker: &Tab) -> Option<String> {
    onlooker.leases.status("k").await.unwrap().holders.first().map(|holder| holder.info.clone())
}

async fn hold_as(tab: &Tab, info: &str) {
    tab.leases.lock("k").info(info).acquire().await.unwrap().release().await.unwrap();
}

/// What the guide says under "Who is next": after 50 ms of holding, the requests of the context that came first go behind.
#[test]
fn after_a_tenure_the_requests_of_a_context_go_to_the_end_of_the_queue_together() {
    for (held_ms, served) in [(20, ["own, early", "own, late", "other"]), (60, ["other", "own, early", "own, late"])] {
        everywhere(async |world| {
            let (one, two) = (world.tab(), world.tab());
            let held = one.leases.lock("k").acquire().await.unwrap();
            let order = RefCell::new(Vec::new());
            // Whatever its priority, the other context waits for the end of the tenure.
            let waits = [(&one, 1, 0, "own, early"), (&two, 2, 5, "other"), (&one, 3, 0, "own, late")];
            let waits = waits.map(|(tab, after_ms, priority, name)| {
                let order = &order;
                async move {
                    world.sim.pass(ms(after_ms)).await;
                    let guard = tab.leases.lock("k").priority(priority).acquire().await.unwrap();
                    order.borrow_mut().push(name);
                    guard.release().await.unwrap();
                }
            });
            let release = async {
                world.sim.pass(ms(held_ms)).await;
                held.release().await.unwrap();
            };
            join(join_all(waits), release).await;
            assert_eq!(order.into_inner(), served, "after {held_ms} ms");
        });
    }
}

/// The guide describes the two limits of the builder in the same place.
#[test]
fn a_context_hands_a_lease_on_for_as_long_and_as_often_as_its_options_say() {
    for (tenure, handoffs, own_turns) in [(Duration::ZERO, 32, 0), (secs(1), 3, 3), (secs(1), 10, 10)] {
        everywhere(async |world| {
            let one = world.tab().with(|builder| builder.max_tenure(tenure).max_local_handoffs(handoffs));
            let two = world.tab();
            let held = one.leases.lock("k").acquire().await.unwrap();
            let turns = Cell::new(0);
            let own = (0..20).map(|_| async {
                let guard = one.leases.lock("k").acquire().await.unwrap();
                turns.set(turns.get() + 1);
                world.sim.pass(ms(1)).await;
                guard.release().await.unwrap();
            });
            let rival = async {
                let guard = two.leases.lock("k").acquire().await.unwrap();
                assert_eq!(turns.get(), own_turns, "before the rival's turn, with {tenure:?} and {handoffs} hand-offs");
                guard.release().await.unwrap();
            };
            let release = async {
                world.sim.pass(ms(10)).await;
                held.release().await.unwrap();
            };
            join(join_all(own), join(rival, release)).await;
            assert_eq!(turns.get(), 20);
        });
    }
}

/// The documentation of `changed_hands` says that a context remembers 256 keys.
#[test]
fn a_context_that_forgot_a_key_says_that_one_may_have_changed_hands() {
    everywhere(async |world| {
        let tab = world.tab();
        let is_told = async |key: String| {
            let guard = tab.leases.lock(&key).acquire().await.unwrap();
            let told = guard.changed_hands();
            guard.clear_changed();
            assert!(!guard.changed_hands());
            guard.release().await.unwrap();
            told
        };
        for key in 0..257 {
            assert!(!is_told(format!("k{key}")).await, "nobody else ever held k{key}");
        }
        assert!(!is_told("k256".into()).await, "it is remembered");
        assert!(is_told("k0".into()).await, "it was forgotten");
        assert!(is_told("new".into()).await, "this key may have been forgotten, too");
    });
}

/// What the guide says under "What others see".
#[test]
fn who_waits_for_its_own_context_is_not_in_the_queue() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let held = one.leases.lock("k").acquire().await.unwrap();
        let mut events = (one.leases.events(), two.leases.events());
        let mut own = Box::pin(one.leases.lock("k").acquire());
        assert!(world.within(ms(1), &mut own).await.is_none());
        let status = one.leases.status("k").await.unwrap();
        assert_eq!((status.position(), status.queue.len()), (None, 0));
        let waiting = |event: Option<leasehold::LeaseEvent>| match event.unwrap().kind {
            LeaseEventKind::Waiting { ahead } => ahead,
            other => panic!("{other:?}"),
        };
        assert_eq!(waiting(events.0.next().await), 0);
        let mut first = Box::pin(two.leases.lock("k").acquire());
        assert!(world.within(ms(1), &mut first).await.is_none());
        assert_eq!(waiting(events.1.next().await), 1, "the request that waits within the other context is not counted");
        let mut joins = Box::pin(two.leases.lock("k").acquire());
        assert!(world.within(ms(1), &mut joins).await.is_none());
        assert!(events.1.next().now_or_never().is_none(), "they share one position");
        assert_eq!(two.leases.status("k").await.unwrap().queue.len(), 1);
        drop((held, own, first, joins));
    });
}

/// A lease that lingers is not reused under another name; under the same one it costs nothing.
#[test]
fn the_info_of_a_holder_is_its_own() {
    everywhere(async |world| {
        let (one, onlooker) = (world.tab(), world.tab());
        hold_as(&one, "first").await;
        one.store.take_seen();
        let same = one.leases.lock("k").info("first").acquire().await.unwrap();
        assert_eq!(one.take_transactions(), 0);
        drop(same);
        let second = one.leases.lock("k").info("second").acquire().await.unwrap();
        assert_eq!(one.take_transactions(), 1, "the release and the request go together");
        assert_eq!(info_of_holder(&onlooker).await.as_deref(), Some("second"));
        drop(second);
        let tried = one.leases.lock("k").try_acquire().await.unwrap().expect("nobody else wants it");
        assert_eq!(info_of_holder(&onlooker).await.as_deref(), Some(""));
        drop(tried);
    });
}

/// After its own release a guard is neither expired nor lost.
#[test]
fn a_guard_that_was_released_says_so() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let guard = one.leases.lock("k").shared().acquire().await.unwrap();
        let clone = guard.clone();
        let other = two.leases.lock("k").shared().acquire().await.unwrap();
        let mut upgrading = Box::pin(guard.upgrade());
        assert!(world.within(ms(1), &mut upgrading).await.is_none());
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
        for error in [guard.extend(secs(1)).await, guard.upgrade().await, guard.downgrade().await] {
            let said = error.unwrap_err().to_string();
            assert!(said.contains("was released") && !said.contains("Expired"), "{said}");
        }
        assert!(clone.extend(secs(1)).await.is_ok(), "a clone holds on");
        clone.release().await.unwrap();
        let said = upgrading.await.unwrap_err().to_string();
        assert!(said.contains("was released"), "{said}");
        drop(other);
    });
}

/// Why parts become no guard: their guard had clones, or the store does not have their lease.
#[test]
fn parts_that_cannot_be_resumed_say_why() {
    everywhere(async |world| {
        let one = world.tab();
        let guard = one.leases.lock("k").acquire().await.unwrap();
        let empty = guard.clone().into_parts();
        let said = one.leases.resume(empty).await.unwrap_err().to_string();
        assert!(said.contains("clones") && !said.contains("Expired"), "{said}");
        let parts = guard.into_parts();
        let elsewhere = leasehold::LeaseManager::builder(MemoryStore::new(), world.sim.context()).build().unwrap();
        let said = elsewhere.resume(parts.clone()).await.unwrap_err().to_string();
        assert!(said.contains("another store") && !said.contains("Expired"), "{said}");
        assert!(one.leases.resume(parts).await.is_ok());
    });
}

/// A time-out blames others only if the store said that they hold the key.
#[test]
fn a_time_out_blames_nobody_who_did_not_hold_the_key() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let late = async |tab: &Tab| tab.leases.lock("k").timeout(ms(200)).acquire().await.unwrap_err().to_string();
        one.store.fail_always(Some(Fault::Stall));
        let said = late(&one).await;
        assert!(said.contains("the store did not say") && !said.contains("others held"), "{said}");
        one.store.heal();
        world.sim.pass(LEASE * 2).await;

        one.leases.suspend();
        let said = late(&one).await;
        assert!(said.contains("suspended") && !said.contains("others held"), "{said}");
        one.leases.wake();

        let held = two.leases.lock("k").acquire().await.unwrap();
        // The second of them joins the first, which is in the queue.
        let mut first = Box::pin(one.leases.lock("k").timeout(ms(150)).acquire());
        assert!(world.within(ms(100), &mut first).await.is_none());
        for said in [late(&one).await, first.await.unwrap_err().to_string()] {
            assert!(said.contains("others held the key \"k\""), "{said}");
        }

        // What was true before a suspension says nothing of the time after it.
        let mut waiting = Box::pin(one.leases.lock("k").timeout(ms(200)).acquire());
        assert!(world.within(ms(100), &mut waiting).await.is_none());
        one.leases.suspend();
        let said = waiting.await.unwrap_err().to_string();
        assert!(said.contains("suspended") && !said.contains("others held"), "{said}");
        drop(held);
    });
}

/// A guard that was lost holds nothing.
#[test]
fn a_time_out_does_not_blame_a_guard_that_was_lost() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let lost = one.leases.lock("k").acquire().await.unwrap();
        let _thief = two.leases.lock("k").steal().await.unwrap();
        lost.lost().await;
        for timeout in [ms(0), ms(200), HEARTBEAT] {
            let error = one.leases.lock("k").timeout(timeout).acquire().await.unwrap_err();
            assert!(matches!(&error, AcquireError::Timeout { held_here: false, .. }), "{error:?}");
            assert!(error.to_string().contains("others held"), "{error}");
        }
    });
}

/// What JavaScript refuses by the name of the option, Rust refuses, too.
#[test]
fn options_that_a_call_does_not_have_are_refused() {
    everywhere(async |world| {
        let tab = world.tab();
        let lock = || tab.leases.lock("k");
        let all = || tab.leases.lock_all([("k", Mode::Exclusive)]);
        let abort = || lock().on_loss(OnLoss::Abort);
        tab.store.take_seen();
        for (refused, option, remedy) in [
            (lock().timeout(ms(1)).try_acquire().await.err(), "timeout", "`acquire`"),
            (lock().priority(1).try_acquire().await.err(), "priority", "`acquire`"),
            (lock().timeout(ms(1)).try_run(async |_| ()).await.err(), "timeout", "`run`"),
            (all().timeout(ms(1)).try_acquire().await.err(), "timeout", "`acquire`"),
            (all().priority(1).try_acquire().await.err(), "priority", "`acquire`"),
            (abort().acquire().await.err(), "on_loss", "`run`"),
            (abort().try_acquire().await.err(), "on_loss", "`run`"),
            (abort().steal().await.err(), "on_loss", "`run`"),
            (lock().timeout(ms(1)).steal().await.err(), "timeout", "leave it out"),
            (lock().priority(1).steal().await.err(), "priority", "leave it out"),
            (abort().elect(async |_| ()).await.err(), "on_loss", "leave it out"),
            (lock().shared().elect(async |_| ()).await.err(), "shared", "leave it out"),
        ] {
            let error = refused.unwrap_or_else(|| panic!("{option} is accepted"));
            assert!(matches!(error, AcquireError::InvalidOptions(_)), "{error:?}");
            let said = error.to_string();
            assert!(
                said.starts_with(&format!("this call has no option `{option}`; ")) && said.contains(remedy),
                "{said}"
            );
        }
        assert_eq!(tab.take_transactions(), 0, "the store was not bothered");
        assert!(lock().timeout(ms(1)).elect(async |_| ()).await.is_ok(), "it limits the campaign");
        assert!(abort().try_run(async |_| ()).await.unwrap().is_some());
    });
}

/// As long as a lease can be extended, and no longer.
#[test]
fn a_hold_is_limited_to_a_day() {
    everywhere(async |world| {
        let tab = world.tab();
        let day = secs(24 * 60 * 60);
        drop(tab.leases.lock("k").max_hold(day).acquire().await.unwrap());
        for (hold, shown) in [(ms(0), "0 ms"), (day + ms(1), "86400001 ms"), (Duration::MAX, " ms")] {
            let said = tab.leases.lock("k").max_hold(hold).acquire().await.unwrap_err().to_string();
            assert!(said.contains(shown) && said.contains("1 to 86400000 ms"), "{said}");
        }
    });
}

/// A clone that escapes keeps the key, whatever the work says.
#[test]
fn a_clone_that_escapes_its_work_keeps_the_key() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let is_free = async || two.leases.lock("k").try_acquire().await.unwrap().is_some();
        let ran = one.leases.lock("k").run(async |lease| lease.clone()).await.unwrap();
        assert!(ran.lost.is_none() && ran.value.is_valid() && !is_free().await);
        drop(ran);
        assert!(is_free().await);
        let escaped = one.leases.elect("k", async |lease| lease).await.unwrap();
        assert!(escaped.is_valid() && !is_free().await);
        drop(escaped);
        assert!(is_free().await);
    });
}
