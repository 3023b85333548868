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
        let applied = match &self.action {
            Action::AcquireAll(asks) => self.acquire_all(asks, records, now),
            action => self.work(&self.key, records, now).map(|work| work.run(action)),
        };
        applied.unwrap_or_else(|unreadable| Answer::from(Outcome::Unreadable(unreadable)))
    }

    fn work<'a>(&self, key: &'a Key, records: &'a mut Records, now: StoreNow) -> Result<Work<'a>, Unreadable> {
        Ok(Work::new(key, records.open(key)?, self.holder, now))
    }

    /// All or nothing: looked at first, taken only if every key can be.
    fn acquire_all(&self, asks: &[(Key, Acquire)], records: &mut Records, now: StoreNow) -> Result<Answer, Unreadable> {
        // If one cannot be read, the others are not even looked at: who looks also grants, and must tell whom.
        asks.iter().try_for_each(|(key, _)| records.record(key).map(drop))?;
        let (mut ahead, mut promoted) = (Vec::with_capacity(asks.len()), Vec::new());
        let mut taken = false;
        for (key, ask) in asks {
            let (obstacles, mut others) = self.work(key, records, now)?.look(ask);
            taken |= obstacles.is_some();
            ahead.push(obstacles.unwrap_or_default());
            promoted.append(&mut others);
        }
        let outcome = if taken {
            // What is left of an attempt whose answer was lost.
            self.give_up(asks, true, records, now, &mut promoted)?;
            Outcome::BusyAll(ahead)
        } else {
            self.take_all(asks, records, now, &mut promoted)?
        };
        Ok(Answer { outcome, promoted, robbed: Vec::new() })
    }

    fn take_all(
        &self,
        asks: &[(Key, Acquire)],
        records: &mut Records,
        now: StoreNow,
        promoted: &mut Vec<Promotion>,
    ) -> Result<Outcome, Unreadable> {
        let mut all = Vec::with_capacity(asks.len());
        for (key, ask) in asks {
            let mut answer = self.work(key, records, now)?.run(&Action::Acquire(ask.clone()));
            promoted.append(&mut answer.promoted);
            let Outcome::Granted(granted) = answer.outcome else {
                // Only a key at the end of its tokens gets here; what was granted before it is given back.
                self.give_up(asks, false, records, now, promoted)?;
                return Ok(answer.outcome);
            };
            all.push(granted);
        }
        Ok(Outcome::GrantedAll(all))
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
    ) -> Result<(), Unreadable> {
        for (key, ask) in asks {
            if !only_left || self.is_left(key, ask, records) {
                let withdraw = Action::Withdraw { request: ask.request };
                promoted.append(&mut self.work(key, records, now)?.run(&withdraw).promoted);
            }
        }
        Ok(())
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
    pub(super) fn with_contention(mut self, others: bool) -> Self {
        if let Self::Granted(Granted { contended, .. }) | Self::Renewed { contended, .. } = &mut self {
            *contended = others;
        }
        self
    }
}
