//! Shared and exclusive.

use std::cell::Cell;

use futures::{
    future::{FutureExt, join, join_all},
    join,
};
use leasehold::{LeaseGuard, Mode};

use crate::support::world::{HEARTBEAT, LEASE, Tab, everywhere, ms, secs};

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

#[test]
fn readers_share_and_keep_writers_out() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let readers = [read(&one).await, read(&one).await, read(&two).await];
        assert!(readers.iter().all(|reader| reader.is_valid() && reader.mode() == Mode::Shared));
        assert!(readers[0].token() != readers[1].token() && readers[1].token() != readers[2].token());
        for tab in [&one, &two] {
            assert!(tab.leases.lock("k").try_acquire().await.unwrap().is_none());
        }
        drop(readers);
        let writer = one.leases.lock("k").try_acquire().await.unwrap().expect("all have gone");
        assert!(!may_read(&one).await && !may_read(&two).await);
        assert!(is_exclusive(&writer));
    });
}

/// All readers at the head of the queue are granted by one hand-over, several of one context with one place.
#[test]
fn waiting_readers_are_granted_together() {
    everywhere(async |world| {
        let (one, two, three) = (world.tab(), world.tab(), world.tab());
        let writer = one.leases.lock("k").acquire().await.unwrap();
        let readers = [&two, &three, &two, &three].map(read);
        let events = async {
            world.sim.pass(ms(10)).await;
            assert_eq!(one.leases.status("k").await.unwrap().queue.len(), 2, "one place a context");
            writer.release().await.unwrap();
        };
        let (readers, ()) = join!(world.within(ms(11), join_all(readers)), events);
        let readers = readers.expect("at once, and none waits for another");
        assert!(readers.len() == 4 && readers.iter().all(LeaseGuard::is_valid));
        assert!(one.leases.lock("k").try_acquire().await.unwrap().is_none());
    });
}

/// Readers of the writer's own context neither pass it for ever, nor does it pass those who hold.
#[test]
fn a_writer_is_not_starved_by_readers_of_its_own_context() {
    everywhere(async |world| {
        let tab = world.tab();
        let written = Cell::new(false);
        let readers = (0..3).map(|reader| {
            let (tab, written) = (&tab, &written);
            async move {
                world.sim.pass(ms(reader * 7)).await;
                while !written.get() {
                    let guard = read(tab).await;
                    world.sim.pass(ms(20)).await;
                    assert!(guard.is_valid());
                }
            }
        });
        let writer = async {
            world.sim.pass(secs(1)).await;
            let start = world.now();
            let guard = tab.leases.lock("k").acquire().await.unwrap();
            let waited_ms = world.ms_since(start);
            assert!(waited_ms <= 70, "it waited for {waited_ms} ms");
            assert!(is_exclusive(&guard));
            written.set(true);
        };
        assert!(world.within(LEASE, join(join_all(readers), writer)).await.is_some());
    });
}

/// A queued writer is not passed by readers who come later, however well they would fit.
#[test]
fn readers_do_not_pass_a_queued_writer() {
    everywhere(async |world| {
        let (one, two, three) = (world.tab(), world.tab(), world.tab());
        let reader = read(&one).await;
        let mut write = Box::pin(two.leases.lock("k").acquire());
        assert!(world.within(ms(1), &mut write).await.is_none());
        assert!(!may_read(&three).await);
        let mut late = Box::pin(read(&three));
        assert!(world.within(secs(1), &mut late).await.is_none());
        reader.release().await.unwrap();
        let writer = world.within(ms(1), write).await.expect("it is next").unwrap();
        assert!(late.as_mut().now_or_never().is_none());
        writer.release().await.unwrap();
        assert!(world.within(ms(1), late).await.is_some());
    });
}

/// Once a writer has given up, in another context or in the readers' own, a reader need not wait for the other readers of its context.
#[test]
fn readers_of_one_context_share_again_once_a_queued_writer_has_given_up() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        for writer in [&one, &two] {
            let first = read(&one).await;
            assert!(writer.leases.lock("k").timeout(secs(1)).acquire().await.is_err());
            assert!(may_read(&one).await, "nobody waits any more");
            assert!(world.within(ms(1), read(&one)).await.is_some());
            drop(first);
        }
    });
}

/// The same holds if the writer gives up later, with a reader waiting behind it.
#[test]
fn a_reader_that_waits_for_a_queued_writer_is_granted_when_that_one_gives_up() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let first = read(&one).await;
        let mut write = Box::pin(two.leases.lock("k").acquire());
        assert!(world.within(secs(1), &mut write).await.is_none());
        let mut late = Box::pin(read(&one));
        assert!(world.within(secs(1), &mut late).await.is_none(), "the writer is next");
        assert!(!may_read(&one).await);
        drop(write);
        assert!(world.within(HEARTBEAT, late).await.is_some());
        assert!(first.is_valid());
    });
}

/// "Larger than that of every guard of this key whose lease had ended when the lease of this one was granted." A reader that joins a lease
/// of its own context gets a token of that lease, which may be older than leases that have ended since.
#[test]
fn a_token_is_larger_than_those_of_all_leases_that_had_ended() {
    everywhere(async |world| {
        let (one, two, three) = (world.tab(), world.tab(), world.tab());
        let first = read(&one).await;
        let second = read(&two).await;
        let ended = second.token();
        second.release().await.unwrap();
        let (joins, fresh) = (read(&one).await, read(&three).await);
        assert!(first.token() < joins.token() && joins.token() < ended, "it is of the lease of the first");
        assert!(ended < fresh.token(), "its lease was granted later");
        let last = fresh.token();
        drop((first, joins, fresh));
        let writer = two.leases.lock("k").acquire().await.unwrap();
        assert!(writer.token() > last, "all leases before had ended");
    });
}
