//! A store that applies one attempt without an answer, and then refuses whatever is not a heartbeat alone.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use leasehold::{
    AcquireError, LeaseManager, Mode, StoreError,
    machine::{Action, Applied, Batch, Now, Reply, StoreClock, StoreErrorKind},
    store::{MemoryStore, Reach, Store},
};

use crate::support::world::{HEARTBEAT, LEASE, World, everywhere, ms, secs};

/// What becomes of a transaction.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    Answered,
    /// It is applied, and the answer is lost.
    Unanswered,
    Refused,
    RefusedForGood,
    Locked,
}

use Verdict::{Answered, Locked, Refused, RefusedForGood, Unanswered};

type Judge = Box<dyn FnMut(&Batch) -> Verdict + Send>;

#[derive(Clone)]
struct Judged {
    inner: MemoryStore,
    judge: Arc<Mutex<Judge>>,
}

impl Judged {
    fn over(world: &World) -> (LeaseManager, Self) {
        let store = Self { inner: world.shared.clone(), judge: Arc::new(Mutex::new(Box::new(|_| Answered))) };
        let builder = LeaseManager::builder(store.clone(), world.sim.context()).lease(LEASE).heartbeat(HEARTBEAT);
        (builder.beacon(false).linger(Duration::ZERO).build().unwrap(), store)
    }

    fn judge(&self, judge: impl FnMut(&Batch) -> Verdict + Send + 'static) {
        *self.judge.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(judge);
    }

    /// From now on the first transaction with an operation is applied without an answer, and all later ones get `then`.
    fn answers_no_more(&self, then: Verdict) {
        let mut is_first = true;
        self.judge(move |batch| match batch.operations.is_empty() {
            true => Answered,
            false if std::mem::take(&mut is_first) => Unanswered,
            false => then,
        });
    }
}

impl fmt::Debug for Judged {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Judged")
    }
}

#[async_trait::async_trait]
impl Store for Judged {
    async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError> {
        let verdict = (self.judge.lock().unwrap_or_else(PoisonError::into_inner))(&batch);
        match verdict {
            Answered => self.inner.transact(batch, now, limit).await,
            Unanswered => {
                self.inner.transact(batch, now, limit).await?;
                Err(StoreError::unknown("the answer was lost"))
            }
            Refused => Err(StoreError::transient("refused")),
            RefusedForGood => Err(StoreError::permanent(StoreErrorKind::Unavailable, "refused for good")),
            Locked => Err(StoreError::locked("locked")),
        }
    }

    async fn close(&self) {}

    fn clock(&self) -> StoreClock {
        self.inner.clock()
    }

    fn reach(&self) -> Reach {
        self.inner.reach()
    }
}

/// What an error of the store says of the request.
fn applied<T: fmt::Debug>(told: Result<T, AcquireError>) -> Applied {
    match told {
        Err(AcquireError::Store(error)) => error.applied,
        other => panic!("the store fails: {other:?}"),
    }
}

const THEN: [Verdict; 3] = [Refused, RefusedForGood, Locked];

/// Heartbeats succeed meanwhile. They tell nothing of the attempt.
#[test]
fn an_error_does_not_deny_an_attempt_that_went_unanswered_before_a_heartbeat() {
    for then in THEN {
        everywhere(async |world| {
            let (leases, store) = Judged::over(world);
            let other = world.tab();
            let _held = leases.lock("held").acquire().await.unwrap();
            store.answers_no_more(then);
            let told = world.within(secs(600), leases.lock("k").acquire()).await.unwrap();
            assert!(!other.leases.status("k").await.unwrap().holders.is_empty(), "it was applied");
            assert_eq!(applied(told), Applied::Unknown, "{then:?}");
        });
        everywhere(async |world| {
            let (leases, store) = Judged::over(world);
            let other = world.tab();
            let _held = leases.lock("held").acquire().await.unwrap();
            let both = [("a", Mode::Exclusive), ("b", Mode::Exclusive)];
            store.answers_no_more(then);
            let told = world.within(secs(600), leases.lock_all(both).acquire()).await.unwrap();
            assert!(!other.leases.status("a").await.unwrap().holders.is_empty(), "it was applied");
            assert_eq!(applied(told), Applied::Unknown, "several, {then:?}");
        });
    }
}

#[test]
fn an_error_does_not_deny_a_theft_that_went_unanswered() {
    for then in THEN {
        everywhere(async |world| {
            let (leases, store) = Judged::over(world);
            let other = world.tab();
            let victim = other.leases.lock("k").acquire().await.unwrap();
            let _held = leases.lock("held").acquire().await.unwrap();
            store.answers_no_more(then);
            let told = world.within(secs(600), leases.lock("k").steal()).await.unwrap();
            assert!(!victim.verify().await.unwrap_or(false), "it was robbed");
            assert_eq!(applied(told), Applied::Unknown, "{then:?}");
        });
    }
}

#[test]
fn an_error_does_not_deny_an_upgrade_that_went_unanswered() {
    for then in [Refused, Locked] {
        everywhere(async |world| {
            let (leases, store) = Judged::over(world);
            let other = world.tab();
            let guard = leases.lock("k").shared().acquire().await.unwrap();
            store.answers_no_more(then);
            let told = world.within(secs(600), guard.upgrade()).await.unwrap();
            assert_eq!(other.leases.status("k").await.unwrap().holders[0].mode, Mode::Exclusive);
            assert_eq!(applied(told), Applied::Unknown, "{then:?}");
        });
    }
}

#[test]
fn an_error_does_not_deny_a_release_that_went_unanswered() {
    for then in THEN {
        everywhere(async |world| {
            let (leases, store) = Judged::over(world);
            let other = world.tab();
            let _held = leases.lock("held").acquire().await.unwrap();
            let guard = leases.lock("k").acquire().await.unwrap();
            store.answers_no_more(then);
            let told = world.within(secs(600), guard.release()).await.unwrap();
            assert!(other.leases.status("k").await.unwrap().holders.is_empty(), "it was released");
            assert_eq!(told.expect_err("the store fails").applied, Applied::Unknown, "{then:?}");
        });
    }
}

/// The withdrawal ends the lease: the parts cannot be resumed again.
#[test]
fn an_error_does_not_deny_that_parts_were_resumed() {
    for then in [Refused, Locked] {
        everywhere(async |world| {
            let (leases, store) = Judged::over(world);
            let other = world.tab();
            let _held = leases.lock("held").acquire().await.unwrap();
            let parts = other.leases.lock("k").acquire().await.unwrap().into_parts();
            world.sim.pass(ms(1_000)).await;
            store.answers_no_more(then);
            let told = world.within(secs(600), leases.resume(parts)).await.unwrap();
            assert_eq!(applied(told), Applied::Unknown, "{then:?}");
        });
    }
}

/// Its place stands, and the holder's release may grant it.
#[test]
fn an_error_does_not_deny_the_place_of_a_waiter() {
    everywhere(async |world| {
        let holder = world.dark_tab();
        let (leases, store) = Judged::over(world);
        let guard = holder.leases.lock("k").acquire().await.unwrap();
        let mut waits = Box::pin(leases.lock("k").acquire());
        assert!(world.within(secs(3), &mut waits).await.is_none());
        store.judge(|_| Refused);
        let told = world.within(secs(120), waits).await.unwrap();
        assert_eq!(applied(told), Applied::Unknown);
        drop(guard);
    });
}

/// The store refuses to release one key, for ever.
#[test]
fn a_release_that_is_refused_for_good_costs_no_other_lease() {
    for lost in [1, 2, 3, 5] {
        everywhere(async |world| {
            let (leases, store) = Judged::over(world);
            let precious = leases.lock("precious").acquire().await.unwrap();
            let bad = leases.lock("bad").acquire().await.unwrap();
            let mut others = 0;
            store.judge(move |batch| {
                let releases = |action: &Action| matches!(action, Action::Release { .. });
                if batch.operations.iter().any(|ask| ask.key.as_str() == "bad" && releases(&ask.action)) {
                    return RefusedForGood;
                }
                others += 1;
                if others % (lost + 1) == lost { Unanswered } else { Answered }
            });
            assert!(world.within(secs(60), bad.release()).await.is_some());
            for _ in 0..20 {
                world.sim.pass(secs(1)).await;
                if let Some(Ok(Some(guard))) = world.within(secs(60), leases.lock("fine").try_acquire()).await {
                    drop(guard);
                }
                assert!(precious.verify().await.unwrap_or(true), "every {lost}th answer is lost");
            }
        });
    }
}

/// Guards that end together are released in one transaction.
#[test]
fn a_release_that_is_refused_for_good_delays_no_other_for_long() {
    for many in [10, 100] {
        everywhere(async |world| {
            let (leases, store) = Judged::over(world);
            let other = world.tab();
            let keys: Vec<_> = (0..many).map(|number| format!("k{number}")).chain(["bad".into()]).collect();
            let mut guards = Vec::new();
            for key in &keys {
                guards.push(leases.lock(key).acquire().await.unwrap());
            }
            store.judge(|batch| {
                let releases = |action: &Action| matches!(action, Action::Release { .. });
                let is_bad = batch.operations.iter().any(|ask| ask.key.as_str() == "bad" && releases(&ask.action));
                if is_bad { RefusedForGood } else { Answered }
            });
            drop(guards);
            let start = world.now();
            for key in &keys[..many] {
                drop(world.within(secs(60), other.leases.lock(key).acquire()).await.expect("it is free").unwrap());
            }
            assert!(world.ms_since(start) < 10_000, "{many} others are free after {} ms", world.ms_since(start));
        });
    }
}

/// The store fails once, and then refuses everything for good, so the session is lost and the request asks anew.
#[test]
fn an_error_does_not_deny_the_place_of_a_waiter_whose_session_is_lost() {
    for clock in [StoreClock::Trusted, StoreClock::Observed] {
        for seed in 0..20 {
            let world = World::with_clock(seed, clock);
            world.run(async {
                let holder = world.dark_tab();
                let (leases, store) = Judged::over(&world);
                let guard = holder.leases.lock("k").acquire().await.unwrap();
                let mut waits = Box::pin(leases.lock("k").acquire());
                assert!(world.within(secs(3), &mut waits).await.is_none());
                let mut was_asked = false;
                store.judge(move |_| if core::mem::replace(&mut was_asked, true) { RefusedForGood } else { Refused });
                let told = world.within(secs(120), waits).await.expect("it is told");
                guard.release().await.unwrap();
                let holders = holder.leases.status("k").await.unwrap().holders;
                assert!(
                    applied(told) == Applied::Unknown || holders.is_empty(),
                    "seed {seed}: it is granted the lease"
                );
            });
        }
    }
}
