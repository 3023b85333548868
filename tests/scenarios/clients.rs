//! matrix-rust-sdk's clients: caches that follow a store, a session that is refreshed once, tasks: M12 to M17.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use futures::future::{AbortHandle, abortable, join_all};
use leasehold::{LeaseGuard, LeaseManager, executor::Executor};

use crate::support::world::{LEASE, World, everywhere, ms, secs};

/// What a context remembers of the data behind the key, like the crypto machine or the timeline of a room.
#[derive(Default)]
struct Cache {
    value: Cell<u64>,
    loads: Cell<u64>,
}

impl Cache {
    fn load(&self, disk: &Cell<u64>) {
        self.value.set(disk.get());
        self.loads.set(self.loads.get() + 1);
    }

    /// Reads anew only what may be out of date.
    fn follow(&self, guard: &LeaseGuard, disk: &Cell<u64>) {
        if guard.changed_hands() {
            self.load(disk);
            guard.clear_changed();
        }
        assert_eq!(self.value.get(), disk.get(), "what is remembered is what is there");
    }

    /// Writes through.
    fn write(&self, disk: &Cell<u64>) {
        disk.set(disk.get() + 1);
        self.value.set(disk.get());
    }
}

/// M12: `test_generation_counter_invalidates_olm_machine`.
#[test]
fn m12_a_holder_in_between_makes_the_other_reload() {
    everywhere(async |world| {
        let (one, two, disk) = (world.tab(), world.tab(), Cell::new(0));
        let caches = [Cache::default(), Cache::default()];
        let turn = async |leases: &LeaseManager, cache: &Cache| {
            let guard = leases.lock("crypto").acquire().await.unwrap();
            cache.follow(&guard, &disk);
            cache.write(&disk);
        };
        turn(&one.leases, &caches[0]).await;
        caches[1].load(&disk);
        turn(&one.leases, &caches[0]).await;
        assert_eq!(caches[0].loads.get(), 0, "the same holder twice reloads nothing");
        caches[1].load(&disk);
        turn(&two.leases, &caches[1]).await;
        for round in 1..=3 {
            turn(&one.leases, &caches[0]).await;
            turn(&one.leases, &caches[0]).await;
            assert_eq!(caches[0].loads.get(), round, "once for each time that another came in between");
            turn(&two.leases, &caches[1]).await;
        }
    });
}

/// M13: `test_generation_counter_no_spurious_invalidation`.
#[test]
fn m13_nothing_but_another_holder_makes_a_context_reload() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let clean = async || {
            let guard = one.leases.lock("k").acquire().await.unwrap();
            assert!(!guard.changed_hands());
            guard
        };
        drop(clean().await);
        let again = clean().await;
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none(), "a try that is refused");
        assert!(two.leases.lock("k").timeout(ms(50)).acquire().await.is_err(), "a wait in vain");
        world.sim.pass(LEASE * 3).await;
        assert!(!again.changed_hands(), "renewals");
        again.release().await.unwrap();
        world.sim.pass(secs(1)).await;
        assert!(one.leases.status("k").await.unwrap().is_idle(), "given back, after the linger");
        clean().await.release().await.unwrap();
        drop(two.leases.lock("k").shared().acquire().await.unwrap());
        clean().await.release().await.unwrap();
        drop(two.leases.lock("other").acquire().await.unwrap());
        drop(clean().await);
        drop(two.leases.lock("k").acquire().await.unwrap());
        assert!(one.leases.lock("k").acquire().await.unwrap().changed_hands(), "but another who could write does");
    });
}

/// M14: `test_reload_when_dirty`, `test_load_when_dirty`, `test_order_tracker_is_reset_when_cross_process_is_dirty`.
#[test]
fn m14_caches_that_reload_when_told_are_never_out_of_date() {
    everywhere(async |world| {
        let tabs = [world.tab(), world.tab(), world.tab()];
        let disk = Cell::new(0);
        let caches: Vec<_> = tabs.iter().map(|_| Cache::default()).collect();
        let work = tabs.iter().zip(&caches).enumerate().map(|(number, (tab, cache))| {
            let disk = &disk;
            async move {
                // What was never held was never remembered: the first turn loads, whatever happened before.
                let first = tab.leases.lock("room").acquire().await.unwrap();
                cache.load(disk);
                drop(first);
                for turn in 0..20 {
                    let guard = tab.leases.lock("room").acquire().await.unwrap();
                    cache.follow(&guard, disk);
                    world.sim.pass(ms(turn % 3)).await;
                    if (turn + number as u64).is_multiple_of(3) {
                        cache.write(disk);
                    }
                    drop(guard);
                    world.sim.pass(ms(turn % 7)).await;
                }
            }
        });
        join_all(work).await;
        assert!(disk.get() >= 18, "they wrote: {}", disk.get());
        assert!(caches.iter().all(|cache| cache.loads.get() > 1), "and reloaded");
    });
}

/// M15: `test_cross_process_store_locks_holder_name`.
#[test]
fn m15_the_record_names_its_holder() {
    everywhere(async |world| {
        let named = |name: &'static str| world.tab().with(|builder| builder.instance(name));
        let (main, extension) = (named("main app"), named("notification \u{1f514}"));
        let held = main.leases.lock("k").info("sync").acquire().await.unwrap();
        let mut waiting = std::pin::pin!(extension.leases.lock("k").acquire());
        assert!(world.within(ms(10), &mut waiting).await.is_none());
        let status = extension.leases.status("k").await.unwrap();
        let ([holder], [waiter]) = (&status.holders[..], &status.queue[..]) else { panic!("{status:?}") };
        assert_eq!((holder.instance.as_str(), holder.info.as_str(), holder.own), ("main app", "sync", false));
        assert_eq!((waiter.instance.as_str(), waiter.own), ("notification \u{1f514}", true));
        assert_eq!((holder.holder, holder.token), (main.leases.session(), held.token()));
    });
}

/// A server that takes each refresh token once.
#[derive(Default)]
struct Server {
    token: Cell<u64>,
    calls: Cell<u64>,
}

impl Server {
    async fn refresh(&self, world: &World, token: u64) -> u64 {
        self.calls.set(self.calls.get() + 1);
        assert_eq!(self.token.get(), token, "a token that was used already ends the session");
        self.token.set(token + 1);
        world.sim.pass(ms(200)).await;
        token + 1
    }
}

/// Refreshes the session, unless somebody did since this token was read: then that one is taken over.
async fn refresh(world: &World, leases: &LeaseManager, server: &Server, disk: &Cell<u64>, expired: u64) -> u64 {
    let ran = leases.lock("session").run(async |lease| {
        let mismatch = disk.get() != expired;
        if !mismatch {
            disk.set(server.refresh(world, expired).await);
        }
        assert!(lease.is_valid());
        disk.get()
    });
    let ran = ran.await.unwrap();
    assert!(ran.lost.is_none());
    ran.value
}

/// M16: `test_cross_process_concurrent_refresh`.
#[test]
fn m16_of_many_who_refresh_a_session_one_calls_the_server() {
    everywhere(async |world| {
        let (tabs, server, disk) = ([world.tab(), world.tab()], Server::default(), Cell::new(0));
        for expired in 0..3 {
            let asks = (0..6).map(|task| refresh(world, &tabs[task % 2].leases, &server, &disk, expired));
            let tokens = join_all(asks).await;
            assert!(tokens.iter().all(|token| *token == expired + 1), "all go on with the same: {tokens:?}");
            assert_eq!(server.calls.get(), expired + 1, "one call");
        }
    });
}

/// M16: `test_restore_session_lock` and the ways to finish a login.
#[test]
fn m16_a_session_that_is_restored_during_a_refresh_is_the_new_one() {
    everywhere(async |world| {
        let (one, two, server, disk) = (world.tab(), world.tab(), Server::default(), Cell::new(0));
        let restore = async {
            world.sim.pass(ms(50)).await;
            let _guard = two.leases.lock("session").acquire().await.unwrap();
            disk.get()
        };
        let (refreshed, restored) = futures::join!(refresh(world, &one.leases, &server, &disk, 0), restore);
        assert_eq!((refreshed, restored), (1, 1), "not the old one, which the server would refuse");
        disk.set(7);
        server.token.set(7);
        assert_eq!(refresh(world, &two.leases, &server, &disk, restored).await, 7, "a login in between is respected");
        assert_eq!(server.calls.get(), 1);
    });
}

/// M17: `test_spawn`, and `sleep`.
#[test]
fn m17_a_task_runs_and_sleeps_as_long_as_it_says() {
    everywhere(async |world| {
        let (executor, woke_at) = (world.sim.context(), Arc::new(AtomicU64::new(0)));
        let start = world.sim.now().monotonic;
        let (sleeper, woke) = (executor.clone(), woke_at.clone());
        executor.spawn(Box::pin(async move {
            sleeper.sleep(ms(70)).await;
            woke.store(sleeper.now().monotonic.since(start), Ordering::Relaxed);
        }));
        world.sim.pass(ms(69)).await;
        assert_eq!(woke_at.load(Ordering::Relaxed), 0, "not early");
        world.sim.pass(ms(2)).await;
        assert_eq!(woke_at.load(Ordering::Relaxed), 70, "nor late");
    });
}

/// M17: `test_abort`: a task that is aborted runs no further, and leaves neither a lease nor a place in the queue.
#[test]
fn m17_an_aborted_task_leaves_nothing_behind() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let mut aborts = Vec::new();
        let went_on = Arc::new(AtomicU64::new(0));
        for tab in [&one, &two] {
            let (leases, executor, went_on) = (tab.leases.clone(), tab.executor.clone(), went_on.clone());
            let (task, abort) = abortable(async move {
                let _guard = leases.lock("k").acquire().await.unwrap();
                executor.sleep(secs(10)).await;
                went_on.fetch_add(1, Ordering::Relaxed);
            });
            tab.executor.spawn(Box::pin(async move { _ = task.await }));
            aborts.push(abort);
        }
        world.sim.pass(secs(1)).await;
        let status = one.leases.status("k").await.unwrap();
        assert_eq!((status.holders.len(), status.queue.len()), (1, 1), "one holds, one waits");
        aborts.iter().for_each(AbortHandle::abort);
        world.sim.pass(secs(1)).await;
        assert!(one.leases.status("k").await.unwrap().is_idle());
        world.sim.pass(secs(60)).await;
        assert_eq!(went_on.load(Ordering::Relaxed), 0, "what was aborted never goes on");
    });
}
