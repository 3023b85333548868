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
        self.0.iter().map(|operation| operation.apply(records, now)).collect()
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
        for (key, ask) in asks {
            let (obstacles, others) = self.work(key, records, now)?.look(ask);
            ahead.push(obstacles);
            promoted.extend(others);
        }
        if ahead.iter().any(Option::is_some) {
            let ahead = ahead.into_iter().map(Option::unwrap_or_default).collect();
            // What is left of an attempt whose answer was lost.
            let left: Vec<_> = asks.iter().filter(|(key, ask)| self.is_left(key, ask, records)).cloned().collect();
            promoted.extend(self.give_up(&left, records, now)?);
            return Ok(Answer { promoted, ..Outcome::BusyAll(ahead).into() });
        }
        let mut all = Answer { promoted, ..Outcome::GrantedAll(Vec::new()).into() };
        for (key, ask) in asks {
            let answer = self.work(key, records, now)?.run(&Action::Acquire(ask.clone()));
            all.promoted.extend(answer.promoted);
            match (answer.outcome, &mut all.outcome) {
                (Outcome::Granted(granted), Outcome::GrantedAll(list)) => list.push(granted),
                // Only a key at the end of its tokens gets here; what was granted before it is given back.
                (other, _) => {
                    all.promoted.extend(self.give_up(asks, records, now)?);
                    all.outcome = other;
                    break;
                }
            }
        }
        Ok(all)
    }

    /// Whether an older attempt was granted. A newer one may be held by now: an attempt that comes late leaves it alone.
    fn is_left(&self, key: &Key, ask: &Acquire, records: &Records) -> bool {
        let grants = records.peek(key).map_or(&[][..], |record| &record.grants);
        let own = |grant: &&super::record::Grant| (grant.holder, grant.request) == (self.holder, ask.request);
        grants.iter().find(own).is_some_and(|grant| grant.beat < ask.beat)
    }

    /// Gives back what was granted of several, and tells who is granted by that.
    fn give_up(
        &self,
        asks: &[(Key, Acquire)],
        records: &mut Records,
        now: StoreNow,
    ) -> Result<Vec<Promotion>, Unreadable> {
        let mut promoted = Vec::new();
        for (key, ask) in asks {
            let withdraw = Action::Withdraw { request: ask.request };
            promoted.extend(self.work(key, records, now)?.run(&withdraw).promoted);
        }
        Ok(promoted)
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
