//! What none of the five systems tests, and their bugs ask for: X1, X5, X6, X7, X11, X15, X16. The others stand where
//! their subject is: X2, X3 and X12 in `loss`, X4, X10, X17 and X18 in `locks`, X8 in `identity`, X9 in `faults`, X13
//! and X14 in `fairness`.

use std::time::Duration;
use std::{
    cell::Cell,
    sync::{Arc, Mutex},
};

use futures::future::{FutureExt, join, join_all};
use leasehold::{
    AcquireError, LeaseManager, LeaseState, LostReason, ReleaseOutcome, StoreError,
    executor::{Executor, SimExecutor, WeakShared},
    machine::{
        Action, Batch, Body, Message, Now, Operation, Outcome, Reply, SessionId, StoreClock, StoreErrorKind, TokenBlock,
    },
    signal::{Beacons, Inbox, LocalSignals, Signals},
    store::{MemoryStore, Reach, Store},
};

use crate::support::{
    doubles::{Deaf, SlowStore},
    world::{HEARTBEAT, LEASE, LIMIT, World, everywhere, ms, secs},
};

/// X1: what was granted stands in the store: a fresh connection sees it, though the one that wrote it was closed.
#[test]
fn x1_a_fresh_connection_sees_what_was_granted() {
    everywhere(async |world| {
        let (leases, connection) = connect(world);
        let guard = leases.lock("k").acquire().await.unwrap();
        connection.close().await;
        let fresh = world.dark_tab();
        assert!(fresh.leases.lock("k").try_acquire().await.unwrap().is_none());
        let status = fresh.leases.status("k").await.unwrap();
        assert_eq!((status.holders[0].token, status.holders[0].holder), (guard.token(), leases.session()));
    });
}

/// A context, and its connection to close under it.
fn connect(world: &World) -> (LeaseManager, Arc<MemoryStore>) {
    let connection = Arc::new(world.shared.clone());
    let store = Connection(connection.clone());
    let builder = LeaseManager::builder(store, world.sim.context()).lease(LEASE).heartbeat(HEARTBEAT);
    (builder.beacon(false).build().unwrap(), connection)
}

/// A connection that somebody else has in hand too.
#[derive(Debug)]
struct Connection(Arc<MemoryStore>);

#[async_trait::async_trait]
impl Store for Connection {
    async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError> {
        self.0.transact(batch, now, limit).await
    }

    async fn close(&self) {
        self.0.close().await;
    }

    fn clock(&self) -> StoreClock {
        self.0.clock()
    }

    fn reach(&self) -> Reach {
        self.0.reach()
    }
}

/// X5: a wait of an hour ends as promptly as one of a second, and does not hammer the store.
#[test]
fn x5_a_long_wait_neither_slows_down_nor_hammers() {
    everywhere(async |world| {
        let tab = || world.tab().with(|builder| builder.signals(Deaf));
        let (one, two) = (tab(), tab());
        let held = one.leases.lock("k").acquire().await.unwrap();
        let mut wait = Box::pin(two.leases.lock("k").acquire());
        assert!(world.within(secs(3_600), &mut wait).await.is_none());
        let asked = two.take_transactions();
        assert!((700..=900).contains(&asked), "about once a heartbeat: {asked}");
        held.release().await.unwrap();
        let granted = world.within(HEARTBEAT + ms(1), wait).await;
        assert!(granted.expect("within a heartbeat").unwrap().is_valid());
    });
}

/// X6: others are told of a change after it stands in the store, never before.
#[test]
fn x6_a_signal_comes_after_what_it_tells() {
    everywhere(async |world| {
        let told = Arc::new(Mutex::new(Vec::new()));
        let tab = || {
            let context = world.sim.context();
            let store = SlowStore::new(world.shared.clone(), context.clone(), 5..=5);
            let inner = LocalSignals::new(&world.shared.reach());
            let signals = Witness { inner, memory: world.shared.clone(), sim: context.clone(), told: told.clone() };
            LeaseManager::builder(store, context).signals(signals).build().unwrap()
        };
        let (one, two, three) = (tab(), tab(), tab());
        let held = one.lock("k").acquire().await.unwrap();
        let wait = async { two.lock("k").acquire().await.unwrap() };
        let release = async {
            world.sim.pass(ms(100)).await;
            held.release().await.unwrap();
        };
        let (heir, ()) = join(wait, release).await;
        heir.release().await.unwrap();
        // Taken without a queue, it lingers after its release.
        drop(two.lock("k").acquire().await.unwrap());
        let tried = three.lock("k").try_acquire().await.unwrap().expect("nobody uses it");
        let _thief = one.lock("k").steal().await.unwrap();
        assert_eq!(tried.lost().await, LostReason::Stolen);
        assert_eq!(*told.lock().unwrap(), ["granted", "freed", "stolen"]);
    });
}

/// Signals that look into the store at the moment of telling.
#[derive(Debug)]
struct Witness {
    inner: LocalSignals,
    memory: MemoryStore,
    sim: SimExecutor,
    told: Arc<Mutex<Vec<&'static str>>>,
}

impl Witness {
    /// Who holds the key that is told of.
    fn holders(&self, message: &Message) -> Vec<(SessionId, TokenBlock)> {
        let look = Operation { key: message.key.clone(), action: Action::Inspect };
        let reply = self.memory.transact(Batch::new(SessionId(0), vec![look]), self.sim.now(), LIMIT).now_or_never();
        let outcome = reply.expect("memory answers at once").unwrap().answers.remove(0).outcome;
        let Outcome::Status { grants, .. } = outcome else { panic!("it can be read") };
        grants.into_iter().map(|grant| (grant.holder, grant.block)).collect()
    }

    fn look(&self, message: &Message) -> Option<&'static str> {
        let holders = self.holders(message);
        match message.body {
            Body::Granted { holder, block, .. } => {
                assert_eq!(holders, [(holder, block)], "the heir holds it");
                Some("granted")
            }
            Body::Freed { .. } => {
                assert!(holders.is_empty(), "it is free");
                Some("freed")
            }
            Body::Stolen { holder, .. } => {
                assert!(holders.iter().all(|(other, _)| *other != holder), "who was robbed is gone");
                Some("stolen")
            }
            _ => None,
        }
    }
}

impl Signals for Witness {
    fn beacons(&self) -> Beacons {
        self.inner.beacons()
    }

    fn wake(&self, session: SessionId, beacon: bool, inbox: WeakShared<dyn Inbox>) -> bool {
        self.inner.wake(session, beacon, inbox)
    }

    fn rest(&self) {
        self.inner.rest();
    }

    fn send(&self, message: &Message) {
        self.told.lock().unwrap().extend(self.look(message));
        self.inner.send(message);
    }

    fn watch(&self, watch: u64, session: SessionId) {
        self.inner.watch(watch, session);
    }

    fn unwatch(&self, watch: u64) {
        self.inner.unwatch(watch);
    }
}

/// X7: readers who come and go without a gap do not keep a writer out.
#[test]
fn x7_a_writer_is_not_starved_by_readers() {
    everywhere(async |world| {
        let tabs: Vec<_> = (0..4).map(|_| world.tab()).collect();
        let written = Cell::new(false);
        let readers = (0..9).map(|reader| {
            let (leases, written) = (&tabs[reader % 3].leases, &written);
            async move {
                world.sim.pass(ms(reader as u64 * 7)).await;
                while !written.get() {
                    let guard = leases.lock("k").shared().acquire().await.unwrap();
                    world.sim.pass(ms(60)).await;
                    guard.release().await.unwrap();
                }
            }
        });
        let writer = async {
            world.sim.pass(secs(1)).await;
            let start = world.now();
            let guard = tabs[3].leases.lock("k").acquire().await.unwrap();
            let waited_ms = world.ms_since(start);
            // One tenure of 50 ms, and what was granted in it.
            assert!(waited_ms <= 110, "it waited for {waited_ms} ms");
            written.set(true);
            guard.release().await.unwrap();
        };
        assert!(world.within(LEASE, join(join_all(readers), writer)).await.is_some());
    });
}

/// X11: the wall clock jumps while one holds and another waits: doubt, no loss, no grant, and tokens that grow.
#[test]
fn x11_a_jump_of_the_wall_clock_brings_doubt_and_nothing_else() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let held = one.leases.lock("k").acquire().await.unwrap();
        let mut wait = Box::pin(two.leases.lock("k").acquire());
        let day_ms = 86_400_000;
        for jump_ms in [day_ms, -2 * day_ms, 365 * day_ms, -366 * day_ms] {
            assert!(world.within(HEARTBEAT, &mut wait).await.is_none());
            assert!(held.is_valid());
            world.sim.set_wall_clock(jump_ms);
            assert!(!held.is_valid(), "in doubt at once, before any timer");
            assert!(world.within(LEASE * 3, &mut wait).await.is_none(), "a jump of {jump_ms} ms evicts nobody");
            assert_eq!((held.watch().state(), held.is_valid()), (LeaseState::Held, true));
        }
        held.release().await.unwrap();
        let next = world.within(HEARTBEAT, wait).await.expect("by its own clock it is in time").unwrap();
        assert!(next.token() > held.token(), "though the wall clock lies two days back");
    });
}

/// X15: the connection is closed under a context: its guards say so, its requests fail, and others go on.
#[test]
fn x15_a_closed_connection_is_told() {
    everywhere(async |world| {
        let ((leases, connection), other) = (connect(world), world.dark_tab());
        let guard = leases.lock("k").acquire().await.unwrap();
        connection.close().await;
        assert_eq!(world.within(HEARTBEAT + ms(1), guard.lost()).await, Some(LostReason::StoreFailed));
        assert!(!guard.is_valid());
        let refused = leases.lock("k").acquire().await.unwrap_err();
        assert!(
            matches!(refused, AcquireError::Store(StoreError { kind: StoreErrorKind::Closed, retry: false, .. })),
            "{refused:?}"
        );
        let limit = LEASE + LEASE / 10 + HEARTBEAT;
        assert!(world.within(limit, other.leases.lock("k").acquire()).await.is_some(), "it runs out by itself");
    });
}

/// X16: however clones are dropped or released, the lease is held until the last of them, and no longer.
#[test]
fn x16_the_lease_goes_with_the_last_clone_in_every_order() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        for (released, order) in (0..8).flat_map(|released| orders.map(|order| (released, order))) {
            let guard = one.leases.lock("k").acquire().await.unwrap();
            let mut clones = [Some(guard.clone()), Some(guard.clone()), Some(guard)];
            for at in order {
                assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none(), "{released:b} {order:?}");
                let clone = clones[at].take().unwrap();
                assert!(clone.is_valid());
                // Of the others, the release is their drop.
                if released & (1 << at) != 0 {
                    assert_eq!(clone.release().await.unwrap(), ReleaseOutcome::Released);
                    assert!(!clone.is_valid());
                }
            }
            let next = two.leases.lock("k").try_acquire().await.unwrap();
            assert!(next.is_some(), "{released:b} {order:?}");
        }
    });
}
