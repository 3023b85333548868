//! What connects a context to the store of the histories, and may fail or dawdle.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::pending;
use leasehold::{
    StoreError,
    executor::{Executor, SimExecutor, WeakShared},
    machine::{Batch, Monotonic, Now, Reply, SessionId, SessionStep, StoreClock, StoreErrorKind},
    store::{Fault, Reach, Store, StoreWatcher},
};

use crate::support::{
    oracle::Oracle,
    vault::Vault,
    world::{Dice, ms},
};

/// A context never sends more transactions than this at one moment.
const MOST_AT_ONCE: usize = 500;

/// One context's connection, which may fail or dawdle. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    vault: Vault,
    sim: SimExecutor,
    oracle: Oracle,
    /// How long the way there takes, at least and at most, and the way back.
    pub(crate) applies_ms: (u64, u64),
    pub(crate) answers_ms: (u64, u64),
    pub(crate) limit_ms: u64,
    /// Whether it deletes sessions blindly.
    pub(crate) abandons: bool,
    trouble: Arc<Mutex<Trouble>>,
    watchers: Watchers,
}

/// Who hears that the store is gone.
#[derive(Clone, Default)]
struct Watchers(Arc<Mutex<Vec<WeakShared<dyn StoreWatcher>>>>);

impl std::fmt::Debug for Watchers {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Watchers")
    }
}

#[derive(Debug, Default)]
struct Trouble {
    always: Option<Fault>,
    lost_answers: u64,
    /// A transaction with more operations than this is too large.
    most: Option<usize>,
    /// This many of the next transactions fail for good.
    failures: u64,
    /// The store is busy for this many of the next transactions.
    busy: u64,
    /// How many transactions came at the same moment.
    burst: (Monotonic, usize),
}

impl Line {
    pub(crate) fn new(vault: Vault, sim: SimExecutor, oracle: Oracle, limit_ms: u64) -> Self {
        let (applies_ms, answers_ms) = ((0, 0), (0, 0));
        let (trouble, watchers) = (Arc::default(), Watchers::default());
        Self { vault, sim, oracle, applies_ms, answers_ms, limit_ms, abandons: true, trouble, watchers }
    }

    /// All transactions fail like this, or none.
    pub(crate) fn fail_always(&self, fault: Option<Fault>) {
        self.trouble.lock().unwrap().always = fault;
    }

    /// The answers of this many of the next transactions are lost.
    pub(crate) fn lose_answers(&self, count: u64) {
        self.trouble.lock().unwrap().lost_answers = count;
    }

    /// From now on, a transaction with more operations than this is too large.
    pub(crate) fn narrow(&self, most: Option<usize>) {
        self.trouble.lock().unwrap().most = most;
    }

    /// This many of the next transactions fail for good.
    pub(crate) fn fail(&self, count: u64) {
        self.trouble.lock().unwrap().failures = count;
    }

    /// The store is busy for this many of the next transactions.
    pub(crate) fn be_busy(&self, count: u64) {
        self.trouble.lock().unwrap().busy = count;
    }

    /// Its context is told that the store is gone, or that a connection ended.
    pub(crate) fn tell(&self, is_gone: bool) {
        let watchers = self.watchers.0.lock().unwrap().clone();
        for watcher in watchers.iter().filter_map(WeakShared::upgrade) {
            if is_gone {
                watcher.store_gone();
            } else {
                watcher.connection_ended();
            }
        }
    }

    pub(crate) fn heal(&self) {
        *self.trouble.lock().unwrap() = Trouble::default();
    }

    fn fault(&self) -> Option<Fault> {
        let mut trouble = self.trouble.lock().unwrap();
        if trouble.lost_answers > 0 {
            trouble.lost_answers -= 1;
            return Some(Fault::LoseReply);
        }
        trouble.always
    }

    /// Whether more transactions come at one moment than a context has reasons for.
    fn spins(&self, now: Monotonic) -> bool {
        let mut trouble = self.trouble.lock().unwrap();
        let many = if trouble.burst.0 == now { trouble.burst.1 + 1 } else { 1 };
        trouble.burst = (now, many);
        many > MOST_AT_ONCE
    }

    /// What is wrong with this very transaction.
    fn refusal(&self, batch: &Batch) -> Option<StoreError> {
        let mut trouble = self.trouble.lock().unwrap();
        let load = batch.operations.len() + batch.ends.len() + batch.forgets.len();
        if trouble.most.is_some_and(|most| load > most) {
            return self.oracle.tally.count(
                "a transaction was too large",
                Some(StoreError::permanent(StoreErrorKind::TooLarge, "too large")),
            );
        }
        if trouble.failures > 0 {
            trouble.failures -= 1;
            return self.oracle.tally.count(
                "a transaction failed for good",
                Some(StoreError::permanent(StoreErrorKind::Unavailable, "never")),
            );
        }
        if trouble.busy > 0 {
            trouble.busy -= 1;
            return self.oracle.tally.count("the store was busy", Some(StoreError::busy("busy")));
        }
        None
    }

    /// Waits until nobody else keeps a record of the transaction locked. Returns `false` if that takes too long.
    async fn passes_locks(&self, batch: &Batch) -> bool {
        let patience_ms = self.limit_ms / 10;
        let until = self.sim.now().monotonic.plus(patience_ms);
        while self.vault.is_locked(batch) {
            if self.sim.now().monotonic >= until {
                return self.oracle.tally.count("a key was locked for too long", false);
            }
            self.sim.sleep(ms((patience_ms / 8).max(1))).await;
        }
        true
    }

    async fn dawdle(&self, span_ms: (u64, u64)) {
        if span_ms.1 > 0 {
            self.sim.sleep(self.delay(span_ms)).await;
        }
    }

    fn delay(&self, (least, most): (u64, u64)) -> Duration {
        ms(least + Dice(&self.sim).below(most - least + 1))
    }

    /// Whether what is written blindly is lost on the way.
    fn loses_abandoned(&self) -> bool {
        let always = self.trouble.lock().unwrap().always;
        matches!(always, Some(Fault::Refuse | Fault::Fail | Fault::Stall)) || Dice(&self.sim).one_in(8)
    }

    async fn never<T>(&self) -> T {
        self.oracle.tally.count("a transaction overran its time limit", ());
        pending().await
    }
}

#[async_trait::async_trait]
impl Store for Line {
    async fn transact(&self, batch: Batch, _: Now, _: Duration) -> Result<Reply, StoreError> {
        let sent = self.sim.now().monotonic;
        if self.spins(sent) {
            self.oracle.accuse(format!("a context sends without end: {batch:?}"));
            return self.never().await;
        }
        self.dawdle(self.applies_ms).await;
        let fault = self.fault();
        match fault {
            Some(Fault::Refuse) => {
                return self.oracle.tally.count("a transaction was refused", Err(StoreError::transient("refused")));
            }
            Some(Fault::Fail) => return Err(StoreError::permanent(StoreErrorKind::Unavailable, "failed")),
            Some(Fault::Stall) => return self.never().await,
            _ => {}
        }
        if let Some(error) = self.refusal(&batch) {
            return Err(error);
        }
        if !self.passes_locks(&batch).await {
            return Err(StoreError::locked("somebody else keeps a record locked"));
        }
        let reply = self.vault.apply(&batch, self.sim.now());
        if self.sim.now().monotonic.since(sent) > self.limit_ms && Dice(&self.sim).one_in(2) {
            // What was applied too late need not tell so: only the store can refuse it.
            return self.never().await;
        }
        match fault {
            Some(Fault::Silence) => return self.never().await,
            Some(_) => {
                if matches!(batch.step, SessionStep::Open { .. }) {
                    self.oracle.tally.count("the answer to an opening was lost", ());
                }
                return self.oracle.tally.count("an answer was lost", Err(StoreError::unknown("lost")));
            }
            None => self.dawdle(self.answers_ms).await,
        }
        if self.sim.now().monotonic.since(sent) > self.limit_ms {
            self.oracle.tally.count("a transaction overran its time limit", ());
            self.oracle.tally.count("an answer came after the time limit", ());
        }
        Ok(reply)
    }

    async fn close(&self) {}

    fn watch(&self, watcher: WeakShared<dyn StoreWatcher>) {
        self.watchers.0.lock().unwrap().push(watcher);
    }

    fn abandons(&self) -> bool {
        self.abandons
    }

    /// Others of the same context may overtake it; that this context ends does not stop it.
    fn abandon(&self, session: SessionId) {
        if self.loses_abandoned() {
            return self.oracle.tally.count("a session was left behind", ());
        }
        self.oracle.tally.count("a session was abandoned", ());
        if self.applies_ms.1 == 0 {
            return self.vault.abandon(session);
        }
        let (vault, world, delay) = (self.vault.clone(), self.oracle.world(), self.delay(self.applies_ms));
        world.clone().spawn(Box::pin(async move {
            world.sleep(delay).await;
            vault.abandon(session);
        }));
    }

    fn clock(&self) -> StoreClock {
        self.vault.clock()
    }

    fn reach(&self) -> Reach {
        self.vault.reach()
    }
}
