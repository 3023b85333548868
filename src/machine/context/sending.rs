//! Sends transactions: when, and what each of them does to the session.

use alloc::vec::Vec;

use super::{
    Machine,
    config::silence_ms,
    failure::{KEYS_MAY_BE_LOCKED, StoreError},
    key::Key,
    last_writer::USED,
    output::Command,
    pending::{PendingOperation, Sent, Transaction},
    record::{Action, Batch, SessionStep},
    store_queue::{Load, LoadKind},
    time::Monotonic,
};

/// The npm package has its store in IndexedDB, where nothing else makes it wait.
const WHY_SILENT: &str = if KEYS_MAY_BE_LOCKED {
    "it may be out of reach, or an open transaction may block it"
} else {
    "an open transaction over the object store `leasehold` may block it, maybe this page's own"
};

impl Machine {
    /// Drops operations that became obsolete while they waited, before anything checks whether something is left to send.
    pub(super) fn drop_obsolete(&mut self, now: Monotonic) {
        if self.store_queue.collect_due(now) {
            let delay_ms = self.backoff_ms(u32::MAX);
            self.store_queue.collect_again(now.plus(delay_ms));
        }
        if self.store_queue.is_mostly_given_up() || self.may_send() {
            self.store_queue.drop_obsolete(&self.cohorts);
        }
    }

    /// Sends the operations that wait, unless a transaction is in flight.
    pub(super) fn flush(&mut self, now: Monotonic) {
        if self.may_send() {
            self.send_now(now);
        }
    }

    /// Whether a transaction may be sent. Until then, a timer for one would fire again and again.
    pub(super) fn may_send(&self) -> bool {
        self.store_queue.in_flight().is_none() && !self.presence.is_rising() && !self.life.is_suspended()
    }

    /// Sends the operations that wait, whatever else is under way.
    // Protocol: docs/protocol.md#s10, #s17.
    pub(super) fn send_now(&mut self, now: Monotonic) {
        let ends_stale = self.ends_stale_at().is_some_and(|at| at <= now);
        let Some(load) = self.store_queue.take_next(&self.session, ends_stale) else { return };
        let (session, sent, room) = (self.session.id(), self.store_queue.next_sent(now), self.store_queue.room());
        let forgets = self.forgets_beside(&load);
        let Load { operations: mut pending, kind } = load;
        // A request would wait behind an earlier session of its own context, which ends with this transaction or before.
        let rest = room.split(&mut pending, self.session.stale() + forgets.len());
        // A request that is sent separately opens the session if necessary, and ends earlier sessions of its context. While an attempt is
        // unanswered, a heartbeat goes along, so that an attempt that arrives after its withdrawal is refused.
        let goes_bare = kind == LoadKind::Apart
            && !self.session.has_unanswered()
            && !pending.iter().any(PendingOperation::acquires);
        let step = if goes_bare { SessionStep::Stay } else { self.step_for(&pending, rest.is_empty(), sent) };
        self.store_queue.put_first(rest);
        let opens = matches!(step, SessionStep::Open { .. });
        let is_sure = pending.iter().all(|operation| self.cohorts.are_sure_of(operation));
        let mut operations = Vec::with_capacity(pending.len());
        for operation in &mut pending {
            operations.push(self.cohorts.stamp(operation, sent));
        }
        let most = if goes_bare { 0 } else { room.beside(operations.len() + forgets.len()) };
        let ends = self.session.endings(most, |peer, read_at| now.since(read_at) >= silence_ms(peer.lease_ms));
        let mut batch = Batch { session, step, ends: ends.clone(), operations, forgets: forgets.clone(), sure_ms: 0 };
        if is_sure && batch.rests_on_records() {
            batch.sure_ms = self.session.belief_left(now);
        }
        let lease_ms = batch.beat().map(|beat| beat.lease_ms);
        let limit = now.plus(self.config.store_timeout_ms);
        let closes = batch.step == SessionStep::Close;
        let transaction =
            Transaction { sent, session, opens, lease_ms, ends, operations: pending, limit, forgets, gone: Vec::new() };
        self.store_queue.note_sent(transaction);
        self.emit(Command::Store { id: sent.transaction, batch });
        if closes {
            self.end_session_by(sent.transaction, now);
        }
    }

    /// The keys whose records are forgotten together with these operations: as many as fit beside them, but at least a third of the
    /// room, so that a context that fills every transaction forgets as many keys as it acquires and releases. None go with a refused
    /// operation, since they would fail with it. A heartbeat that is sent alone touches no key.
    fn forgets_beside(&mut self, load: &Load) -> Vec<Key> {
        let (room, operations) = (self.store_queue.room(), load.operations.len());
        let most = match load.kind {
            LoadKind::Apart | LoadKind::Heartbeat => 0,
            LoadKind::Usual => room.beside(operations + self.session.stale()).max(room.beside(0) / 3),
        };
        // A heartbeat costs the same however many keys are held.
        let examined = if operations == 0 { 1 } else { USED };
        let is_used = |key: &Key| !self.cohorts.pick(Some(key), &|_, _| true).is_empty();
        self.last_writers.take_forgotten(most, examined, is_used)
    }

    /// When stale sessions are ended by a transaction of their own, unless a retry ends them first.
    pub(super) fn ends_stale_at(&self) -> Option<Monotonic> {
        self.session.stale_at().filter(|_| !self.store_queue.retries() && !self.presence.is_rising())
    }

    /// What the transaction does to the session's row. Only the last part of a divided transaction closes the session.
    // Protocol: docs/protocol.md#s10.
    fn step_for(&mut self, operations: &[PendingOperation], is_last: bool, sent: Sent) -> SessionStep {
        let acquires = operations.iter().any(PendingOperation::acquires);
        let opens = !self.session.is_open();
        let closes = self.session.wants_close() && operations.iter().all(PendingOperation::is_done_by_session_end);
        if closes && is_last {
            return SessionStep::Close;
        }
        if !closes {
            self.session.stay();
        }
        if (opens && !acquires) || (!opens && !self.session.needs_beat(acquires, sent.at)) {
            return SessionStep::Stay;
        }
        self.heartbeat.note_sent(sent.at);
        let beat = self.session.beat(sent, self.config.lease_ms, self.presence.beacon_stands());
        self.session.beat_is_sent();
        match opens {
            true => SessionStep::Open { beat, instance: self.config.instance.clone() },
            false => SessionStep::Beat(beat),
        }
    }

    /// Drops the unsent operations of a session that has ended. A verification and a downgrade are told that the lease was lost; a release
    /// is told why, or that it came in time.
    pub(super) fn drop_operations_of_session(&mut self, now: Monotonic) {
        for operation in self.store_queue.recall_all_of_session() {
            match (operation.turn, &operation.action) {
                // The lease was lost with the session.
                (Some(turn), Action::Verify { .. } | Action::Downgrade { .. }) => self.tell_verified(turn, Ok(false)),
                _ => self.answer_for_ended_session(&operation, now),
            }
        }
    }

    /// Gives up on a transaction whose time limit has passed. Its outcome is unknown until the record is read again.
    pub(super) fn give_up_on_silent_store(&mut self, now: Monotonic) {
        if let Some(transaction) = self.store_queue.give_up(now) {
            let limit_ms = self.config.store_timeout_ms;
            let error = StoreError::unknown(alloc::format!(
                "the store did not answer within {limit_ms} ms, the store time-out; {WHY_SILENT}"
            ));
            self.failed(&transaction, &error, now);
            self.transaction_is_over(transaction.sent.transaction, false);
        }
    }

    /// How long to wait before another attempt, in ms: twice as long each time, with jitter, and at most a heartbeat.
    pub(super) fn backoff_ms(&mut self, attempts: u32) -> u64 {
        let cap_ms = (self.config.heartbeat_ms / 2).max(1);
        let delay_ms = (50_u64 << attempts.min(10)).min(cap_ms);
        delay_ms - self.dice.below(delay_ms / 2 + 1)
    }

    /// Tries again later, together with everything else that failed.
    pub(super) fn retry(&mut self, operation: &PendingOperation, now: Monotonic) {
        let delay_ms = self.backoff_ms(operation.attempts);
        self.store_queue.retry(operation.clone(), now.plus(delay_ms));
    }
}
