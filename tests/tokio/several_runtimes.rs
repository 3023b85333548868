//! A manager that is used in several runtimes: each of them may end, stand still, or be without timers.

use std::{
    future::pending,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

use async_trait::async_trait;
use futures::{FutureExt, executor::block_on, poll};
use leasehold::{
    LeaseGuard, LeaseManager, LeaseManagerBuilder, LeaseRequest, StoreError,
    executor::{TokioExecutor, process_clock},
    machine::{Batch, Key, Now, Reply},
    signal::LocalSignals,
    store::{Fault, FaultyStore, MemoryStore, Reach, Store},
};
use tokio::runtime::{Builder, Runtime};

use crate::{PATIENCE, manager, ms, runtimes::Remote};

fn single() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

/// A runtime that has a thread of its own, and goes on while nobody drives it.
fn multi() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap()
}

fn soon<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> Option<T> {
    let (ended, end) = mpsc::channel();
    thread::spawn(move || ended.send(block_on(future)));
    end.recv_timeout(ms(12_000)).ok()
}

fn is_answered(leases: &LeaseManager, runtime: &Runtime) {
    let asks = leases.clone();
    let asking = runtime.spawn(async move { asks.lock("free").timeout(ms(2_000)).acquire().await });
    let told = soon(async move { asking.await.unwrap() });
    assert!(told.is_some(), "it waits for 2 s, and has had no answer after 12");
}

fn faulty(memory: &MemoryStore) -> (LeaseManager, FaultyStore<MemoryStore>) {
    let store = FaultyStore::new(memory.clone());
    let leases = LeaseManager::builder(store.clone(), TokioExecutor::new()).store_timeout(ms(300)).build().unwrap();
    (leases, store)
}

/// A request panics in one runtime, which ends before it runs another task. Who waits elsewhere has a time limit of 2 s.
fn waits_while_a_runtime_ends(end: impl FnOnce(Runtime, &LeaseManager, &FaultyStore<MemoryStore>)) {
    let memory = MemoryStore::new();
    let (other, second) = (multi(), manager(&memory));
    let _taken = other.block_on(second.lock("k").acquire()).unwrap();
    let (leases, store) = faulty(&memory);
    let first = single();
    let _held = first.block_on(leases.lock("held").acquire()).unwrap();
    let waits = leases.clone();
    let waiting = other.spawn(async move { waits.lock("k").timeout(ms(2_000)).acquire().await });
    while leases.stats().waited == 0 {
        thread::yield_now();
    }
    // The alarms that the requests set ring; the next one rings in some seconds.
    first.block_on(async { tokio::time::sleep(ms(500)).await });
    end(first, &leases, &store);
    let told = soon(async move { waiting.await.unwrap() });
    assert!(told.is_some(), "it waits for 2 s, and has had no answer after 12");
    assert!(told.unwrap().is_err());
}

#[test]
fn who_waits_elsewhere_is_told_when_a_runtime_ends() {
    waits_while_a_runtime_ends(|first, leases, _| {
        let _ = first.block_on(leases.lock("sound").acquire());
    });
}

#[test]
fn who_waits_elsewhere_is_told_when_a_runtime_ends_after_a_panic() {
    waits_while_a_runtime_ends(|first, leases, store| {
        store.inject(Fault::Panic);
        let broken = first.block_on(AssertUnwindSafe(leases.lock("broken").acquire()).catch_unwind());
        assert!(broken.is_err());
        drop(first);
    });
}

#[test]
fn who_waits_elsewhere_is_told_when_a_runtime_ends_by_a_panic() {
    waits_while_a_runtime_ends(|first, leases, store| {
        store.inject(Fault::Panic);
        let broken = catch_unwind(AssertUnwindSafe(move || _ = first.block_on(leases.lock("broken").acquire())));
        assert!(broken.is_err());
    });
}

/// As when all tests use one static manager, and each has a runtime of its own: the alarm is set in the first two, which end.
#[test]
fn who_waits_in_a_later_runtime_goes_on_although_the_first_two_have_ended() {
    for timeout in [Some(PATIENCE), None] {
        let leases = manager(&MemoryStore::new());
        let request = || timeout.into_iter().fold(leases.lock("k"), LeaseRequest::timeout);
        let first = multi();
        let guard = first.block_on(request().acquire()).unwrap();
        let [(second, its), (third, other), (_fourth, last)] = [(); 3].map(|()| {
            let (runtime, mut request) = (multi(), Box::pin(request().acquire()));
            assert!(runtime.block_on(async { poll!(&mut request) }).is_pending());
            let waiting = runtime.spawn(request);
            (runtime, waiting)
        });
        first.block_on(guard.release()).unwrap();
        drop(first);
        let guard = second.block_on(its).unwrap().unwrap();
        second.block_on(guard.release()).unwrap();
        drop(second);
        let guard = third.block_on(other).unwrap().unwrap();
        third.block_on(guard.release()).unwrap();
        drop(third);
        let told = soon(async move { last.await.unwrap() }).expect("it is answered when the key is free");
        assert!(told.as_ref().is_ok_and(LeaseGuard::is_valid), "{told:?}");
    }
}

/// The runtime lives, and nobody drives it for a while.
#[test]
fn who_asks_elsewhere_is_answered_while_the_runtime_of_a_panic_is_idle() {
    let memory = MemoryStore::new();
    let (leases, store) = faulty(&memory);
    let (first, other) = (single(), multi());
    let _held = first.block_on(leases.lock("held").acquire()).unwrap();
    // The alarm of that request rings; the next one is a heartbeat, some seconds later.
    first.block_on(async { tokio::time::sleep(ms(500)).await });
    store.inject(Fault::Panic);
    let broken = first.block_on(AssertUnwindSafe(leases.lock("broken").acquire()).catch_unwind());
    assert!(broken.is_err());
    is_answered(&leases, &other);
    drop(first);
}

#[test]
fn who_asks_elsewhere_is_answered_while_the_runtime_is_idle() {
    let memory = MemoryStore::new();
    let (leases, _store) = faulty(&memory);
    let (first, other) = (single(), multi());
    let _held = first.block_on(leases.lock("held").acquire()).unwrap();
    first.block_on(async { tokio::time::sleep(ms(500)).await });
    is_answered(&leases, &other);
    drop(first);
}

/// The first runtime lives and has timers; another one, which has none, is used for one short request.
#[test]
fn a_request_in_a_runtime_without_timers_harms_nobody_elsewhere() {
    let memory = MemoryStore::new();
    let (other, second) = (multi(), manager(&memory));
    let _taken = other.block_on(second.lock("k").acquire()).unwrap();
    let (leases, _store) = faulty(&memory);
    let _held = other.block_on(leases.lock("held").acquire()).unwrap();
    let waits = leases.clone();
    let waiting = other.spawn(async move { waits.lock("k").timeout(ms(3_000)).acquire().await });
    while leases.stats().waited == 0 {
        thread::yield_now();
    }
    thread::sleep(ms(500));
    let timeless = Builder::new_current_thread().build().unwrap();
    timeless.block_on(async {
        let _ = leases.lock("k").timeout(ms(400)).acquire().await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    });
    let told = soon(async move { waiting.await.unwrap() }).expect("an answer");
    let told = told.unwrap_err().to_string();
    assert!(!told.contains("runtime"), "its runtime lives: {told}");
}

/// The lease is to be renewed four times a second, and lasts long enough to be kept on a busy machine, too.
fn often(store: impl Store) -> LeaseManagerBuilder {
    LeaseManager::builder(store, TokioExecutor::new()).lease(ms(8_000)).heartbeat(ms(250)).store_timeout(ms(250))
}

/// A lease that was renewed once in the runtime of the first request.
fn renewing(memory: &MemoryStore, runtime: &Runtime) -> (LeaseManager, LeaseGuard) {
    let leases = often(memory.clone()).store_timeout(ms(100)).build().unwrap();
    let held = runtime.block_on(leases.lock("held").acquire()).unwrap();
    runtime.block_on(renewals(&leases, 1));
    (leases, held)
}

/// Waits until the lease has been renewed this many times, but not until its end is near: that sets an alarm, too.
async fn renewals(leases: &LeaseManager, so_often: u64) {
    let renewed = async {
        while leases.stats().renewed < so_often {
            tokio::time::sleep(ms(10)).await;
        }
    };
    let _ = tokio::time::timeout(ms(6_000), renewed).await;
}

fn takes_a_turn(leases: &LeaseManager, runtime: &Runtime) {
    runtime.block_on(async { leases.lock("short").acquire().await.unwrap().release().await.unwrap() });
}

/// Before, one request elsewhere moved the only timer there.
#[test]
fn a_lease_is_renewed_although_another_runtime_has_ended() {
    let memory = MemoryStore::new();
    let home = multi();
    let (leases, held) = renewing(&memory, &home);
    let short = single();
    takes_a_turn(&leases, &short);
    drop(short);
    let renewed = leases.stats().renewed;
    home.block_on(renewals(&leases, renewed + 3));
    assert!(held.is_valid() && leases.stats().renewed >= renewed + 3, "{:?}", leases.stats());
}

#[test]
fn a_lease_is_renewed_although_another_runtime_stands_still() {
    let memory = MemoryStore::new();
    let home = multi();
    let (leases, held) = renewing(&memory, &home);
    let idle = single();
    takes_a_turn(&leases, &idle);
    let renewed = leases.stats().renewed;
    home.block_on(renewals(&leases, renewed + 3));
    assert!(held.is_valid() && leases.stats().renewed >= renewed + 3, "{:?}", leases.stats());
}

#[test]
fn a_lease_is_renewed_although_the_first_runtime_stands_still() {
    let memory = MemoryStore::new();
    let (home, other) = (single(), single());
    let (leases, held) = renewing(&memory, &home);
    takes_a_turn(&leases, &other);
    let renewed = leases.stats().renewed;
    other.block_on(renewals(&leases, renewed + 3));
    assert!(held.is_valid() && leases.stats().renewed >= renewed + 3, "{:?}", leases.stats());
}

/// The task that sleeps until the heartbeat is first polled after the work. If the machine lets the work take too long, it is done anew.
#[test]
fn a_heartbeat_that_is_due_after_synchronous_work_is_sent_at_once() {
    let in_time = (0..6).any(|_| {
        let memory = MemoryStore::new();
        let second = manager(&memory);
        let builder = LeaseManager::builder(memory.clone(), TokioExecutor::new()).lease(ms(4_000)).heartbeat(ms(1_000));
        let leases = builder.store_timeout(ms(1_200)).beacon(false).build().unwrap();
        single().block_on(async {
            let guard = leases.lock("k").acquire().await.unwrap();
            let began = process_clock().monotonic;
            thread::sleep(ms(3_000));
            // The runtime is free, and the lease has 0.6 s left in which its holder may believe. A heartbeat from now would be too late.
            tokio::time::sleep(ms(800)).await;
            let beats_in_time = leases.stats().renewed > 0;
            if !beats_in_time && process_clock().monotonic.since(began) > 4_200 {
                return false;
            }
            assert!(second.lock("k").try_acquire().await.unwrap().is_none(), "{:?}", leases.stats());
            assert!(guard.is_valid());
            true
        })
    });
    assert!(in_time, "the machine is too busy");
}

/// The release is a task of the second runtime, which ends before it runs the task. Both runtimes have one thread: another thread of the
/// first one might still be busy with the grant, and take the release along.
#[test]
fn a_release_that_was_lost_with_its_runtime_holds_nobody_up() {
    let memory = MemoryStore::new();
    let builder =
        LeaseManager::builder(Remote(memory.clone()), TokioExecutor::new()).lease(PATIENCE * 10).linger(ms(0));
    let leases = builder.store_timeout(PATIENCE * 2).build().unwrap();
    let (home, other) = (single(), single());
    let guard = home.block_on(leases.lock("k").acquire()).unwrap();
    other.block_on(async { drop(guard) });
    drop(other);
    let asked = home.block_on(async { tokio::time::timeout(PATIENCE / 4, leases.lock("other").acquire()).await });
    assert!(asked.is_ok_and(|granted| granted.is_ok()), "nobody waits for the answer that was lost");
    let heir = home.block_on(manager(&memory).lock("k").timeout(PATIENCE).acquire());
    assert!(heir.is_ok(), "the release is repeated: {heir:?}");
}

/// The next heartbeat is due before anything for which the request elsewhere needs an alarm. This is the case with the default times, over
/// a store in which leases do not linger.
#[test]
fn a_lease_is_renewed_elsewhere_although_the_request_there_needs_no_earlier_alarm() {
    let (home, other) = (single(), single());
    let leases = often(MemoryStore::new()).linger(ms(0)).build().unwrap();
    let held = home.block_on(leases.lock("held").acquire()).unwrap();
    let second = other.block_on(leases.lock("second").acquire()).unwrap();
    other.block_on(renewals(&leases, 3));
    assert!(held.is_valid() && second.is_valid() && leases.stats().renewed >= 3, "{:?}", leases.stats());
}

/// The store has not answered what was asked in the first runtime, and nobody drives that one any more.
#[test]
fn who_asks_elsewhere_is_answered_although_the_first_runtime_was_left_with_a_question() {
    let (leases, store) = faulty(&MemoryStore::new());
    let (first, other) = (single(), multi());
    let _held = first.block_on(leases.lock("held").acquire()).unwrap();
    store.inject(Fault::Silence);
    first.block_on(async {
        let mut asked = pin!(leases.status("k"));
        for _ in 0..10 {
            assert!(futures::poll!(asked.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
    });
    is_answered(&leases, &other);
    drop(first);
}

/// The time-out in the first runtime needs an earlier alarm. Then that runtime stands still, and the guard is used in the other one.
#[test]
fn a_lease_is_renewed_elsewhere_although_the_first_runtime_was_used_last() {
    let memory = MemoryStore::new();
    let (home, other) = (single(), multi());
    let (leases, second) = (often(memory.clone()).linger(ms(0)).build().unwrap(), manager(&memory));
    let _taken = other.block_on(second.lock("taken").acquire()).unwrap();
    let _first = home.block_on(leases.lock("first").acquire()).unwrap();
    let held = other.block_on(leases.lock("held").acquire()).unwrap();
    assert!(home.block_on(leases.lock("taken").timeout(ms(50)).acquire()).is_err());
    let renewed = leases.stats().renewed;
    other.block_on(renewals(&leases, renewed + 3));
    assert!(held.is_valid() && leases.stats().renewed >= renewed + 3, "{:?}", leases.stats());
}

/// The release is to be repeated earlier than anything else is due. Its repetition is planned while the first runtime ends, and maybe when
/// that is known already: tokio drops the tasks of a runtime in an order that their numbers decide.
#[test]
fn a_lease_is_renewed_elsewhere_although_a_release_went_down_with_the_first_runtime() {
    for others in 0..4 {
        let (home, other) = (multi(), multi());
        let store = FaultyStore::new(MemoryStore::new());
        let leases = often(store.clone()).linger(ms(0)).store_timeout(ms(100)).build().unwrap();
        let short = home.block_on(leases.lock("short").acquire()).unwrap();
        let held = other.block_on(leases.lock("held").acquire()).unwrap();
        (0..others).for_each(|_| drop(home.spawn(async {})));
        store.inject(Fault::Silence);
        home.block_on(async { drop(short) });
        drop(home);
        let renewed = leases.stats().renewed;
        other.block_on(renewals(&leases, renewed + 3));
        assert!(held.is_valid() && leases.stats().renewed >= renewed + 3, "{:?}", leases.stats());
    }
}

/// The alarm is set in two runtimes: the first one, which nobody drives, and the second, which has ended.
#[test]
fn a_lease_is_renewed_in_a_third_runtime() {
    let (home, second, third) = (single(), single(), single());
    let leases = often(MemoryStore::new()).linger(ms(0)).build().unwrap();
    let held = home.block_on(leases.lock("first").acquire()).unwrap();
    let _second = second.block_on(leases.lock("second").acquire()).unwrap();
    drop(second);
    let _third = third.block_on(leases.lock("third").acquire()).unwrap();
    third.block_on(renewals(&leases, 3));
    assert!(held.is_valid() && leases.stats().renewed >= 3, "{:?}", leases.stats());
}

/// The store needs timers, so the release runs as a task of the first runtime. The store's time limit is too long to hide a release that is
/// lost.
#[test]
fn a_guard_that_is_dropped_in_a_runtime_without_timers_is_released() {
    let (memory, long) = (MemoryStore::new(), ms(600_000));
    // It runs nothing of its own accord, so the release begins where the guard is dropped.
    let home = single();
    let builder = LeaseManager::builder(Remote(memory.clone()), TokioExecutor::new()).lease(long * 4).linger(ms(0));
    let leases = builder.store_timeout(long).build().unwrap();
    let guard = home.block_on(leases.lock("k").acquire()).unwrap();
    let timeless = Builder::new_current_thread().build().unwrap();
    timeless.block_on(async {
        drop(guard);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    });
    let heir = home.block_on(manager(&memory).lock("k").timeout(PATIENCE / 4).acquire());
    assert!(heir.is_ok(), "{heir:?}");
}

/// Each alarm also sets a timer in the other runtime that was used last. While that one stands still, nothing removes the old timers there.
#[test]
fn another_runtime_that_stands_still_collects_few_tasks() {
    let memory = MemoryStore::new();
    let (home, still) = (single(), single());
    let (leases, second) = (manager(&memory), manager(&memory));
    let _taken = home.block_on(second.lock("taken").acquire()).unwrap();
    let times_out = |runtime: &Runtime| runtime.block_on(leases.lock("taken").timeout(ms(1)).acquire()).is_err();
    assert!(times_out(&home) && times_out(&still));
    assert!((0..500).all(|_| times_out(&home)));
    let tasks = still.metrics().num_alive_tasks();
    assert!(tasks < 100, "{tasks} tasks, after 500 time-outs elsewhere");
}

/// Clears the flag when it is dropped, and says so: its maker no longer leads.
struct Lead(Arc<AtomicBool>, mpsc::Sender<()>);

impl Drop for Lead {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
        let _ = self.1.send(());
    }
}

/// The leader stops by the clock. A busy machine may wake it too late, or grant the other a lease that has nearly passed: one attempt
/// that is in time is enough.
#[test]
fn a_leader_whose_runtime_has_ended_leads_no_more_when_another_begins() {
    assert!((0..3).any(|_| leads_no_more_when_another_begins()), "two lead");
}

/// Nothing renews the lease any more, and nobody is told of its loss.
fn leads_no_more_when_another_begins() -> bool {
    let store = MemoryStore::new();
    let brief = || LeaseManager::builder(store.clone(), TokioExecutor::new()).lease(ms(2_000));
    // As from another process: no message from it keeps the first one going.
    let deaf = LocalSignals::new(&Reach::Named("nobody hears this".into()));
    let (one, other) = (brief().build().unwrap(), brief().signals(deaf).build().unwrap());
    let (first, second) = (multi(), single());
    drop(first.block_on(one.lock("warm").acquire()).unwrap());
    let leads = Arc::new(AtomicBool::new(false));
    let (shown, (begun, begins), (stopped, stops)) = (leads.clone(), mpsc::channel(), mpsc::channel());
    thread::spawn(move || {
        block_on(one.elect("leader", async |_guard| {
            shown.store(true, SeqCst);
            let _lead = Lead(shown.clone(), stopped.clone());
            begun.send(()).unwrap();
            pending::<()>().await
        }))
    });
    begins.recv_timeout(PATIENCE).unwrap();
    drop(first);
    let guard = second.block_on(other.lock("leader").timeout(PATIENCE).acquire()).unwrap();
    let in_time = guard.is_valid() && !leads.load(SeqCst);
    stops.recv_timeout(PATIENCE).expect("it stops");
    in_time
}

/// A store that never lists its keys.
#[derive(Debug)]
struct Unlisted(MemoryStore);

#[async_trait]
impl Store for Unlisted {
    async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError> {
        self.0.transact(batch, now, limit).await
    }

    async fn keys(&self, _prefix: &str) -> Result<Vec<Key>, StoreError> {
        pending().await
    }

    async fn close(&self) {}

    fn reach(&self) -> Reach {
        self.0.reach()
    }
}

/// It waits for the store, with a time limit: in one runtime, then in others, and at last on a thread without one.
#[test]
fn a_call_that_moves_to_another_runtime_keeps_its_time_limit() {
    let builder = LeaseManager::builder(Unlisted(MemoryStore::new()), TokioExecutor::new());
    let leases = builder.store_timeout(ms(500)).build().unwrap();
    for on_a_thread in [false, true] {
        let began = process_clock().monotonic;
        let mut listing = Box::pin(leases.list(""));
        let (first, second, third) = (single(), single(), single());
        for runtime in [&first, &second, &first] {
            assert!(runtime.block_on(async { poll!(listing.as_mut()) }).is_pending());
        }
        drop((first, second));
        let listed = if on_a_thread { block_on(listing) } else { third.block_on(listing) };
        let error = listed.unwrap_err().to_string();
        assert!(error.contains("did not list its keys within 500 ms"), "{error}");
        assert!(process_clock().monotonic.since(began) >= 500, "it ends early");
    }
}
