//! The one timer of a context: by whom it is set, and that there is one.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use leasehold::{
    LeaseManager,
    executor::{Executor, MaybeSendFuture, Shared, SimExecutor},
    machine::{Monotonic, Now},
    store::Store,
};

use crate::support::{
    doubles::SlowStore,
    world::{HEARTBEAT, LEASE, World, everywhere, ms},
};

/// An executor that notes when a timer was set, and may lose what it is to run.
#[derive(Clone, Debug)]
struct Noting {
    sim: SimExecutor,
    set: Arc<Mutex<Vec<Monotonic>>>,
    loses: Arc<AtomicBool>,
    delays_chained_timers: bool,
    home: Option<SimExecutor>,
}

impl Noting {
    fn new(sim: SimExecutor) -> Self {
        Self { sim, set: Arc::default(), loses: Arc::default(), delays_chained_timers: true, home: None }
    }

    fn leases(&self, store: impl Store) -> LeaseManager {
        let builder = LeaseManager::builder(store, self.clone()).beacon(false);
        builder.lease(LEASE).heartbeat(HEARTBEAT).linger(Duration::ZERO).build().unwrap()
    }

    /// When the last timer was set.
    fn last_set(&self) -> Option<Monotonic> {
        self.set.lock().unwrap().last().copied()
    }
}

impl Executor for Noting {
    fn now(&self) -> Now {
        self.sim.now()
    }

    fn spawn(&self, task: MaybeSendFuture<'static, ()>) {
        if !self.loses.load(Ordering::Relaxed) {
            self.sim.spawn(task);
        }
    }

    fn sleep(&self, duration: Duration) -> MaybeSendFuture<'static, ()> {
        self.set.lock().unwrap().push(self.sim.now().monotonic);
        self.sim.sleep(duration)
    }

    fn random(&self) -> u128 {
        self.sim.random()
    }

    fn delays_chained_timers(&self) -> bool {
        self.delays_chained_timers
    }

    fn elsewhere(&self) -> Option<Shared<dyn Executor>> {
        self.home.clone().map(|home| -> Shared<dyn Executor> { Shared::new(home) })
    }
}

fn slow(world: &World) -> (LeaseManager, Noting) {
    let noting = Noting::new(world.sim.context());
    (noting.leases(SlowStore::new(world.shared.clone(), world.sim.clone(), 100..=100)), noting)
}

/// Chromium slows down the timers of a hidden page that were set by timers, and not those that a store's answer set.
#[test]
fn the_alarm_is_set_by_the_answer_of_the_store() {
    everywhere(async |world| {
        let other = world.dark_tab();
        let _taken = other.leases.lock("taken").acquire().await.unwrap();
        other.executor.freeze();
        let (one, noting) = slow(world);
        let guard = one.lock("k").acquire().await.unwrap();
        assert_eq!(noting.last_set(), Some(world.now()));
        for _ in 0..3 {
            let mut wait = Box::pin(one.lock("taken").timeout(ms(900)).acquire());
            assert!((&mut wait).now_or_never().is_none());
            let asked = world.now();
            assert_eq!(noting.last_set(), Some(asked), "the request set it: who knows in what it ran");
            world.sim.pass(ms(300)).await;
            assert_eq!(noting.last_set().map(|set| set.since(asked)), Some(200), "the answer set it anew");
            world.sim.pass(ms(100)).await;
            assert!(guard.verify().await.unwrap());
            assert_eq!(noting.last_set().map(|set| set.since(asked)), Some(200), "once is enough");
            assert_eq!(world.sim.timers(), 1, "and it is the only one");
            assert!(wait.await.is_err());
            // Those who went are taken back, and a heartbeat is due again.
            world.sim.pass(ms(500)).await;
        }
        // The heartbeats too, each by the answer to the one before.
        for _ in 0..3 {
            let beats = one.stats().renewed;
            while one.stats().renewed == beats {
                world.sim.pass(ms(1)).await;
            }
            assert!(world.ms_since(noting.last_set().unwrap()) <= 1);
            assert!(guard.is_valid());
        }
    });
}

#[test]
fn where_timers_ring_in_time_answers_set_fewer() {
    everywhere(async |world| {
        let mut timers = Vec::new();
        for delays_chained_timers in [true, false] {
            let noting = Noting { delays_chained_timers, ..Noting::new(world.sim.context()) };
            let leases = noting.leases(SlowStore::new(world.shared.clone(), world.sim.clone(), 100..=100));
            for _ in 0..3 {
                leases.lock("k").acquire().await.unwrap().release().await.unwrap();
            }
            let guard = leases.lock("k").acquire().await.unwrap();
            world.sim.pass(LEASE * 3).await;
            assert!(guard.is_valid(), "it was renewed all the time");
            timers.push(noting.set.lock().unwrap().len());
            guard.release().await.unwrap();
        }
        assert!(timers[1] < timers[0], "{timers:?}");
    });
}

/// Each alarm is dropped with the runtime that it slept in; the next thing that happens sets another.
#[test]
fn an_alarm_that_was_dropped_does_not_keep_the_next_from_being_set() {
    everywhere(async |world| {
        let noting = Noting::new(world.sim.context());
        let leases = noting.leases(world.shared.clone());
        noting.loses.store(true, Ordering::Relaxed);
        let guard = leases.lock("k").acquire().await.unwrap();
        assert_eq!((world.sim.timers(), noting.last_set()), (0, Some(world.now())), "it was lost");
        noting.loses.store(false, Ordering::Relaxed);
        assert!(guard.verify().await.unwrap());
        world.sim.pass(ms(1)).await;
        assert_eq!(world.sim.timers(), 1);
        world.sim.pass(LEASE * 3).await;
        assert!(guard.is_valid(), "it was renewed all the time");
    });
}

/// The runtime of a request may stand still, or end, while that of an earlier one runs; or the other way round.
#[test]
fn the_alarm_is_set_at_home_as_well() {
    everywhere(async |world| {
        for stands_still in [true, false] {
            let home = world.sim.context();
            let noting = Noting { home: Some(home.clone()), ..Noting::new(world.sim.context()) };
            let leases = noting.leases(world.shared.clone());
            let guard = leases.lock("k").acquire().await.unwrap();
            if stands_still {
                noting.sim.freeze();
            } else {
                noting.loses.store(true, Ordering::Relaxed);
            }
            world.sim.pass(LEASE * 3).await;
            assert!(guard.is_valid(), "it was renewed at home");
            noting.sim.thaw();
            noting.loses.store(false, Ordering::Relaxed);
            assert!(guard.verify().await.unwrap());
            home.freeze();
            world.sim.pass(LEASE * 3).await;
            assert!(guard.is_valid(), "it was renewed where it is used");
            guard.release().await.unwrap();
        }
    });
}
