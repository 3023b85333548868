//! luci's `cv/lease`: L10 to L16.

use std::{pin::pin, time::Duration};

use leasehold::{
    AcquireError, InvalidOptions, LostReason, ReleaseOutcome,
    executor::Executor,
    machine::StoreClock,
    store::{Fault, Store},
};

use crate::support::world::{HEARTBEAT, LEASE, Tab, World, everywhere, ms, secs};

/// When the holder of `k` is seen to run out, counted from now.
async fn seen_expiry_ms(world: &World, tab: &Tab) -> u64 {
    let status = tab.leases.status("k").await.unwrap();
    status.holders[0].expires_at.as_ms() - world.sim.now().wall.as_ms()
}

/// Ends a context. What it still hears it can no longer answer.
fn crash(tab: &Tab) {
    tab.executor.kill();
    tab.store.fail_always(Some(Fault::Fail));
}

/// L10: applies for a new lease.
#[test]
fn l10_a_new_lease_names_its_holder_its_payload_and_its_end() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        assert!(two.leases.status("k").await.unwrap().is_idle());
        let guard = one.leases.lock("k").info("payload").acquire().await.unwrap();
        let status = two.leases.status("k").await.unwrap();
        let [holder] = &status.holders[..] else { panic!("{status:?}") };
        assert_eq!((holder.holder, holder.token), (one.leases.session(), guard.token()));
        assert_eq!(holder.info, "payload");
        assert_eq!(u128::from(seen_expiry_ms(world, &two).await), LEASE.as_millis());
        assert!(guard.remaining() < LEASE, "its holder believes in it for less, by the margin");
        assert!(guard.remaining() >= LEASE * 8 / 10);
    });
}

/// L11: already in lease.
#[test]
fn l11_an_active_lease_refuses_and_tells_who_and_until_when() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        for _ in 0..4 {
            assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none());
            let at_once = two.leases.lock("k").timeout(Duration::ZERO).acquire().await;
            assert!(matches!(at_once.unwrap_err(), AcquireError::Timeout { .. }));
            let status = two.leases.status("k").await.unwrap();
            assert!(!status.holders[0].own && status.holders[0].token == guard.token());
            assert!(status.queue.is_empty(), "who only tries leaves no place in the queue");
            assert!(seen_expiry_ms(world, &two).await > 0);
            world.sim.pass(HEARTBEAT).await;
        }
        assert!(guard.is_valid(), "the refused ones did no harm");
    });
}

/// L12: succeeds when the former lease is over.
#[test]
fn l12_a_lease_that_is_over_makes_room() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let old = one.leases.lock("k").auto_renew(false).acquire().await.unwrap();
        assert_eq!(old.lost().await, LostReason::Expired);
        let new = two.leases.lock("k").try_acquire().await.unwrap().expect("it is over");
        assert!(new.is_valid() && new.token() > old.token());
        assert!(!old.is_valid() && !old.verify().await.unwrap());
    });
}

/// L12, though its holder died: at once if all share one clock, else only for those who watched it.
#[test]
fn l12_the_lease_of_a_dead_holder_is_over_as_the_clock_says() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let _held = one.leases.lock("k").acquire().await.unwrap();
        crash(&one);
        // A refused try looks twice, 30 ms apart: in vain until the last moment.
        world.sim.pass(LEASE - ms(31)).await;
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none(), "not a moment earlier");
        world.sim.pass(ms(1)).await;
        let had = two.leases.lock("k").try_acquire().await.unwrap();
        assert_eq!(had.is_some(), two.store.clock() == StoreClock::Trusted);
        drop(had);
        world.sim.pass(LEASE + LEASE / 10).await;
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_some(), "watched for long enough");
    });
}

/// L13: times are whole milliseconds.
#[test]
fn l13_parts_of_a_millisecond_are_cut_off_a_lease_and_added_to_a_wait() {
    everywhere(async |world| {
        let lease = LEASE + Duration::from_micros(999);
        let (one, two) = (world.tab().with(|builder| builder.lease(lease)), world.tab());
        let guard = one.leases.lock("k").max_hold(Duration::from_micros(2_001)).acquire().await.unwrap();
        assert_eq!(u128::from(seen_expiry_ms(world, &two).await), LEASE.as_millis(), "never longer than was asked for");
        assert_eq!(guard.remaining(), ms(3), "never shorter than was asked for");
        let start = world.sim.now().monotonic;
        assert_eq!(guard.lost().await, LostReason::Expired);
        assert_eq!(world.sim.now().monotonic.since(start), 3);
        let held = one.leases.lock("k").acquire().await.unwrap();
        let start = world.sim.now().monotonic;
        let timed_out = two.leases.lock("k").timeout(Duration::from_nanos(4_000_001)).acquire().await;
        assert!(matches!(timed_out.unwrap_err(), AcquireError::Timeout { .. }));
        assert_eq!(world.sim.now().monotonic.since(start), 5, "never shorter than was asked for");
        assert!(held.is_valid());
    });
}

/// L14: terminates; does nothing when it is gone; and says when it is not current.
#[test]
fn l14_a_release_works_once_and_touches_nobody_elses_lease() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let first = one.leases.lock("k").acquire().await.unwrap();
        assert_eq!(first.release().await.unwrap(), ReleaseOutcome::Released);
        world.sim.pass(secs(1)).await;
        assert!(two.leases.status("k").await.unwrap().is_idle());
        assert_eq!(first.release().await.unwrap(), ReleaseOutcome::Released, "gone is gone");
        let second = one.leases.lock("k").acquire().await.unwrap();
        one.store.fail_always(Some(Fault::Refuse));
        let third = two.leases.lock("k").acquire().await.unwrap();
        one.store.heal();
        one.store.take_seen();
        assert_eq!(second.release().await.unwrap(), ReleaseOutcome::Lost, "not current, and no error");
        assert!(!one.store.take_seen().is_empty(), "which only the store could tell");
        assert!(third.is_valid() && third.verify().await.unwrap());
        assert_eq!(two.leases.status("k").await.unwrap().holders[0].token, third.token());
        assert_eq!(first.release().await.unwrap(), ReleaseOutcome::Released, "nor does an old one change its answer");
    });
}

/// L15: extends, in whole milliseconds, at least this long from now.
#[test]
fn l15_an_extended_lease_lasts_at_least_so_long() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let guard = one.leases.lock("k").auto_renew(false).acquire().await.unwrap();
        let span = LEASE * 3 + Duration::from_nanos(1);
        guard.extend(span).await.unwrap();
        assert!(guard.remaining() > LEASE * 3, "rounded up: {:?}", guard.remaining());
        assert!(u128::from(seen_expiry_ms(world, &two).await) > LEASE.as_millis() * 3, "onlookers see it too");
        guard.extend(secs(1)).await.unwrap();
        assert!(guard.remaining() > LEASE * 3, "a shorter span takes nothing away");
        let mut other = pin!(two.leases.lock("k").acquire());
        assert!(world.within(LEASE * 3, &mut other).await.is_none());
        assert!(guard.is_valid(), "to its last moment");
        let other = world.within(LEASE, other).await.expect("and no longer").unwrap();
        assert!(other.is_valid() && !guard.is_valid());
        for span in [Duration::ZERO, secs(86_401)] {
            let refused = other.extend(span).await.unwrap_err();
            assert!(matches!(refused, AcquireError::InvalidOptions(InvalidOptions::Span { .. })), "{refused}");
        }
    });
}

/// L15: errors if expired, missing, not current.
#[test]
fn l15_a_lease_that_is_over_gone_or_anothers_is_not_extended() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let expired = one.leases.lock("k").auto_renew(false).acquire().await.unwrap();
        world.sim.pass(LEASE).await;
        assert_eq!(
            expired.extend(LEASE).await.unwrap_err(),
            AcquireError::Lost { key: "k".into(), reason: LostReason::Expired }
        );
        assert!(two.leases.status("k").await.unwrap().is_idle(), "it is not won back by the way");
        let released = one.leases.lock("k").acquire().await.unwrap();
        released.release().await.unwrap();
        let again = released.extend(LEASE).await;
        assert_eq!(again, Err(AcquireError::Released { key: "k".into() }), "missing");
        let robbed = one.leases.lock("k").acquire().await.unwrap();
        let thief = two.leases.lock("k").steal().await.unwrap();
        assert!(matches!(robbed.extend(LEASE).await, Err(AcquireError::Lost { .. })), "not current");
        assert!(thief.is_valid() && thief.remaining() <= LEASE, "the other's lease is what it was");
    });
}

/// L16: `RetryIfLeased` without an inner iterator: waits while it is leased, and wakes at the end of the lease.
#[test]
fn l16_who_waits_wakes_when_the_lease_is_over() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let _held = one.leases.lock("k").acquire().await.unwrap();
        crash(&one);
        world.sim.pass(secs(3)).await;
        let (start, left_ms) = (world.sim.now().monotonic, seen_expiry_ms(world, &two).await);
        two.store.take_seen();
        assert!(two.leases.lock("k").acquire().await.unwrap().is_valid());
        let waited_ms = world.sim.now().monotonic.since(start);
        match two.store.clock() {
            // Nothing is due in between but the next heartbeat, at which the waiter looks.
            StoreClock::Trusted => assert!((left_ms..=left_ms + 5_000).contains(&waited_ms), "{waited_ms} ms"),
            // A lease and a margin of its own watching, whatever was shown.
            StoreClock::Observed => assert!((22_000..=22_001).contains(&waited_ms), "{waited_ms} ms"),
        }
        let asks = two.store.take_seen().len();
        assert!(asks <= 8, "by timer, not by polling: {asks} transactions");
    });
}

/// L16: stops unless it is leased: an error of the store ends the wait.
#[test]
fn l16_an_error_that_is_no_lease_ends_the_wait() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let held = one.leases.lock("k").acquire().await.unwrap();
        let mut waiting = pin!(two.leases.lock("k").acquire());
        assert!(world.within(secs(1), &mut waiting).await.is_none());
        two.store.fail_always(Some(Fault::Fail));
        let told = world.within(HEARTBEAT, waiting).await.expect("at the next look");
        assert!(matches!(told, Err(AcquireError::Store(_))), "{told:?}");
        assert!(held.is_valid());
    });
}

/// L16 with a limited inner iterator: whichever comes first, and its stop wins.
#[test]
fn l16_of_time_out_and_end_of_the_lease_the_earlier_counts() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let _held = one.leases.lock("k").acquire().await.unwrap();
        crash(&one);
        let start = world.sim.now().monotonic;
        let stopped = two.leases.lock("k").timeout(secs(8)).acquire().await;
        assert!(matches!(stopped.unwrap_err(), AcquireError::Timeout { .. }));
        assert_eq!(world.sim.now().monotonic.since(start), 8_000, "its stop wins");
        let granted = two.leases.lock("k").timeout(LEASE * 10).acquire().await.unwrap();
        let waited_ms = world.sim.now().monotonic.since(start);
        assert!(granted.is_valid());
        assert!(waited_ms <= 25_000, "the lease was over long before the time-out: {waited_ms} ms");
    });
}
