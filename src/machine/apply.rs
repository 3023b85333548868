//! The only code that grants, queues, promotes, renews, evicts or refuses. Every store runs it in one transaction.

use alloc::vec::Vec;

use super::{
    codec::Unreadable,
    key::Key,
    operation::{Acquire, Action, Answer, Batch, Granted, Operation, Outcome, Promotion, StoreNow},
    records::Records,
    work::Work,
};

impl Batch {
    /// Applies all operations in order.
    pub fn apply(&self, records: &mut Records, now: StoreNow) -> Vec<Answer> {
        let mut answers = Vec::with_capacity(self.0.len());
        for operation in &self.0 {
            answers.push(operation.apply(records, now));
        }
        answers
    }
}

impl Operation {
    /// Applies the operation to its key's record, and promotes who is next.
    pub fn apply(&self, records: &mut Records, now: StoreNow) -> Answer {
        match &self.action {
            Action::AcquireAll(asks) => self.acquire_all(asks, records, now),
            action => self.run(&self.key, action, records, now),
        }
    }

    fn run(&self, key: &Key, action: &Action, records: &mut Records, now: StoreNow) -> Answer {
        match records.open(key) {
            Ok(opened) => Work::new(key, opened, self.holder, now).run(action),
            Err(unreadable) => unreadable.into(),
        }
    }

    /// All or nothing: looked at first, taken only if every key can be.
    fn acquire_all(&self, asks: &[(Key, Acquire)], records: &mut Records, now: StoreNow) -> Answer {
        // If one cannot be read, the others are not even looked at: who looks also grants, and must tell whom.
        for (key, _) in asks {
            if let Err(unreadable) = records.record(key) {
                return unreadable.into();
            }
        }
        let (mut ahead, mut promoted) = (Vec::with_capacity(asks.len()), Vec::new());
        let mut taken = false;
        for (key, ask) in asks {
            let Ok(opened) = records.open(key) else { continue };
            let (obstacles, mut others) = Work::new(key, opened, self.holder, now).look(ask);
            taken |= obstacles.is_some();
            ahead.push(obstacles.unwrap_or_default());
            promoted.append(&mut others);
        }
        let outcome = if taken {
            // What is left of an attempt whose answer was lost.
            self.give_up(asks, true, records, now, &mut promoted);
            Outcome::BusyAll(ahead)
        } else {
            self.take_all(asks, records, now, &mut promoted)
        };
        Answer { outcome, promoted, robbed: Vec::new() }
    }

    fn take_all(
        &self,
        asks: &[(Key, Acquire)],
        records: &mut Records,
        now: StoreNow,
        promoted: &mut Vec<Promotion>,
    ) -> Outcome {
        let mut all = Vec::with_capacity(asks.len());
        for (key, ask) in asks {
            let mut answer = self.run(key, &Action::Acquire(ask.clone()), records, now);
            promoted.append(&mut answer.promoted);
            let Outcome::Granted(granted) = answer.outcome else {
                // Only a key at the end of its tokens gets here; what was granted before it is given back.
                self.give_up(asks, false, records, now, promoted);
                return answer.outcome;
            };
            all.push(granted);
        }
        Outcome::GrantedAll(all)
    }

    /// Whether an older attempt was granted. A newer one may be held by now: an attempt that comes late leaves it alone.
    fn is_left(&self, key: &Key, ask: &Acquire, records: &Records) -> bool {
        let grants = records.peek(key).map_or(&[][..], |record| &record.grants);
        let own = |grant: &&super::record::Grant| (grant.holder, grant.request) == (self.holder, ask.request);
        grants.iter().find(own).is_some_and(|grant| grant.beat < ask.beat)
    }

    /// Gives back what was granted of several, or of that what is left, and notes who is granted by it.
    fn give_up(
        &self,
        asks: &[(Key, Acquire)],
        only_left: bool,
        records: &mut Records,
        now: StoreNow,
        promoted: &mut Vec<Promotion>,
    ) {
        for (key, ask) in asks {
            if !only_left || self.is_left(key, ask, records) {
                let withdraw = Action::Withdraw { request: ask.request };
                promoted.append(&mut self.run(key, &withdraw, records, now).promoted);
            }
        }
    }
}

impl From<Outcome> for Answer {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, promoted: Vec::new(), robbed: Vec::new() }
    }
}

impl From<Unreadable> for Answer {
    fn from(unreadable: Unreadable) -> Self {
        Self::from(Outcome::Unreadable(unreadable))
    }
}

impl Outcome {
    /// Notes whether others queue for what was granted or renewed.
    pub(super) fn note_contention(&mut self, others: bool) {
        if let Self::Granted(Granted { contended, .. }) | Self::Renewed { contended, .. } = self {
            *contended = others;
        }
    }
}
