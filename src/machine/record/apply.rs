//! The only code that grants, queues, promotes, ends or refuses. Every store runs it in one transaction.

use alloc::vec::Vec;

use super::{
    codec::Unreadable,
    id::{SessionId, StoreId},
    key::Key,
    operation::{Acquire, Action, Answer, Batch, Granted, Operation, Outcome, Promotion, Reply, SessionStep, StoreNow},
    records::Records,
    session::Session,
    transition::Transition,
};

impl Batch {
    /// Applies the batch, in order.
    // Protocol: docs/protocol.md#s1, #s3.
    pub fn apply(&self, records: &mut Records, now: StoreNow) -> Reply {
        for ending in &self.ends {
            let heard_since = |row: &Session| ending.beat.is_some_and(|beat| beat != row.beat);
            if !records.sessions.get(ending.session).is_some_and(heard_since) {
                records.sessions.end(ending.session);
            }
        }
        self.open_or_beat(records, now);
        let mut answers = Vec::with_capacity(self.operations.len());
        for operation in &self.operations {
            answers.push(operation.apply(self.session, records, now));
        }
        let robbed = records.sessions.own(self.session).map(Session::robbed);
        let opens = matches!(self.step, SessionStep::Open { .. });
        let peers = if opens { records.sessions.peers_of(self.session) } else { Vec::new() };
        if self.step == SessionStep::Close {
            records.sessions.end(self.session);
        }
        self.forgets.iter().for_each(|key| records.forget(key));
        Reply { store: records.store(), robbed, peers, answers }
    }

    /// Applies the batch to its records alone, if the result is the same as that of [`apply`](Self::apply): the batch only acquires,
    /// releases and withdraws, every key has a record, and no other session has a grant or a place in its queue. Otherwise it returns
    /// `None`; then discard `records`, load everything, and call `apply`.
    ///
    /// `records` holds just the batch's records, loaded in this transaction; `store` is the id from an earlier answer on this connection.
    /// When the records are read, and before this is called, the store asks whether the batch [is still sure](Self::is_sure) of its
    /// session. A store may call this only if it applies the batches of a context in the order of sending, and none of a context that has
    /// stopped.
    // Protocol: docs/protocol.md#s17.
    pub fn apply_alone(&self, records: &mut Records, store: StoreId, now: StoreNow) -> Option<Reply> {
        if !self.rests_on_records() || !records.concern_only_sender_of(self) {
            return None;
        }
        records.rely_on(self.session, store);
        let reply = self.apply(records, now);
        // Any other answer contains what the rows of the sessions say.
        let needs_no_row =
            |answer: &Answer| matches!(answer.outcome, Outcome::Granted(_) | Outcome::Released | Outcome::Withdrawn);
        reply.answers.iter().all(needs_no_row).then_some(reply)
    }

    fn open_or_beat(&self, records: &mut Records, now: StoreNow) {
        match &self.step {
            SessionStep::Open { beat, instance } => {
                let mut row = Session { instance: instance.clone(), ..Session::default() };
                row.take(beat, now.wall, now.deadline(beat.lease_ms));
                records.sessions.open(self.session, row);
            }
            SessionStep::Beat(beat) => records.sessions.beat(self.session, beat, now),
            SessionStep::Stay | SessionStep::Close => {}
        }
    }
}

impl Operation {
    /// Applies the operation to its key's record, and grants the lease to waiters that are next.
    fn apply(&self, session: SessionId, records: &mut Records, now: StoreNow) -> Answer {
        match &self.action {
            Action::AcquireAll(asks) => Several { session, asks, now }.acquire(records),
            action => run(&self.key, action, session, records, now),
        }
    }
}

fn run(key: &Key, action: &Action, session: SessionId, records: &mut Records, now: StoreNow) -> Answer {
    let (answer, before) = match records.open(key) {
        Ok((record, sessions)) => {
            let before = record.revision;
            (Transition::new(key, record, sessions, session, now).run(action), before)
        }
        Err(unreadable) => return unreadable.into(),
    };
    records.settle(key, before);
    answer
}

/// A request for several keys.
struct Several<'a> {
    session: SessionId,
    asks: &'a [(Key, Acquire)],
    now: StoreNow,
}

impl Several<'_> {
    /// All or nothing: looks at every key first, and acquires only if every key is free.
    fn acquire(&self, records: &mut Records) -> Answer {
        // If one record cannot be read, the others are not even looked at, because a look may grant leases, which the answer must report.
        for (at, (key, _)) in self.asks.iter().enumerate() {
            if let Err(unreadable) = records.check(key) {
                return Outcome::UnreadableAt(at, unreadable).into();
            }
        }
        let (mut ahead, mut promoted) = (Vec::with_capacity(self.asks.len()), Vec::new());
        let mut taken = false;
        for (key, ask) in self.asks {
            let Ok((record, sessions)) = records.open(key) else { continue };
            let before = record.revision;
            let transition = Transition::new(key, record, sessions, self.session, self.now);
            let seen = transition.survey(ask);
            // A refusal must not leave a record in memory that the store does not have.
            records.settle(key, before);
            let (obstacles, mut others) = match seen {
                Ok(seen) => seen,
                Err(outcome) => return Answer { outcome, promoted, robbed: Vec::new() },
            };
            taken |= obstacles.is_some();
            ahead.push(obstacles.unwrap_or_default());
            promoted.append(&mut others);
        }
        let outcome = if taken { Outcome::BusyAll(ahead) } else { self.take_all(records, &mut promoted) };
        Answer { outcome, promoted, robbed: Vec::new() }
    }

    fn take_all(&self, records: &mut Records, promoted: &mut Vec<Promotion>) -> Outcome {
        let mut all = Vec::with_capacity(self.asks.len());
        for (key, ask) in self.asks {
            let mut answer = run(key, &Action::Acquire(ask.clone()), self.session, records, self.now);
            promoted.append(&mut answer.promoted);
            let Outcome::Granted(granted) = answer.outcome else {
                // The key has no tokens left; or an earlier attempt was granted the lease, which was stolen since. The leases granted
                // before it are released.
                self.give_up(records, promoted);
                return answer.outcome;
            };
            all.push(granted);
        }
        Outcome::GrantedAll(all)
    }

    /// Releases the leases that were granted, and notes the waiters that are granted them instead.
    fn give_up(&self, records: &mut Records, promoted: &mut Vec<Promotion>) {
        for (key, ask) in self.asks {
            let withdraw = Action::Withdraw { request: ask.request };
            promoted.append(&mut run(key, &withdraw, self.session, records, self.now).promoted);
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
    /// Notes whether others wait for the lease.
    pub(super) fn note_contention(&mut self, others: bool) {
        if let Self::Granted(Granted { contended, .. }) | Self::Current { contended, .. } = self {
            *contended = others;
        }
    }
}
