//! Scenarios of other systems' tests that need a store shared by several processes, for any such store: each context has
//! a connection of its own, and time is real. They bear the names that they have in simulated time in `tests/scenarios`.
//!
//! A store's own test program says `scenarios::tests!(open)`. That function gets a fresh store for the test of a name, or `None` where
//! its server is missing; the store's method `context` makes one more context in it.

#[path = "scenarios/readers.rs"]
mod readers;
#[path = "scenarios/removals.rs"]
pub(crate) mod removals;

use std::{
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    time::Duration,
};

use futures::{future::join_all, poll};
use leasehold::{AcquireError, LeaseGuard, LeaseManager, LeaseManagerBuilder, LostReason, Mode, ReleaseOutcome, Token};

use crate::leases::with_longer_leases;
pub(crate) use readers::*;

/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);
/// A lease whose end can be waited for, and which outlasts a look on a busy machine.
const SHORT: Duration = Duration::from_millis(2_000);
/// Long enough that nobody waits for its end.
const LONG: Duration = Duration::from_secs(3_600);

async fn context(open: &impl AsyncFn() -> LeaseManagerBuilder) -> LeaseManager {
    open().await.lease(LONG).linger(Duration::ZERO).build().expect("the options fit together")
}

async fn contexts(open: &impl AsyncFn() -> LeaseManagerBuilder, many: usize) -> Vec<LeaseManager> {
    join_all((0..many).map(|_| context(open))).await
}

/// One whose lease ends soon, unless it is renewed.
async fn brief(open: &impl AsyncFn() -> LeaseManagerBuilder) -> LeaseManager {
    lasting(open, SHORT).await
}

async fn lasting(open: &impl AsyncFn() -> LeaseManagerBuilder, lease: Duration) -> LeaseManager {
    open().await.lease(lease).build().expect("the options fit together")
}

/// Whether a holder that lives and renews its lease has kept it. It may be late on a busy machine. But whoever is granted the lease in its
/// place is granted it only after the holder has stopped believing.
fn is_kept(holder: &LeaseGuard, other: Option<&LeaseGuard>) -> Result<(), String> {
    let is_valid = holder.is_valid();
    assert!(!is_valid || other.is_none(), "a holder that renews its lease is overtaken: {holder:?}, {other:?}");
    if is_valid { Ok(()) } else { Err(format!("{holder:?}")) }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// How many are inside, and the most that ever were.
#[derive(Default)]
struct Room {
    inside: AtomicUsize,
    most: AtomicUsize,
}

impl Room {
    async fn visit(&self) {
        let inside = self.inside.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(inside, SeqCst);
        tokio::time::sleep(ms(2)).await;
        self.inside.fetch_sub(1, SeqCst);
    }

    fn most(&self) -> usize {
        self.most.load(SeqCst)
    }
}

pub(crate) async fn s1_never_more_than_one_is_inside(open: impl AsyncFn() -> LeaseManagerBuilder) {
    let (contexts, room) = (contexts(&open, 4).await, Room::default());
    join_all(contexts.iter().map(async |leases| {
        for _ in 0..5 {
            let guard = leases.lock("k").timeout(BUSY).acquire().await.unwrap();
            room.visit().await;
            guard.release().await.unwrap();
        }
    }))
    .await;
    assert_eq!(room.most(), 1);
}

pub(crate) async fn s2_taken_then_refused_then_released_then_taken(open: impl AsyncFn() -> LeaseManagerBuilder) {
    let (one, two) = (context(&open).await, context(&open).await);
    let guard = one.lock("k").acquire().await.unwrap();
    assert!(two.lock("k").try_acquire().await.unwrap().is_none());
    assert!(guard.is_valid() && guard.verify().await.unwrap());
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
    let next = two.lock("k").try_acquire().await.unwrap().expect("it is free");
    assert!(next.token() > guard.token());
}

pub(crate) async fn s3_renewal_keeps_the_lease(open: impl AsyncFn() -> LeaseManagerBuilder) {
    with_longer_leases(SHORT, async |lease| {
        let [one, two] = [lasting(&open, lease).await, lasting(&open, lease).await];
        let guard = one.lock("k").timeout(BUSY).acquire().await.unwrap();
        let refused = two.lock("k").timeout(lease * 3).acquire().await;
        is_kept(&guard, refused.as_ref().ok())?;
        match refused {
            Err(AcquireError::Timeout { held_elsewhere: true, .. }) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

pub(crate) async fn s4_a_holder_that_does_not_renew_is_overtaken_and_told(open: impl AsyncFn() -> LeaseManagerBuilder) {
    let (one, two) = (brief(&open).await, brief(&open).await);
    let guard = one.lock("k").auto_renew(false).timeout(BUSY).acquire().await.unwrap();
    let next = two.lock("k").timeout(BUSY).acquire().await.unwrap();
    assert!(next.token() > guard.token());
    assert!(!guard.is_valid());
    assert_eq!(guard.lost().await, LostReason::Expired);
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Lost);
    assert!(next.verify().await.unwrap(), "a late release touches nobody else's lease");
}

/// Acquires `k`, drops the guard without a release, and returns its token. The context lives on, but does not renew the lease.
async fn orphan(leases: &LeaseManager, mode: Mode) -> Token {
    let guard = leases.lock("k").mode(mode).timeout(BUSY).acquire().await.unwrap();
    let token = guard.token();
    drop(guard.into_parts());
    token
}

/// Whether a try finds the key taken. On a busy machine, the store may answer a context with a short lease too late.
async fn is_taken(leases: &LeaseManager) -> Result<(), String> {
    match leases.lock("k").try_acquire().await {
        Ok(None) => Ok(()),
        answer => Err(format!("the lease is still in the store: {answer:?}")),
    }
}

pub(crate) async fn s5_a_lease_that_was_dropped_without_release_can_be_taken_after_its_time(
    open: impl AsyncFn() -> LeaseManagerBuilder,
) {
    with_longer_leases(SHORT, async |lease| {
        let (one, two) = (lasting(&open, lease).await, lasting(&open, lease).await);
        let orphaned = orphan(&one, Mode::Exclusive).await;
        is_taken(&two).await?;
        let next = two.lock("k").timeout(BUSY).acquire().await.unwrap();
        assert!(next.token() > orphaned);
        Ok(())
    })
    .await;
}

pub(crate) async fn s6_closing_releases_everything_and_refuses_what_comes(open: impl AsyncFn() -> LeaseManagerBuilder) {
    let (one, two) = (context(&open).await, context(&open).await);
    let guards = [one.lock("a").acquire().await.unwrap(), one.lock("b").acquire().await.unwrap()];
    one.close().await;
    assert!(guards.iter().all(|guard| !guard.is_valid()));
    for key in ["a", "b"] {
        assert!(two.lock(key).try_acquire().await.unwrap().is_some(), "{key} is free");
    }
    assert!(matches!(one.lock("a").acquire().await, Err(AcquireError::Closed)));
}

pub(crate) async fn s8_three_readers_are_inside_together(open: impl AsyncFn() -> LeaseManagerBuilder) {
    let contexts = contexts(&open, 3).await;
    let readers = join_all(contexts.iter().map(|leases| leases.lock("k").shared().timeout(BUSY).acquire())).await;
    let readers: Vec<_> = readers.into_iter().map(Result::unwrap).collect();
    assert!(readers.iter().all(|guard| guard.is_valid() && guard.mode() == Mode::Shared));
    let status = contexts[0].status("k").await.unwrap();
    assert_eq!(status.holders.len(), 3);
}

pub(crate) async fn s9_a_writer_blocks_readers_and_writers(open: impl AsyncFn() -> LeaseManagerBuilder) {
    let (one, two) = (context(&open).await, context(&open).await);
    let writer = one.lock("k").acquire().await.unwrap();
    assert!(two.lock("k").shared().try_acquire().await.unwrap().is_none());
    assert!(two.lock("k").try_acquire().await.unwrap().is_none());
    writer.release().await.unwrap();
    assert!(two.lock("k").shared().try_acquire().await.unwrap().is_some());
}

pub(crate) async fn s10_a_reader_blocks_writers_until_the_last_one_has_gone(
    open: impl AsyncFn() -> LeaseManagerBuilder,
) {
    let (one, two, three) = (context(&open).await, context(&open).await, context(&open).await);
    let readers = [one.lock("k").shared().acquire().await.unwrap(), two.lock("k").shared().acquire().await.unwrap()];
    let mut writer = Box::pin(three.lock("k").timeout(BUSY).acquire());
    for reader in readers {
        let early = tokio::time::timeout(ms(50), &mut writer).await;
        assert!(early.is_err(), "a writer came in beside a reader");
        reader.release().await.unwrap();
    }
    assert!(writer.await.unwrap().is_valid());
}

pub(crate) async fn s12_of_two_readers_only_the_silent_one_is_overtaken(open: impl AsyncFn() -> LeaseManagerBuilder) {
    with_longer_leases(SHORT, async |lease| {
        let [one, two, three] = [lasting(&open, lease).await, lasting(&open, lease).await, lasting(&open, lease).await];
        let silent = one.lock("k").shared().auto_renew(false).timeout(BUSY).acquire().await.unwrap();
        let live = two.lock("k").shared().timeout(BUSY).acquire().await.unwrap();
        let mut writer = Box::pin(three.lock("k").timeout(BUSY * 2).acquire());
        assert!(poll!(&mut writer).is_pending());
        let lost = tokio::time::timeout(BUSY, silent.lost()).await;
        assert_eq!(lost, Ok(LostReason::Expired), "the silent reader is told");
        let early = tokio::time::timeout(ms(300), &mut writer).await;
        is_kept(&live, early.as_ref().ok().and_then(|early| early.as_ref().ok()))?;
        assert!(early.is_err(), "a reader that lives is waited for: {early:?}");
        assert!(!silent.is_valid());
        let released = live.release().await;
        if released != Ok(ReleaseOutcome::Released) {
            return Err(format!("the release of the reader that lives: {released:?}"));
        }
        assert!(writer.await.unwrap().token() > silent.token());
        Ok(())
    })
    .await;
}

pub(crate) async fn s13_a_key_is_free_a_lease_after_its_reader_or_writer_was_dropped(
    open: impl AsyncFn() -> LeaseManagerBuilder,
) {
    with_longer_leases(SHORT, async |lease| {
        let (one, two) = (lasting(&open, lease).await, lasting(&open, lease).await);
        for mode in [Mode::Shared, Mode::Exclusive] {
            let orphaned = orphan(&one, mode).await;
            is_taken(&two).await?;
            let writer = two.lock("k").timeout(BUSY).acquire().await.unwrap();
            assert!(writer.token() > orphaned);
            writer.release().await.unwrap();
        }
        Ok(())
    })
    .await;
}

pub(crate) async fn s15_several_locks_are_had_together_or_not_at_all(open: impl AsyncFn() -> LeaseManagerBuilder) {
    let (one, two) = (context(&open).await, context(&open).await);
    let middle = one.lock("b").acquire().await.unwrap();
    let all = || two.lock_all([("a", Mode::Exclusive), ("b", Mode::Shared), ("c", Mode::Exclusive)]);
    assert!(all().try_acquire().await.unwrap().is_none());
    for key in ["a", "c"] {
        let status = one.status(key).await.unwrap();
        assert!(status.holders.is_empty() && status.queue.is_empty(), "residue of {key}: {status:?}");
    }
    middle.release().await.unwrap();
    let held = all().timeout(BUSY).acquire().await.unwrap();
    for key in ["a", "b", "c"] {
        assert!(one.lock(key).try_acquire().await.unwrap().is_none(), "{key} is held");
    }
    held.release().await.unwrap();
    assert!(one.lock("b").try_acquire().await.unwrap().is_some());
}

pub(crate) async fn s18_many_waiters_of_many_contexts_are_all_served(open: impl AsyncFn() -> LeaseManagerBuilder) {
    let (contexts, room) = (contexts(&open, 10).await, Room::default());
    let waiters = contexts.iter().flat_map(|leases| (0..10).map(move |_| leases.lock("k").timeout(BUSY).acquire()));
    let served = join_all(waiters.map(async |waiter| {
        let guard = waiter.await.unwrap();
        let token = guard.token();
        room.inside.fetch_add(1, SeqCst);
        assert_eq!(room.inside.load(SeqCst), 1, "two are inside");
        tokio::task::yield_now().await;
        room.inside.fetch_sub(1, SeqCst);
        guard.release().await.unwrap();
        token
    }))
    .await;
    let mut tokens = served;
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), 100, "each has a token of its own");
}

pub(crate) async fn s19_a_waiter_of_another_worker_is_told_of_the_release(open: impl AsyncFn() -> LeaseManagerBuilder) {
    let (one, two) = (context(&open).await, context(&open).await);
    for _ in 0..5 {
        let guard = one.lock("k").timeout(BUSY).acquire().await.unwrap();
        let wait = async { two.lock("k").timeout(BUSY).acquire().await.unwrap() };
        let release = async {
            while one.status("k").await.unwrap().queue.is_empty() {
                tokio::task::yield_now().await;
            }
            guard.release().await.unwrap();
        };
        // Whoever is not told looks once a heartbeat, and that is a quarter of an hour here.
        let (next, ()) = futures::join!(wait, release);
        assert!(next.token() > guard.token());
    }
}

pub(crate) async fn s20_a_waiter_of_another_worker_is_served_when_the_guard_is_gone(
    open: impl AsyncFn() -> LeaseManagerBuilder,
) {
    let (one, two) = (brief(&open).await, brief(&open).await);
    let guard = one.lock("k").timeout(BUSY).acquire().await.unwrap();
    let held = guard.token();
    let wait = async { two.lock("k").timeout(BUSY).acquire().await.unwrap() };
    let vanish = async {
        while one.status("k").await.unwrap().queue.is_empty() {
            tokio::task::yield_now().await;
        }
        drop(guard.into_parts());
        assert_eq!(one.status("k").await.unwrap().holders.len(), 1, "it still stands in the store");
    };
    let (next, ()) = futures::join!(wait, vanish);
    assert!(next.token() > held);
}

/// A wait ended by its own limit: not before, and not by the end of a lease. A busy machine may take some seconds.
fn is_in_time(waited: Duration, limit: Duration) -> bool {
    (limit..Duration::from_secs(15)).contains(&waited)
}

pub(crate) async fn g1_a_taken_lock_is_refused_in_time_and_free_after_the_release(
    open: impl AsyncFn() -> LeaseManagerBuilder,
) {
    let (one, two) = (context(&open).await, context(&open).await);
    let held = one.lock("k").acquire().await.unwrap();
    let refused = two.lock("k").timeout(ms(300)).acquire().await;
    assert!(matches!(refused, Err(AcquireError::Timeout { waited, .. }) if is_in_time(waited, ms(300))), "{refused:?}");
    assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Released);
    let third = two.lock("k").timeout(BUSY).acquire().await.unwrap();
    let thief = one.lock("k").steal().await.unwrap();
    assert_eq!(third.release().await.unwrap(), ReleaseOutcome::Lost, "late is no error");
    assert!(thief.verify().await.unwrap());
}

pub(crate) async fn g4_a_second_release_does_not_free_the_next_holder(open: impl AsyncFn() -> LeaseManagerBuilder) {
    let (one, two) = (context(&open).await, context(&open).await);
    let first = one.lock("k").acquire().await.unwrap();
    first.release().await.unwrap();
    let second = two.lock("k").acquire().await.unwrap();
    assert_eq!(first.release().await.unwrap(), ReleaseOutcome::Released, "the answer stays the same");
    drop(first);
    assert!(second.verify().await.unwrap());
    assert!(one.lock("k").try_acquire().await.unwrap().is_none());
}

pub(crate) async fn g7_fifty_workers_count_exactly(open: impl AsyncFn() -> LeaseManagerBuilder) {
    let contexts = contexts(&open, 5).await;
    let count = AtomicUsize::new(0);
    join_all((0..50).map(async |worker: usize| {
        let guard = contexts[worker % 5].lock("k").timeout(BUSY).acquire().await.unwrap();
        let read = count.load(SeqCst);
        tokio::task::yield_now().await;
        count.store(read + 1, SeqCst);
        guard.release().await.unwrap();
    }))
    .await;
    assert_eq!(count.load(SeqCst), 50);
}

pub(crate) async fn r2_of_many_tries_one_succeeds_and_extends(open: impl AsyncFn() -> LeaseManagerBuilder) {
    // Nobody waits for the end of this lease. A shorter one would leave the store less time to answer.
    let lease = BUSY / 3;
    let contexts = join_all((0..6).map(|_| lasting(&open, lease))).await;
    let tries = join_all(contexts.iter().map(|leases| leases.lock("k").try_acquire())).await;
    let winners: Vec<_> = tries.into_iter().filter_map(Result::unwrap).collect();
    assert_eq!(winners.len(), 1);
    winners[0].extend(BUSY).await.unwrap();
    assert!(winners[0].remaining() > lease);
}

pub(crate) async fn r3_who_finds_it_taken_learns_by_whom(open: impl AsyncFn() -> LeaseManagerBuilder) {
    let (one, two) = (context(&open).await, context(&open).await);
    let held = one.lock("k").info("backup").acquire().await.unwrap();
    assert!(two.lock("k").try_acquire().await.unwrap().is_none());
    let status = two.status("k").await.unwrap();
    assert_eq!(status.holders.len(), 1);
    let holder = &status.holders[0];
    assert_eq!((holder.holder, holder.token), (one.session(), held.token()));
    assert_eq!((holder.info.as_str(), holder.own), ("backup", false));
    assert!(status.queue.is_empty(), "who tried left no place");
}

pub(crate) async fn r11_locked_here_and_unlocked_elsewhere(open: impl AsyncFn() -> LeaseManagerBuilder) {
    let (one, two) = (context(&open).await, context(&open).await);
    let parts = one.lock("k").acquire().await.unwrap().into_parts();
    let resumed = two.resume(parts).await.unwrap();
    assert!(resumed.is_valid() && one.lock("k").try_acquire().await.unwrap().is_none());
    assert_eq!(resumed.release().await.unwrap(), ReleaseOutcome::Released);
    assert!(one.lock("k").try_acquire().await.unwrap().is_some());
}

pub(crate) async fn w2_a_wait_ends_in_time_and_leaves_no_place(open: impl AsyncFn() -> LeaseManagerBuilder) {
    let (one, two) = (context(&open).await, context(&open).await);
    let held = one.lock("k").acquire().await.unwrap();
    let late = two.lock("k").timeout(ms(200)).acquire().await;
    assert!(matches!(late, Err(AcquireError::Timeout { waited, .. }) if is_in_time(waited, ms(200))), "{late:?}");
    // The place is given back behind the answer's back.
    while !one.status("k").await.unwrap().queue.is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(held.is_valid());
}

pub(crate) async fn w6_what_was_taken_is_lost_once_and_for_good(open: impl AsyncFn() -> LeaseManagerBuilder) {
    let (one, two) = (context(&open).await, context(&open).await);
    let guard = one.lock("k").acquire().await.unwrap();
    let thief = two.lock("k").steal().await.unwrap();
    assert_eq!(guard.lost().await, LostReason::Stolen);
    assert!(!guard.is_valid());
    assert_eq!(guard.extend(BUSY).await, Err(AcquireError::Lost { key: "k".into(), reason: LostReason::Stolen }));
    assert!(thief.verify().await.unwrap());
}

pub(crate) async fn w12_a_higher_priority_goes_first(open: impl AsyncFn() -> LeaseManagerBuilder) {
    let (one, two, three) = (context(&open).await, context(&open).await, context(&open).await);
    let held = one.lock("k").acquire().await.unwrap();
    let queued = async |many: usize| {
        while one.status("k").await.unwrap().queue.len() < many {
            tokio::task::yield_now().await;
        }
    };
    let low = async {
        let guard = two.lock("k").timeout(BUSY).acquire().await.unwrap();
        let token = guard.token();
        guard.release().await.unwrap();
        token
    };
    let high = async {
        queued(1).await;
        let guard = three.lock("k").priority(1).timeout(BUSY).acquire().await.unwrap();
        let token = guard.token();
        guard.release().await.unwrap();
        token
    };
    let release = async {
        queued(2).await;
        held.release().await.unwrap()
    };
    let (low, high, _) = futures::join!(low, high, release);
    assert!(high < low, "{high:?} before {low:?}");
}

pub(crate) async fn w14_what_is_held_is_listed_by_prefix(open: impl AsyncFn() -> LeaseManagerBuilder) {
    let (one, two) = (context(&open).await, context(&open).await);
    let _held = [one.lock("job/1").acquire().await.unwrap(), two.lock("job/2").acquire().await.unwrap()];
    let _other = one.lock("jobs").acquire().await.unwrap();
    let listed = one.list("job/").await.unwrap();
    let keys: Vec<_> = listed.iter().map(|status| status.key.as_str()).collect();
    assert_eq!(keys, ["job/1", "job/2"]);
}

/// All of them as tests: `$open` opens a fresh store by the name of a test, and gives what makes contexts in it.
macro_rules! tests {
    ($open:path) => {
        $crate::scenarios::tests! { $open:
            s1_never_more_than_one_is_inside
            s2_taken_then_refused_then_released_then_taken
            s3_renewal_keeps_the_lease
            s4_a_holder_that_does_not_renew_is_overtaken_and_told
            s5_a_lease_that_was_dropped_without_release_can_be_taken_after_its_time
            s6_closing_releases_everything_and_refuses_what_comes
            s7_a_writer_is_alone
            s8_three_readers_are_inside_together
            s9_a_writer_blocks_readers_and_writers
            s10_a_reader_blocks_writers_until_the_last_one_has_gone
            s11_renewal_keeps_readers_and_writers
            s12_of_two_readers_only_the_silent_one_is_overtaken
            s13_a_key_is_free_a_lease_after_its_reader_or_writer_was_dropped
            s14_closing_leaves_neither_readers_nor_writers
            s15_several_locks_are_had_together_or_not_at_all
            s18_many_waiters_of_many_contexts_are_all_served
            s19_a_waiter_of_another_worker_is_told_of_the_release
            s20_a_waiter_of_another_worker_is_served_when_the_guard_is_gone
            g1_a_taken_lock_is_refused_in_time_and_free_after_the_release
            g4_a_second_release_does_not_free_the_next_holder
            g7_fifty_workers_count_exactly
            r2_of_many_tries_one_succeeds_and_extends
            r3_who_finds_it_taken_learns_by_whom
            r11_locked_here_and_unlocked_elsewhere
            w2_a_wait_ends_in_time_and_leaves_no_place
            w6_what_was_taken_is_lost_once_and_for_good
            w12_a_higher_priority_goes_first
            w13_readers_share_and_a_writer_waits_for_both
            w14_what_is_held_is_listed_by_prefix
        }
    };
    ($open:path: $($scenario:ident)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $scenario() {
                let Some(store) = $open(stringify!($scenario)).await else { return };
                $crate::scenarios::$scenario(async || store.context().await).await;
            }
        )+
    };
}
pub(crate) use tests;
