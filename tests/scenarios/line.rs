//! What connects a context to the store of the histories, and may fail or dawdle.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::pending;
use leasehold::{
    StoreError,
    executor::{Executor, SimExecutor},
    machine::{Batch, Now, Reply, StoreClock, StoreErrorKind, StoreId, Tombstone},
    store::{Fault, Reach, Store},
};

use crate::{
    oracle::Oracle,
    vault::Vault,
    world::{Dice, ms},
};

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
    /// Whether it takes tombstones.
    pub(crate) entombs: bool,
    trouble: Arc<Mutex<Trouble>>,
}

#[derive(Debug, Default)]
struct Trouble {
    always: Option<Fault>,
    lost_answers: u64,
}

impl Line {
    pub(crate) fn new(vault: Vault, sim: SimExecutor, oracle: Oracle, limit_ms: u64) -> Self {
        let (applies_ms, answers_ms) = ((0, 0), (0, 0));
        Self { vault, sim, oracle, applies_ms, answers_ms, limit_ms, entombs: true, trouble: Arc::default() }
    }

    /// All transactions fail like this, or none.
    pub(crate) fn fail_always(&self, fault: Option<Fault>) {
        self.trouble.lock().unwrap().always = fault;
    }

    /// The answers of the next so many transactions are lost.
    pub(crate) fn lose_answers(&self, count: u64) {
        self.trouble.lock().unwrap().lost_answers = count;
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

    async fn dawdle(&self, span_ms: (u64, u64)) {
        if span_ms.1 > 0 {
            self.sim.sleep(self.delay(span_ms)).await;
        }
    }

    fn delay(&self, (least, most): (u64, u64)) -> Duration {
        ms(least + Dice(&self.sim).below(most - least + 1))
    }

    /// Whether what is written blindly is lost on the way.
    fn loses_tombstones(&self) -> bool {
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
    async fn transact(&self, batch: Batch, _: Now) -> Result<Reply, StoreError> {
        let sent = self.sim.now().monotonic;
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
        let answers = self.vault.apply(&batch, self.sim.now());
        match fault {
            Some(Fault::Silence) => return self.never().await,
            Some(_) => return self.oracle.tally.count("an answer was lost", Err(StoreError::unknown("lost"))),
            None => self.dawdle(self.answers_ms).await,
        }
        if self.sim.now().monotonic.since(sent) > self.limit_ms {
            self.oracle.tally.count("a transaction overran its time limit", ());
            self.oracle.tally.count("an answer came after the time limit", ());
        }
        Ok(Reply { store: StoreId(1), answers })
    }

    async fn close(&self) {}

    fn entombs(&self) -> bool {
        self.entombs
    }

    /// Others of the same context may overtake it; that this context ends does not stop it.
    fn entomb(&self, tombstone: Tombstone) {
        if self.loses_tombstones() {
            return self.oracle.tally.count("a tombstone was lost", ());
        }
        self.oracle.tally.count("a tombstone was written", ());
        if self.applies_ms.1 == 0 {
            return self.vault.entomb(tombstone, true);
        }
        let (vault, world, delay) = (self.vault.clone(), self.oracle.world(), self.delay(self.applies_ms));
        world.clone().spawn(Box::pin(async move {
            world.sleep(delay).await;
            vault.entomb(tombstone, false);
        }));
    }

    fn clock(&self) -> StoreClock {
        self.vault.clock()
    }

    fn reach(&self) -> Reach {
        self.vault.reach()
    }
}
