//! The platform ends a context, whose code may run on for a moment: a page that was closed can still write.

use futures::FutureExt;
use leasehold::{LostReason, executor::Lifecycle};

use crate::support::world::{LEASE, everywhere, ms, secs};

#[test]
fn s9_who_ends_while_it_uses_a_lease_keeps_others_out_until_its_beacon_goes() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        let mut wait = Box::pin(two.leases.lock("k").acquire());
        assert!(world.within(ms(100), &mut wait).await.is_none());
        one.executor.tell(Lifecycle::Ending);
        assert_eq!((guard.is_valid(), guard.lost().now_or_never()), (false, Some(LostReason::Suspended)));
        assert!(world.within(ms(500), &mut wait).await.is_none(), "its code may still run");
        one.crash(guard);
        assert!(world.within(ms(1), wait).await.expect("its beacon is gone").unwrap().is_valid());
    });
}

/// Nobody there rests on a lease, so nobody need wait.
#[test]
fn s9_who_ends_and_uses_nothing_leaves_the_key_at_once() {
    everywhere(async |world| {
        let (one, two, three) = (world.tab(), world.tab(), world.tab());
        drop(one.leases.lock("lingers").acquire().await.unwrap());
        let held = three.leases.lock("k").acquire().await.unwrap();
        let mut first = Box::pin(one.leases.lock("k").acquire());
        assert!(world.within(ms(100), &mut first).await.is_none());
        one.executor.tell(Lifecycle::Ending);
        one.executor.freeze();
        world.sim.pass(ms(1)).await;
        assert!(two.leases.lock("lingers").try_acquire().await.unwrap().is_some());
        assert!(two.leases.status("k").await.unwrap().queue.is_empty(), "its place is gone, too");
        held.release().await.unwrap();
    });
}

/// Nobody waits, so nobody has seen it go. The holder of `lives` answers, and costs the request no time.
#[test]
fn s9_who_only_tries_finds_out_that_the_holder_has_ended() {
    everywhere(async |world| {
        let (one, two, other) = (world.tab(), world.tab(), world.tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        let lives = other.leases.lock("lives").acquire().await.unwrap();
        one.executor.tell(Lifecycle::Ending);
        let start = world.now();
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none(), "its code may still run");
        assert!(world.ms_since(start) <= 300 && two.leases.status("k").await.unwrap().queue.is_empty());
        one.crash(guard);
        let start = world.now();
        let next = two.leases.lock("k").try_acquire().await.unwrap().expect("its beacon is gone");
        assert!(next.is_valid() && world.ms_since(start) <= 50, "after {} ms", world.ms_since(start));
        let start = world.now();
        assert!(two.leases.lock("lives").try_acquire().await.unwrap().is_none());
        assert_eq!(world.ms_since(start), 0);
        assert!(lives.is_valid());
    });
}

/// Nobody could tell its end from its silence.
#[test]
fn s9_who_ends_without_a_beacon_gives_its_lease_up_at_once() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.tab());
        let _guard = one.leases.lock("k").acquire().await.unwrap();
        one.executor.tell(Lifecycle::Ending);
        one.executor.freeze();
        assert!(
            world.within(ms(1), two.leases.lock("k").acquire()).await.expect("its row is gone").unwrap().is_valid()
        );
    });
}

/// A script may send the event, too.
#[test]
fn s9_who_goes_on_after_its_end_gives_its_lease_up_and_may_ask_again() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        one.executor.tell(Lifecycle::Ending);
        let mut again = Box::pin(one.leases.lock("k").acquire());
        assert!(world.within(ms(100), &mut again).await.is_none(), "who asks meanwhile waits");
        one.executor.tell(Lifecycle::Resumed);
        let again = world.within(ms(1), again).await.expect("it waits for nobody's lease").unwrap();
        assert!(again.is_valid() && !guard.is_valid() && again.token() > guard.token());
        let mut wait = Box::pin(two.leases.lock("k").acquire());
        assert!(world.within(LEASE * 3, &mut wait).await.is_none(), "its second lease counts as any other");
        again.release().await.unwrap();
        assert!(world.within(ms(1), wait).await.expect("it was released").unwrap().is_valid());
    });
}

#[test]
fn s9_who_neither_ends_nor_goes_on_is_silent_and_gives_way() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        one.executor.tell(Lifecycle::Ending);
        let next = world.within(LEASE + secs(10), two.leases.lock("k").acquire()).await;
        assert!(next.expect("its silence proves it").unwrap().is_valid() && !guard.is_valid());
    });
}
