//! Handles what the store answers and what other contexts send.

use super::{
    Machine,
    cohort::Cohort,
    cohorts::STAYS,
    failure::{Applied, StoreError},
    id::{RequestId, StoreId},
    input::{Slot, TurnId},
    key::Key,
    lifecycle::SUSPENDED,
    message::{Body, Message},
    output::{Command, Event, LostReason, Refusal},
    pending::{PendingOperation, Sent, Transaction},
    record::{Action, Answer, Entry, Granted, Outcome, Promotion, Reply, Sighting, Way},
    time::Monotonic,
    token::Token,
};

/// How many waiters of a queue tell the holder that they wait. Messages may be lost, but rarely all of them. One from every waiter would
/// make each hand-off in a long queue more expensive.
const TELLERS: usize = 3;

impl Machine {
    pub(super) fn reply(&mut self, id: u64, result: Result<Reply, StoreError>, now: Monotonic) {
        let Some((transaction, overdue)) = self.store_queue.land(id) else { return };
        let done = result.as_ref().is_ok_and(|reply| reply.answers.len() == transaction.operations.len());
        let stole_nothing = match &result {
            Ok(reply) => reply.robbed.is_none(),
            Err(error) => error.applied == Applied::No,
        };
        if stole_nothing {
            transaction.operations.iter().for_each(|operation| self.cohorts.uncount_theft(operation));
        }
        match result {
            Ok(reply) if overdue => self.late_reply(&transaction, &reply, now),
            Err(error) if overdue => self.late_failure(&transaction, &error, now),
            Ok(reply) => self.answered(&transaction, reply, now),
            Err(error) => self.failed(&transaction, &error, now),
        }
        self.transaction_is_over(id, done);
        if done && transaction.operations.iter().any(PendingOperation::is_refused) {
            self.store_queue.retry_next();
        }
        // A context that waits keeps no buffer, because most contexts wait most of the time.
        let waits = |operation: &PendingOperation| self.cohorts.get(&operation.slot).is_some_and(Cohort::waits);
        if !transaction.operations.iter().any(waits) {
            self.store_queue.reuse(transaction);
        }
    }

    fn answered(&mut self, transaction: &Transaction, mut reply: Reply, now: Monotonic) {
        // A store of another author may be wrong. An assertion would panic in the task that asked, where nobody notices.
        if reply.answers.len() != transaction.operations.len() {
            let (answers, operations) = (reply.answers.len(), transaction.operations.len());
            let error = StoreError::unknown(alloc::format!(
                "the store gave {answers} answers to {operations} operations; its `transact` must return what `Batch::apply` returns"
            ));
            return self.failed(transaction, &error, now);
        }
        self.failures_since_doubt = None;
        self.store_queue.note_taken(transaction.load());
        self.meet_store(transaction, reply.store, now);
        self.session_answered(transaction, &reply, now);
        for (operation, answer) in transaction.operations.iter().zip(&mut reply.answers) {
            self.handle_promotions(answer, transaction.sent, now);
            self.handle_thefts(&operation.slot.key, answer, now);
            if matches!(operation.action, Action::Inspect) {
                let seen = core::mem::replace(&mut answer.outcome, Outcome::Moved);
                self.inspected(operation.turn, Ok(seen));
            }
            self.operation_answered(operation, &answer.outcome, transaction.sent, now);
        }
        self.look_past(&transaction.gone, now);
    }

    /// If the store was wiped, nothing from before counts any more.
    fn meet_store(&mut self, transaction: &Transaction, store: StoreId, now: Monotonic) {
        let known = self.store.replace(store);
        if known.is_some_and(|known| known != store) && self.session.is_open() && !transaction.opens {
            self.session.note_wipe();
            self.lose_session_by(transaction.sent.transaction, LostReason::StoreCleared, now);
        }
    }

    /// Tells other contexts that this transaction granted them a lease. A grant to this context is taken at once.
    fn handle_promotions(&mut self, answer: &Answer, sent: Sent, now: Monotonic) {
        for promotion in &answer.promoted {
            let Promotion { ref key, holder, request, block, previous, contended, told } = *promotion;
            if holder == self.session.id() {
                self.granted_elsewhere(key, request, &Granted { block, previous, contended }, sent, now);
            } else if !told {
                self.send(key, Body::Granted { holder, request, block, previous, contended });
            }
        }
    }

    /// Tells other contexts that this transaction stole their lease. A theft from this context is noted at once.
    fn handle_thefts(&mut self, key: &Key, answer: &Answer, now: Monotonic) {
        let mut victim = None;
        for &(holder, token) in &answer.robbed {
            if holder == self.session.id() {
                self.grant_was_stolen(key, token, now);
            } else {
                self.send(key, Body::Stolen { holder, token });
                victim = Some(holder);
            }
        }
        // The first waiter still watches the victims, and does not know yet that it now waits behind the thief.
        let Some(holder) = victim else { return };
        self.send(key, Body::Gone { holder });
    }

    /// Handles an answer that came after its time-out. It is not used, but nothing that it granted is left behind.
    fn late_reply(&mut self, transaction: &Transaction, reply: &Reply, now: Monotonic) {
        if transaction.session != self.session.id() {
            // Nobody waits for that session any more.
            if reply.robbed.is_some() {
                self.session.end_too(transaction.session);
            }
            return;
        }
        for (operation, answer) in transaction.operations.iter().zip(&reply.answers) {
            match (&operation.action, &answer.outcome) {
                (Action::Acquire(ask), Outcome::Granted(granted)) => {
                    self.end_stray(&operation.slot, ask.request, Some(granted.block.first), now);
                }
                (Action::Acquire(ask), Outcome::Waiting { .. }) => {
                    self.end_stray(&operation.slot, ask.request, None, now);
                }
                (Action::AcquireAll(asks), Outcome::GrantedAll(granted)) => {
                    for ((slot, (_, ask)), granted) in operation.all.iter().zip(asks).zip(granted) {
                        self.end_stray(slot, ask.request, Some(granted.block.first), now);
                    }
                }
                _ => {}
            }
        }
    }

    /// A request that was withdrawn meanwhile may have been applied after the withdrawal.
    fn late_failure(&mut self, transaction: &Transaction, error: &StoreError, now: Monotonic) {
        if transaction.session != self.session.id() || error.applied == Applied::No {
            return;
        }
        for operation in &transaction.operations {
            match &operation.action {
                Action::Acquire(ask) => self.end_stray(&operation.slot, ask.request, None, now),
                Action::AcquireAll(asks) => {
                    for (slot, (_, ask)) in operation.all.iter().zip(asks) {
                        self.end_stray(slot, ask.request, None, now);
                    }
                }
                Action::Verify { .. }
                | Action::Downgrade { .. }
                | Action::Detach { .. }
                | Action::Release { .. }
                | Action::Withdraw { .. }
                | Action::End { .. }
                | Action::Look
                | Action::Inspect
                | Action::Fence { .. } => {}
            }
        }
    }

    /// Ends the entry of a request that is not known here. A lease on its way to another guard is still this request's in the store.
    // Protocol: docs/protocol.md#i6.
    fn end_stray(&mut self, slot: &Slot, request: RequestId, grant: Option<Token>, now: Monotonic) {
        if self.knows(&slot.key, request) || grant.is_some_and(|token| self.knows_grant(&slot.key, token)) {
            return;
        }
        match grant {
            // Its release is under way already, and is tried again if it fails. After a second release, the first one would be reported as
            // a loss.
            Some(token) if self.store_queue.releases(&slot.key, token, request) => {}
            Some(token) => _ = self.store_queue.push(slot, Action::Release { token, request }, None, now),
            None if self.detaches(&slot.key, request) => {}
            None => self.withdraw_request(slot, request, now),
        }
    }

    /// Whether a request is under way, held, or about to be ended by an operation that is still to be sent. One that was already sent may
    /// have come too early.
    pub(super) fn knows(&self, key: &Key, request: RequestId) -> bool {
        let ends = |action: &Action| match action {
            Action::Release { request: ended, .. } | Action::Withdraw { request: ended } => *ended == request,
            _ => false,
        };
        self.cohorts.slot_of(key, request).is_some() || self.store_queue.will_send_for(key, ends)
    }

    fn operation_answered(&mut self, operation: &PendingOperation, outcome: &Outcome, sent: Sent, now: Monotonic) {
        let slot = &operation.slot;
        match operation.action {
            Action::Acquire(ref ask) => self.acquire_answered(slot, ask.request, outcome, sent, now),
            Action::AcquireAll(_) => self.acquire_all_answered(operation, outcome, sent, now),
            Action::Verify { token, .. } => self.verified(operation, token, outcome, sent, now),
            Action::Downgrade { .. } => self.downgraded(operation, outcome, now),
            Action::Release { token, request } => {
                self.note_release(&slot.key, request);
                self.release_answered(operation, token, outcome);
            }
            Action::Look => self.looked(&slot.key, outcome, now),
            Action::End { target, .. } => {
                self.observed.forget(target);
                if matches!(outcome, Outcome::Ended) {
                    self.send(&slot.key, Body::Ended { holder: target });
                }
            }
            Action::Detach { token, .. } => self.moved_away(&slot.key, token),
            Action::Inspect | Action::Withdraw { .. } | Action::Fence { .. } => {}
        }
    }

    // Protocol: docs/protocol.md#s5, #i5.
    fn acquire_answered(&mut self, slot: &Slot, request: RequestId, outcome: &Outcome, sent: Sent, now: Monotonic) {
        let Some(cohort) = self.cohorts.change(slot) else { return };
        if cohort.held().is_some_and(|held| held.request == request) {
            return self.adopted(slot, outcome, sent, now);
        }
        let upgrades = cohort.held().is_some_and(|held| held.upgrades_by(request));
        match cohort.seeking_mut() {
            Some(seeking) if seeking.request == request => seeking.heard_at = now,
            _ => return,
        }
        if upgrades {
            return self.upgrade_answered(slot, outcome, now);
        }
        match outcome {
            Outcome::Granted(granted) => self.hold(slot, request, granted, sent, now),
            Outcome::Waiting { last_token, position, ahead } => self.queued(slot, *last_token, *position, ahead, now),
            Outcome::Busy { ahead } => self.busy(slot, ahead, now),
            Outcome::Superseded => self.seek(slot, now),
            // It is sent again: as a newer attempt, which returns the grant of an earlier one, or in another session.
            Outcome::TooLate | Outcome::NoSession => self.ask(slot, now),
            Outcome::Exhausted => self.fail_turns(slot, &Refusal::Exhausted),
            Outcome::Unreadable(unreadable) | Outcome::UnreadableAt(_, unreadable) => {
                self.unreadable(slot, Refusal::Unreadable(*unreadable), now)
            }
            Outcome::NotCurrent { stolen, .. } => self.nothing_to_take(slot, *stolen, now),
            Outcome::GrantedAll(_)
            | Outcome::BusyAll(_)
            | Outcome::UpgradeConflict { .. }
            | Outcome::Looked { .. }
            | Outcome::Downgraded
            | Outcome::Released
            | Outcome::Detached
            | Outcome::Current { .. }
            | Outcome::Withdrawn
            | Outcome::Ended
            | Outcome::Moved
            | Outcome::Status { .. } => debug_assert!(false, "`Batch::apply` answers no acquisition with {outcome:?}"),
        }
    }

    /// A theft may be refused because the holder would not learn of it. This does not concern requests that only wait.
    fn unreadable(&mut self, slot: &Slot, refusal: Refusal, now: Monotonic) {
        match self.cohorts.change(slot).and_then(|cohort| cohort.turns.pop_thief()) {
            Some(thief) => {
                self.refuse(thief, refusal);
                self.seek(slot, now);
            }
            None => self.fail_turns(slot, &refusal),
        }
    }

    /// The lease that was to be taken over is gone; or the request's grant was stolen before this context learned of it. Then a turn that
    /// had stolen it is told, and turns that wait queue again.
    fn nothing_to_take(&mut self, slot: &Slot, stolen: bool, now: Monotonic) {
        let reason = if stolen { LostReason::Stolen } else { LostReason::Expired };
        let Some(cohort) = self.cohorts.change(slot) else { return debug_assert!(false, "{STAYS}") };
        let Some(seeking) = cohort.seeking() else { return debug_assert!(false, "the answer is for this request") };
        if matches!(seeking.way, Way::Resume { .. }) {
            return self.fail_turns(slot, &Refusal::Lost(reason));
        }
        // If there was only one attempt to steal, it found the request granted already.
        if seeking.thefts > 1
            && let Some(thief) = cohort.turns.pop_thief()
        {
            self.refuse(thief, Refusal::Lost(reason));
        }
        self.seek(slot, now);
    }

    /// Handles the answer to a request for several keys. If one of their records is unreadable, the user is told only of that key.
    fn acquire_all_answered(&mut self, operation: &PendingOperation, outcome: &Outcome, sent: Sent, now: Monotonic) {
        let Action::AcquireAll(asks) = &operation.action else {
            return debug_assert!(false, "it is called for several keys only");
        };
        match outcome {
            Outcome::GrantedAll(granted) => {
                for ((slot, (_, ask)), granted) in operation.all.iter().zip(asks).zip(granted) {
                    self.acquire_answered(slot, ask.request, &Outcome::Granted(*granted), sent, now);
                }
            }
            Outcome::BusyAll(ahead) => self.busy_all(operation, ahead, now),
            Outcome::TooLate => self.retry(operation, now),
            Outcome::NoSession | Outcome::Superseded | Outcome::NotCurrent { .. } => {
                self.withdraw_all(operation, now);
                self.ask_for_all(operation.all.clone(), operation.second_look, now);
            }
            other => {
                for (index, (slot, (_, ask))) in operation.all.iter().zip(asks).enumerate() {
                    match other {
                        Outcome::UnreadableAt(at, _) if *at != index => self.found_busy(slot, now),
                        _ => self.acquire_answered(slot, ask.request, other, sent, now),
                    }
                }
                self.withdraw_all(operation, now);
            }
        }
    }

    /// Withdraws all requests, because an earlier attempt may have been granted without an answer.
    fn withdraw_all(&mut self, operation: &PendingOperation, now: Monotonic) {
        let Action::AcquireAll(asks) = &operation.action else {
            return debug_assert!(false, "it is called for several keys only");
        };
        if operation.attempts > 0 {
            for (slot, (_, ask)) in operation.all.iter().zip(asks) {
                self.withdraw_request(slot, ask.request, now);
            }
        }
    }

    /// An answer to a request whose grant was signalled already.
    fn adopted(&mut self, slot: &Slot, outcome: &Outcome, sent: Sent, now: Monotonic) {
        if let Outcome::Granted(Granted { contended, .. }) = *outcome
            && let Some(cohort) = self.cohorts.change(slot)
        {
            let contended = cohort.note_contention(sent, contended);
            if let Some(held) = cohort.held_mut() {
                held.contended = contended;
            }
            if contended {
                self.end_linger(slot, None, now);
            }
        }
    }

    pub(super) fn queued(
        &mut self,
        slot: &Slot,
        last_token: Token,
        position: usize,
        ahead: &[Sighting],
        now: Monotonic,
    ) {
        self.observe(slot, ahead, now);
        let Some(cohort) = self.cohorts.change(slot) else { return debug_assert!(false, "{STAYS}") };
        let Some(seeking) = cohort.seeking_mut() else { return debug_assert!(false, "the answer is for this request") };
        seeking.last_token = last_token;
        let first_answer = !core::mem::replace(&mut seeking.queued, true);
        if first_answer {
            seeking.begin_watch(now);
        }
        let turns = cohort.turns.ids();
        self.meet_twin(slot, ahead, now);
        self.end_tries(slot, now);
        if first_answer {
            let me = self.session.id();
            let position = if ahead.iter().all(|seen| seen.holder == me) { 0 } else { position };
            turns.iter().for_each(|turn| self.emit(Event::Waiting { turn: *turn, ahead: position }));
            let is_waiter = |seen: &&Sighting| matches!(seen.entry, Entry::Waiter(_));
            if ahead.iter().filter(is_waiter).count() < TELLERS {
                self.tell_wanted(&slot.key, ahead, false);
            }
            self.wanted_here(slot, now);
        }
    }

    /// Notifies the other leases that this context has of the key, because they are in the way.
    fn wanted_here(&mut self, slot: &Slot, now: Monotonic) {
        for other in &self.cohorts.pick(Some(&slot.key), &|other, cohort| other != slot && cohort.held().is_some()) {
            self.wanted(other, None, now);
        }
    }

    /// A grant that another transaction made, and that this one found or a message reports. The lease counts as valid for as long as the
    /// session does: a look or a message adds no time.
    // Protocol: docs/protocol.md#s6, #s8, #s11, #s12.
    fn granted_elsewhere(&mut self, key: &Key, request: RequestId, granted: &Granted, sent: Sent, now: Monotonic) {
        let block = granted.block;
        let was_robbed = self.session.was_robbed(key, block.first);
        let Some(slot) = self.cohorts.slot_of(key, request) else {
            if was_robbed {
                return;
            }
            let slot = Slot::of_key(key.clone());
            return self.end_stray(&slot, request, Some(block.first), now);
        };
        let Some(seeking) = self.cohorts.seeking(&slot) else { return };
        if !seeking.asked && self.store_queue.carries(&slot, |action| matches!(action, Action::AcquireAll(_))) {
            // Several keys are granted together or not at all, as the answer to their own operation will tell.
            return;
        }
        let is_old = seeking.queued && block.first <= seeking.last_token;
        if seeking.request != request || !seeking.sent || is_old {
            return;
        }
        if was_robbed {
            // The request has neither a place nor a grant any more. If this asks the store, it will report the theft.
            return self.ask(&slot, now);
        }
        if self.cohorts.held(&slot).is_some() {
            return self.upgraded(&slot, granted, now);
        }
        self.hold(&slot, request, granted, sent, now);
    }

    /// If an attempt to release got no answer and the grant is gone, that attempt released it, unless the grant was stolen. If the session
    /// has ended meanwhile, the attempt counts only if the context still considered the lease valid then.
    // Protocol: docs/protocol.md#i6, #p4.
    fn release_answered(&mut self, operation: &PendingOperation, token: Token, outcome: &Outcome) {
        let facts = operation.release.unwrap_or_default();
        let maybe_released = facts.maybe_released && (self.session.is_open() || operation.may_have_ended_belief());
        let key = &operation.slot.key;
        // The thief may have taken the grant of an upgrade that this context never learned of. Without an upgrade, a later theft took
        // another lease of this context.
        let stolen =
            self.session.was_robbed(key, token) || (facts.maybe_upgraded && self.session.was_robbed_since(key, token));
        let released = matches!(outcome, Outcome::Released) || (maybe_released && !stolen);
        if let Some(turn) = operation.turn {
            let reason = match stolen {
                true => LostReason::Stolen,
                // The store made after the wipe may have granted the key with larger tokens, so tokens tell nothing.
                false if self.session.was_wiped() => LostReason::StoreCleared,
                // It is no longer known whether the context still considered the lease valid.
                false => outcome.loss(token, false),
            };
            let lost = if released { None } else { Some(reason) };
            self.tell_released(turn, Ok(lost));
        }
        if let Some(asker) = facts.tells {
            self.send(&operation.slot.key, Body::Freed { asker });
        }
    }

    pub(super) fn inspected(&mut self, query: Option<TurnId>, result: Result<Outcome, StoreError>) {
        if let Some(query) = query {
            self.emit(Event::Status { query, result });
        }
    }

    /// Releases unused leases first, so that a context that released a key does not see itself hold it.
    pub(super) fn inspect(&mut self, query: TurnId, key: &Key, now: Monotonic) {
        // Nothing is sent until the context runs again.
        if self.life.is_suspended() {
            return self.inspected(Some(query), Err(StoreError::transient(SUSPENDED)));
        }
        self.end_linger_at(key, now);
        let slot = Slot::of_key(key.clone());
        self.store_queue.push(&slot, Action::Inspect, Some(query), now);
    }

    /// Handles a message of another context. It is a hint: a grant is taken only by the request that it names.
    // Protocol: docs/protocol.md#s12, #i11.
    pub(super) fn message(&mut self, message: &Message, now: Monotonic) {
        if self.store.is_some_and(|store| store != message.store) {
            return;
        }
        let (key, me) = (&message.key, self.session.id());
        match message.body {
            Body::Granted { holder, request, block, previous, contended } if holder == me => {
                let sent = self.store_queue.last_sent(now);
                self.granted_elsewhere(key, request, &Granted { block, previous, contended }, sent, now);
            }
            Body::Wanted { holder, by, tries } if holder == me => {
                for slot in &self.cohorts.pick(Some(key), &|_, _| true) {
                    self.wanted(slot, tries.then_some(by), now);
                }
            }
            // It may be true. The next heartbeat will tell.
            Body::Ended { holder } if holder == me => self.disbelieve(now),
            Body::Stolen { holder, token } if holder == me => self.grant_was_stolen(key, token, now),
            Body::Freed { asker } if asker == me => self.look_again_at(key, now),
            Body::InUse { asker } if asker == me => self.conclude_busy(key, now),
            Body::Gone { holder } => {
                self.store_queue.note_gone(holder);
                // A context that waits for nothing spends no time on those that leave.
                if self.cohorts.any_waits() {
                    self.look_past(&[holder], now);
                }
            }
            // It concerns another session.
            Body::Granted { .. }
            | Body::Wanted { .. }
            | Body::Freed { .. }
            | Body::InUse { .. }
            | Body::Ended { .. }
            | Body::Stolen { .. } => {}
        }
    }

    pub(super) fn send(&mut self, key: &Key, body: Body) {
        let Some(store) = self.store else { return };
        self.emit(Command::Send(Message { store, key: key.clone(), body }));
    }
}
