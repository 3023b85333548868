//! What one transaction carries, and when it is sent.

use alloc::vec::Vec;

use super::super::{
    Machine,
    config::silence_ms,
    failure::{KEYS_MAY_BE_LOCKED, StoreError},
    key::Key,
    last_writer::USED,
    output::Command,
    pending::{PendingOperation, Sent, Transaction},
    record::{Action, Batch, SessionStep},
    sorted::HAS_MANY_KEYS,
    time::Monotonic,
};
use super::apart::{next_apart, take_first};

impl Machine {
    /// Drops operations that became obsolete while they waited, before anything checks whether something is left to send.
    pub(in super::super) fn drop_obsolete(&mut self, now: Monotonic) {
        if self.store_queue.collect_due(now) {
            let delay_ms = self.backoff_ms(u32::MAX);
            self.store_queue.retry_at = Some(now.plus(delay_ms));
        }
        if self.store_queue.is_mostly_given_up() {
            self.keep_current(usize::MAX);
            self.store_queue.given_up = 0;
        } else if self.may_send() && !self.store_queue.waiting.is_empty() {
            // Operations that do not fit in the next transaction are examined later: otherwise each transaction would cost as much as the
            // whole queue. Refused operations and those that need a locked key are sent separately, so they take no room here, and all of
            // them are examined.
            self.keep_current(self.store_queue.room.beside(0));
        }
    }

    /// Drops operations that are no longer current. After `most` that stay, it examines only those that are sent separately.
    // Protocol: docs/protocol.md#o.
    fn keep_current(&mut self, mut most: usize) {
        let mut operations = core::mem::take(&mut self.store_queue.waiting);
        let before = operations.len();
        let locked = self.store_queue.locked_keys(&operations);
        operations.retain(|operation| {
            let goes_apart = operation.goes_apart(&locked);
            let stays = (most == 0 && !goes_apart) || self.cohorts.still_want(operation);
            most = most.saturating_sub(usize::from(stays && !goes_apart));
            stays
        });
        if HAS_MANY_KEYS {
            self.store_queue.given_up = self.store_queue.given_up.saturating_sub(before - operations.len());
        }
        self.store_queue.waiting = operations;
    }

    /// Sends the operations that wait, unless a transaction is in flight.
    pub(in super::super) fn flush(&mut self, now: Monotonic) {
        if self.may_send() {
            self.send_now(now);
        }
    }

    /// Whether a transaction may be sent. Until then, a timer for one would fire again and again.
    pub(in super::super) fn may_send(&self) -> bool {
        self.store_queue.transaction.is_none() && !self.presence.is_rising() && !self.life.is_suspended()
    }

    /// Sends the operations that wait, whatever else is under way.
    // Protocol: docs/protocol.md#s10, #s17.
    pub(in super::super) fn send_now(&mut self, now: Monotonic) {
        let Some((mut pending, goes_alone)) = self.take_next(now) else { return };
        self.store_queue.last_id += 1;
        let sent = Sent { at: now, transaction: self.store_queue.last_id };
        let session = self.session.id();
        let room = self.store_queue.room;
        let forgets = self.forgets_beside(pending.len(), goes_alone);
        // A request would wait behind an earlier session of its own context, which ends with this transaction or before.
        let rest = room.split(&mut pending, self.session.stale() + forgets.len());
        // A request that is sent separately opens the session if necessary, and ends earlier sessions of its context.
        let goes_bare = goes_alone && !pending.iter().any(PendingOperation::acquires);
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
        self.store_queue.transaction =
            Some(Transaction { sent, session, opens, lease_ms, ends, operations: pending, limit, forgets });
        self.emit(Command::Store { id: sent.transaction, batch });
        if closes {
            self.end_session_by(sent.transaction, now);
        }
    }

    /// The keys whose records are forgotten together with this many operations: as many as fit beside them, but at least a third of the
    /// room, so that a context that fills every transaction forgets as many keys as it acquires and releases. None go with a refused
    /// operation, since they would fail with it. A heartbeat that is sent alone touches no key.
    fn forgets_beside(&mut self, operations: usize, goes_alone: bool) -> Vec<Key> {
        let room = self.store_queue.room;
        let most = match goes_alone || self.store_queue.beat_alone {
            true => 0,
            false => room.beside(operations + self.session.stale()).max(room.beside(0) / 3),
        };
        // A heartbeat costs the same however many keys are held.
        let examined = if operations == 0 { 1 } else { USED };
        let is_used = |key: &Key| !self.cohorts.pick(Some(key), &|_, _| true).is_empty();
        self.last_writers.take_forgotten(most, examined, is_used)
    }

    /// Takes what is sent next, and says whether it is sent alone. What the store refused for good, and what needs a locked key, takes
    /// turns with all the rest, so that neither side has to wait for all of the other.
    // Protocol: docs/protocol.md#s11.
    fn take_next(&mut self, now: Monotonic) -> Option<(Vec<PendingOperation>, bool)> {
        let ends = self.ends_stale_at().is_some_and(|at| at <= now);
        let has_to_send = self.session.wants_beat() || self.session.wants_close();
        if self.store_queue.waiting.is_empty() && !has_to_send && !ends {
            return None;
        }
        let mut pending = self.store_queue.take_waiting();
        let mut apart = self.store_queue.take_apart(&mut pending);
        if self.put_beat_first(&pending) {
            self.store_queue.waiting = pending;
            self.store_queue.waiting.append(&mut apart);
            return Some((Vec::new(), false));
        }
        let first = next_apart(&apart, &pending);
        let is_its_turn = first.is_some() && (pending.is_empty() || !self.store_queue.went_alone);
        let takes_ends_along = KEYS_MAY_BE_LOCKED && apart.iter().any(PendingOperation::acquires);
        let has_to_end = ends && !takes_ends_along;
        let goes_alone = !has_to_send && !has_to_end && is_its_turn;
        if goes_alone {
            if KEYS_MAY_BE_LOCKED {
                apart.rotate_left(first.unwrap_or_default());
            }
            let first = take_first(&mut apart);
            pending.append(&mut apart);
            apart = core::mem::replace(&mut pending, first);
        }
        self.store_queue.went_alone = goes_alone;
        self.store_queue.waiting.append(&mut apart);
        Some((pending, goes_alone))
    }

    /// Decides whether the heartbeat is sent alone, before everything else that waits. The store may refuse an operation for as long as
    /// somebody else keeps its key locked, and with it every heartbeat in the same transaction. If a heartbeat that was sent alone fails,
    /// too, everything is sent together, so that waiting requests learn that the store refuses everything.
    fn put_beat_first(&mut self, pending: &[PendingOperation]) -> bool {
        let is_wanted = self.session.wants_beat() && !self.session.wants_close() && !pending.is_empty();
        let is_its_turn = self.session.has_failed() && !self.store_queue.beat_alone;
        self.store_queue.beat_alone = is_wanted && is_its_turn;
        self.store_queue.beat_alone
    }

    /// When stale sessions are ended by a transaction of their own, unless a retry ends them first.
    pub(in super::super) fn ends_stale_at(&self) -> Option<Monotonic> {
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
        self.last_heartbeat = sent.at;
        let beat = self.session.beat(sent, self.config.lease_ms, self.presence.beacon_stands());
        self.session.beat_is_sent();
        match opens {
            true => SessionStep::Open { beat, instance: self.config.instance.clone() },
            false => SessionStep::Beat(beat),
        }
    }

    /// Drops the unsent operations of a session that has ended. A verification and a downgrade are told that the lease was lost; a release
    /// is told why, or that it came in time.
    pub(in super::super) fn drop_operations_of_session(&mut self, now: Monotonic) {
        for operation in self.store_queue.recall_all_of_session() {
            match (operation.turn, &operation.action) {
                // The lease was lost with the session.
                (Some(turn), Action::Verify { .. } | Action::Downgrade { .. }) => self.tell_verified(turn, Ok(false)),
                _ => self.answer_for_ended_session(&operation, now),
            }
        }
    }

    /// Gives up on a transaction whose time limit has passed. Its outcome is unknown until the record is read again.
    pub(in super::super) fn give_up_on_silent_store(&mut self, now: Monotonic) {
        if let Some(transaction) = self.store_queue.give_up(now) {
            let limit_ms = self.config.store_timeout_ms;
            let error = StoreError::unknown(alloc::format!(
                "the store did not answer within {limit_ms} ms, the store time-out; an open transaction may block it; in a \
                 browser, that is one over the object store `leasehold`, maybe this page's own"
            ));
            self.failed(&transaction, &error, now);
            self.transaction_is_over(transaction.sent.transaction, false);
        }
    }

    /// How long to wait before another attempt, in ms: twice as long each time, with jitter, and at most a heartbeat.
    pub(in super::super) fn backoff_ms(&mut self, attempts: u32) -> u64 {
        let cap_ms = (self.config.heartbeat_ms / 2).max(1);
        let delay_ms = (50_u64 << attempts.min(10)).min(cap_ms);
        delay_ms - self.dice.below(delay_ms / 2 + 1)
    }

    /// Tries again later, together with everything else that failed.
    pub(in super::super) fn retry(&mut self, operation: &PendingOperation, now: Monotonic) {
        let delay_ms = self.backoff_ms(operation.attempts);
        self.store_queue.retry_at.get_or_insert_with(|| now.plus(delay_ms));
        let mut again = operation.clone();
        again.attempts += 1;
        self.store_queue.later.push(again);
    }
}
