//! Notes the machine's events and the outcomes of transactions, answers the requests that wait for them, and tells listeners.

use alloc::{boxed::Box, vec::Vec};
use core::time::Duration;

use super::{Effect, Question, Registry, Response};
use crate::client::fate::Fate;
use crate::driver::event::{Event, LeaseEvent, LeaseEventKind, Origin};
use crate::executor::Shared;
use crate::machine::{
    self, Batch, LostReason, Machine, Mode, Monotonic, Refusal, ReleaseOutcome, Reply, SessionId, SessionStep, Slot,
    StoreError, StoreErrorKind, Token, TurnId,
};

impl Registry {
    /// Notes an event, and returns what is to be done for it.
    pub(crate) fn note(&mut self, event: machine::Event, machine: &Machine, now: Monotonic) -> Option<Effect> {
        self.holder = machine.session();
        match event {
            machine::Event::Granted { turn, token } => self.granted(turn, token, now),
            machine::Event::Busy { turn } => self.refused(turn, Response::Busy, now),
            machine::Event::Failed { turn, refusal: Refusal::Timeout } => self.timed_out(turn, machine, now),
            machine::Event::Failed { turn, refusal } => self.refused(turn, Response::Failed(refusal), now),
            machine::Event::Verified { query, result } => self.answer(query, Response::Verified(result)),
            machine::Event::Status { query, result } => self.answer(query, Response::Status(Box::new(result))),
            machine::Event::Waiting { turn, ahead } => self.waits(turn, ahead),
            machine::Event::WaitsLong { turn } => self.waits_long(turn, machine, now),
            machine::Event::Suspect { turn } => self.doubt(turn, true),
            machine::Event::Certain { turn } => self.doubt(turn, false),
            machine::Event::Upgraded { query, turn, token } => self.upgraded(query, turn, token),
            machine::Event::Downgraded { turn } => self.downgraded(turn),
            machine::Event::Lost { turn, reason } => self.lost(turn, reason, now),
            machine::Event::Released { turn, result } => self.released(turn, result, now),
            // The driver handles it.
            machine::Event::Closed => None,
        }
    }

    fn answer(&mut self, turn: TurnId, response: Response) -> Option<Effect> {
        self.questions.remove(turn).map(|question| Effect::Answer(question, response))
    }

    fn timed_out(&mut self, turn: TurnId, machine: &Machine, now: Monotonic) -> Option<Effect> {
        let question = self.questions.get_mut(turn)?;
        let waited = span(question.asked_at, now);
        let (asked_at, held_elsewhere) = (question.asked_at, question.queued);
        let response = match question.slot.clone() {
            Some(slot) => {
                let held_here = machine.is_used(&slot.key);
                match self.failure_since(asked_at).filter(|_| !held_here && !held_elsewhere) {
                    // Nobody was seen to hold the key, and the latest transaction failed during the wait: the store is the reason.
                    Some(failure) => Response::Failed(Refusal::Store(failure)),
                    None => Response::TimedOut { waited, held_here, held_elsewhere },
                }
            }
            // An upgrade, whose guard knows the rest.
            None => Response::Failed(Refusal::Timeout),
        };
        self.refused(turn, response, now)
    }

    /// Notes whether a transaction succeeded, or how it failed.
    pub(crate) fn note_result(&mut self, result: &Result<Reply, StoreError>, now: Monotonic) {
        match result {
            Err(error) => self.failure = Some((now, error.clone())),
            // While one key is locked, transactions with other keys succeed.
            Ok(_) => _ = self.failure.take_if(|(_, failure)| failure.kind != StoreErrorKind::Locked),
        }
        self.has_heard |= result.is_ok();
    }

    /// The failure of the latest transaction, or of the latest one that met a locked key, if it came at or after `then` and may pass. A
    /// permanent failure would already have ended its own request, so it belongs to another one.
    // Protocol: docs/protocol.md#i11.
    fn failure_since(&self, then: Monotonic) -> Option<StoreError> {
        let (_, failure) = self.failure.as_ref().filter(|(at, failure)| *at >= then && failure.may_pass())?;
        Some(failure.clone())
    }

    fn refused(&mut self, turn: TurnId, refusal: Response, now: Monotonic) -> Option<Effect> {
        let question = self.forget(turn, now)?;
        Some(Effect::Answer(question, refusal))
    }

    fn granted(&mut self, turn: TurnId, token: Token, now: Monotonic) -> Option<Effect> {
        let mut question = self.questions.remove(turn)?;
        let (asked, lease) = ((turn, question.slot.take()?), (self.holder, token));
        let fate = Shared::new(Fate::new(asked, lease, now, question.origin.clone()));
        self.guards.insert(turn, fate.clone());
        self.stats.granted += 1;
        let (holder, waited) = (self.holder, span(question.asked_at, now));
        self.tell_of_guard(&fate, |token| LeaseEventKind::Granted { token, holder, waited });
        Some(Effect::Answer(question, Response::Granted(fate)))
    }

    fn waits(&mut self, turn: TurnId, ahead: usize) -> Option<Effect> {
        // Requests that wait for their own context do not queue in the store.
        self.stats.waited += u64::from(ahead > 0);
        let question = self.questions.get_mut(turn)?;
        (question.told_waiting, question.queued) = (true, ahead > 0);
        if self.is_seen() {
            let question = self.questions.get_mut(turn)?;
            let (slot, origin) = (question.slot.clone()?, question.origin.clone());
            self.tell_of(&slot, slot.mode, LeaseEventKind::Waiting { ahead }, (self.holder, &origin));
        }
        None
    }

    fn waits_long(&mut self, turn: TurnId, machine: &Machine, now: Monotonic) -> Option<Effect> {
        let Question { slot, asked_at, origin, .. } = self.questions.get_mut(turn)?;
        let (key, waited_ms, origin) = (slot.as_ref()?.key.clone(), now.since(*asked_at), origin.clone());
        let held_here = machine.is_used(&key);
        if Event::are_heard() {
            let long = Event::WaitsLong { key: key.clone(), waited_ms, held_here };
            self.news.push(Effect::Tell(long, self.holder, origin));
        }
        // Only once, because most such waits end. Code that was written for Web Locks expects no warning.
        let warns = held_here && !key.is_of_lock() && !core::mem::replace(&mut self.warned_of_own_wait, true);
        warns.then_some(Effect::WarnOfOwnWait(key))
    }

    fn doubt(&mut self, turn: TurnId, suspect: bool) -> Option<Effect> {
        let fate = self.guards.get(turn)?.clone();
        self.tell_of_guard(&fate, |token| match suspect {
            true => LeaseEventKind::Suspect { token },
            false => LeaseEventKind::Certain { token },
        });
        Some(Effect::Wake(fate.change(|state| state.suspect = suspect)))
    }

    fn upgraded(&mut self, query: TurnId, turn: TurnId, token: Token) -> Option<Effect> {
        if let Some(fate) = self.guards.get(turn) {
            let mut state = fate.state();
            if state.mode == Mode::Shared || !state.untold_upgrades.is_empty() {
                state.untold_upgrades.push(query);
            }
            (state.token, state.mode) = (token, Mode::Exclusive);
        }
        self.answer(query, Response::Upgraded)
    }

    fn downgraded(&self, turn: TurnId) -> Option<Effect> {
        let mut state = self.guards.get(turn)?.state();
        state.mode = Mode::Shared;
        state.untold_upgrades.clear();
        None
    }

    fn lost(&mut self, turn: TurnId, reason: LostReason, now: Monotonic) -> Option<Effect> {
        let fate = self.guards.get(turn)?.clone();
        self.stats.lost += 1;
        self.tell_loss(&fate, reason, now);
        Some(Effect::Wake(fate.lose(reason)))
    }

    fn tell_loss(&mut self, fate: &Fate, reason: LostReason, now: Monotonic) {
        let held = span(fate.since, now);
        self.tell_of_guard(fate, |token| LeaseEventKind::Lost { token, reason, held });
    }

    fn released(
        &mut self,
        turn: TurnId,
        result: Result<Option<LostReason>, StoreError>,
        now: Monotonic,
    ) -> Option<Effect> {
        let fate = self.guards.remove(turn)?;
        let result = result.map(|lost| {
            let Some(reason) = lost else { return ReleaseOutcome::Released };
            if !fate.is_lost() {
                // The release found that the lease was gone.
                self.stats.lost += 1;
                self.tell_loss(&fate, reason, now);
                fate.state().lost = Some(reason);
            }
            ReleaseOutcome::Lost
        });
        match &result {
            Ok(ReleaseOutcome::Released) => {
                self.stats.released += 1;
                let held = span(fate.since, now);
                self.tell_of_guard(&fate, |token| LeaseEventKind::Released { token, held });
            }
            Err(_) if !fate.is_lost() => {
                self.stats.lost += 1;
                self.tell_loss(&fate, LostReason::StoreFailed, now);
            }
            _ => {}
        }
        let wakers = fate.release(result);
        Some(Effect::End(fate, wakers))
    }

    /// Whether anybody listens to events.
    fn is_seen(&mut self) -> bool {
        Event::are_heard() || self.audience.is_there()
    }

    fn tell_of(&mut self, slot: &Slot, mode: Mode, kind: LeaseEventKind, (holder, origin): (SessionId, &Origin)) {
        let event = LeaseEvent { key: slot.key.clone(), mode, kind };
        self.news.push(Effect::Wake(self.audience.tell(&event)));
        if Event::are_heard() {
            self.news.push(Effect::Tell(Event::Lease(event), holder, origin.clone()));
        }
    }

    fn tell_of_guard(&mut self, fate: &Fate, kind: impl FnOnce(Token) -> LeaseEventKind) {
        if self.is_seen() {
            let (token, mode) = fate.lease();
            self.tell_of(&fate.slot, mode, kind(token), (fate.holder, &fate.origin));
        }
    }

    pub(super) fn tell_end_of_wait(&mut self, question: &Question, now: Monotonic) {
        let Some(slot) = question.slot.as_ref().filter(|_| question.told_waiting && self.is_seen()) else { return };
        let withdrawn = LeaseEventKind::Withdrawn { waited: span(question.asked_at, now) };
        self.tell_of(slot, slot.mode, withdrawn, (self.holder, &question.origin));
    }

    /// Ends the releases under way with this error, because their outcome will never be known.
    pub(crate) fn end_releases(&mut self, error: &StoreError, now: Monotonic) -> Vec<Effect> {
        let is_releasing = |fate: &Shared<Fate>| fate.state().releasing;
        let releasing = self.guards.iter().filter(|(_, fate)| is_releasing(fate)).map(|(turn, _)| *turn);
        let turns: Vec<_> = releasing.collect();
        turns.into_iter().filter_map(|turn| self.released(turn, Err(error.clone()), now)).collect()
    }

    /// Counts a transaction that is sent.
    pub(crate) fn note_transaction(&mut self, batch: &Batch, holder: SessionId) {
        self.holder = holder;
        self.stats.transactions += 1;
        self.stats.renewed += u64::from(matches!(batch.step, SessionStep::Beat(_)));
        if Event::are_heard() {
            let sent = Event::Transaction { operations: batch.operations.len() };
            self.news.push(Effect::Tell(sent, holder, Origin::default()));
        }
    }
}

fn span(from: Monotonic, to: Monotonic) -> Duration {
    Duration::from_millis(to.since(from))
}
