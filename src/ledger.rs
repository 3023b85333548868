//! Who waits for which answer of the machine, which guards live, and what happened so far.

use alloc::{boxed::Box, vec::Vec};
use core::{task::Waker, time::Duration};

use crate::answer::{self, Receiver, Sender};
use crate::event::{Event, LeaseEvent, LeaseEventKind, LeaseStats};
use crate::events::Audience;
use crate::executor::Shared;
use crate::fate::Fate;
use crate::machine::{
    Action, Incarnation, LostReason, Mode, Monotonic, Outcome, Output, Refusal, ReleaseOutcome, Slot, SortedMap,
    StoreError, Token, TurnId,
};

/// What the machine says to one request or question.
#[derive(Debug)]
pub(crate) enum Reaction {
    Granted(Shared<Fate>),
    Busy,
    Failed(Refusal),
    Verified(Result<bool, StoreError>),
    Upgraded,
    /// Boxed: it is rare, and larger than all else that is kept for each request.
    Status(Box<Result<Outcome, StoreError>>),
}

/// What is to be done for an output after the lock was let go.
pub(crate) enum Effect {
    Act(Output),
    Answer(Sender<Reaction>, Reaction),
    Wake(Vec<Waker>),
    Tell(Event),
}

/// A request or a question without an answer.
pub(crate) struct Question {
    sender: Sender<Reaction>,
    /// Where a request for a lease stands.
    slot: Option<Slot>,
    asked_at: Monotonic,
    told_waiting: bool,
}

#[derive(Default)]
pub(crate) struct Ledger {
    last_turn: u64,
    questions: SortedMap<TurnId, Question>,
    guards: SortedMap<TurnId, Shared<Fate>>,
    pub(crate) stats: LeaseStats,
    /// To be told once the lock was let go: who listens may ask back.
    pub(crate) news: Vec<Effect>,
    audience: Audience,
}

impl Ledger {
    /// A fresh name for a request or a question.
    pub(crate) fn open(&mut self, slot: Option<Slot>, asked_at: Monotonic) -> (TurnId, Receiver<Reaction>) {
        let turn = self.next_turn();
        (turn, self.expect(turn, slot, asked_at))
    }

    pub(crate) fn next_turn(&mut self) -> TurnId {
        self.last_turn += 1;
        TurnId(self.last_turn)
    }

    /// An answer is expected under this name.
    pub(crate) fn expect(&mut self, turn: TurnId, slot: Option<Slot>, asked_at: Monotonic) -> Receiver<Reaction> {
        let (sender, receiver) = answer::channel();
        self.questions.insert(turn, Question { sender, slot, asked_at, told_waiting: false });
        receiver
    }

    /// To be dropped after the lock was let go: who waits for it is woken.
    pub(crate) fn forget(&mut self, turn: TurnId, now: Monotonic) -> Option<Question> {
        let question = self.questions.remove(&turn)?;
        self.tell_end_of_wait(&question, now);
        Some(question)
    }

    pub(crate) fn is_granted(&self, turn: TurnId) -> bool {
        self.guards.contains_key(&turn)
    }

    pub(crate) fn take_guards(&mut self) -> Vec<Shared<Fate>> {
        core::mem::take(&mut self.guards).into_values()
    }

    /// Notes what an output says, and tells what is to be done about it.
    pub(crate) fn note(&mut self, output: Output, holder: Incarnation, now: Monotonic) -> Option<Effect> {
        match output {
            Output::Granted { turn, token } => self.granted(turn, token, holder, now),
            Output::Busy { turn } => self.refused(turn, Reaction::Busy, now),
            Output::Failed { turn, refusal } => self.refused(turn, Reaction::Failed(refusal), now),
            Output::Verified { query, result } => self.answer(query, Reaction::Verified(result)),
            Output::Status { query, result } => self.answer(query, Reaction::Status(Box::new(result))),
            Output::Waiting { turn, ahead } => self.waits(turn, ahead),
            Output::WaitsLong { turn } => self.waits_long(turn, now),
            Output::Suspect { turn } => self.doubt(turn, true),
            Output::Certain { turn } => self.doubt(turn, false),
            Output::Upgraded { query, turn, token } => self.upgraded(query, turn, token),
            Output::Downgraded { turn } => self.downgraded(turn),
            Output::Lost { turn, reason } => self.lost(turn, reason, now),
            Output::Released { turn, result } => self.released(turn, result, now),
            Output::Store { .. } => {
                self.count_transaction(&output);
                Some(Effect::Act(output))
            }
            act => Some(Effect::Act(act)),
        }
    }

    /// Whether anybody looks on.
    fn is_seen(&mut self) -> bool {
        Event::are_heard() || self.audience.is_there()
    }

    fn tell_of(&mut self, slot: &Slot, mode: Mode, kind: LeaseEventKind) {
        let event = LeaseEvent { key: slot.key.clone(), mode, kind };
        self.news.push(Effect::Wake(self.audience.tell(&event)));
        if Event::are_heard() {
            self.news.push(Effect::Tell(Event::Lease(event)));
        }
    }

    pub(crate) fn audience(&mut self) -> &mut Audience {
        &mut self.audience
    }

    /// Nothing more is told.
    pub(crate) fn end_events(&mut self) {
        let listeners = self.audience.end();
        self.news.push(Effect::Wake(listeners));
    }

    fn tell_end_of_wait(&mut self, question: &Question, now: Monotonic) {
        let Some(slot) = question.slot.as_ref().filter(|_| question.told_waiting && self.is_seen()) else { return };
        self.tell_of(slot, slot.mode, LeaseEventKind::Withdrawn { waited: span(question.asked_at, now) });
    }

    fn answer(&mut self, turn: TurnId, reaction: Reaction) -> Option<Effect> {
        self.questions.remove(&turn).map(|question| Effect::Answer(question.sender, reaction))
    }

    fn refused(&mut self, turn: TurnId, refusal: Reaction, now: Monotonic) -> Option<Effect> {
        let question = self.forget(turn, now)?;
        Some(Effect::Answer(question.sender, refusal))
    }

    fn granted(&mut self, turn: TurnId, token: Token, holder: Incarnation, now: Monotonic) -> Option<Effect> {
        let Question { sender, slot, asked_at, .. } = self.questions.remove(&turn)?;
        let fate = Shared::new(Fate::new(slot?, token, now));
        self.guards.insert(turn, fate.clone());
        self.stats.granted += 1;
        if self.is_seen() {
            let kind = LeaseEventKind::Granted { token, holder, waited: span(asked_at, now) };
            self.tell_of(&fate.slot, fate.slot.mode, kind);
        }
        Some(Effect::Answer(sender, Reaction::Granted(fate)))
    }

    fn waits(&mut self, turn: TurnId, ahead: usize) -> Option<Effect> {
        self.stats.waited += 1;
        let question = self.questions.get_mut(&turn)?;
        question.told_waiting = true;
        let slot = question.slot.clone()?;
        if self.is_seen() {
            self.tell_of(&slot, slot.mode, LeaseEventKind::Waiting { ahead });
        }
        None
    }

    fn waits_long(&mut self, turn: TurnId, now: Monotonic) -> Option<Effect> {
        let Question { slot, asked_at, .. } = self.questions.get(&turn)?;
        if Event::are_heard() {
            let (key, waited_ms) = (slot.as_ref()?.key.clone(), now.since(*asked_at));
            self.news.push(Effect::Tell(Event::WaitsLong { key, waited_ms }));
        }
        None
    }

    fn doubt(&mut self, turn: TurnId, suspect: bool) -> Option<Effect> {
        let fate = self.guards.get(&turn)?.clone();
        if self.is_seen() {
            let (token, mode) = fate.lease();
            let kind = if suspect { LeaseEventKind::Suspect { token } } else { LeaseEventKind::Certain { token } };
            self.tell_of(&fate.slot, mode, kind);
        }
        Some(Effect::Wake(fate.change(|state| state.suspect = suspect)))
    }

    fn upgraded(&mut self, query: TurnId, turn: TurnId, token: Token) -> Option<Effect> {
        if let Some(fate) = self.guards.get(&turn) {
            let mut state = fate.state();
            (state.token, state.mode) = (token, Mode::Exclusive);
        }
        self.answer(query, Reaction::Upgraded)
    }

    fn downgraded(&self, turn: TurnId) -> Option<Effect> {
        self.guards.get(&turn)?.state().mode = Mode::Shared;
        None
    }

    fn lost(&mut self, turn: TurnId, reason: LostReason, now: Monotonic) -> Option<Effect> {
        let fate = self.guards.get(&turn)?.clone();
        self.stats.lost += 1;
        self.tell_loss(&fate, reason, now);
        Some(Effect::Wake(fate.lose(reason)))
    }

    fn tell_loss(&mut self, fate: &Fate, reason: LostReason, now: Monotonic) {
        if self.is_seen() {
            let (token, mode) = fate.lease();
            self.tell_of(&fate.slot, mode, LeaseEventKind::Lost { token, reason, held: span(fate.since, now) });
        }
    }

    fn released(&mut self, turn: TurnId, result: Result<ReleaseOutcome, StoreError>, now: Monotonic) -> Option<Effect> {
        let fate = self.guards.remove(&turn)?;
        match &result {
            Ok(ReleaseOutcome::Released) => {
                self.stats.released += 1;
                if self.is_seen() {
                    let (token, mode) = fate.lease();
                    self.tell_of(&fate.slot, mode, LeaseEventKind::Released { token, held: span(fate.since, now) });
                }
            }
            _ if fate.is_lost() => {}
            // The release found it gone.
            Ok(ReleaseOutcome::Lost) => {
                self.stats.lost += 1;
                self.tell_loss(&fate, LostReason::Expired, now);
                fate.state().lost = Some(LostReason::Expired);
            }
            Err(_) => self.tell_loss(&fate, LostReason::StoreFailed, now),
        }
        Some(Effect::Wake(fate.release(result)))
    }

    fn count_transaction(&mut self, output: &Output) {
        let Output::Store { batch, .. } = output else { return };
        let renews = |action: &Action| matches!(action, Action::Renew { .. });
        self.stats.transactions += 1;
        self.stats.renewed += batch.0.iter().filter(|operation| renews(&operation.action)).count() as u64;
        if Event::are_heard() {
            self.news.push(Effect::Tell(Event::Transaction { operations: batch.0.len() }));
        }
    }
}

fn span(from: Monotonic, to: Monotonic) -> Duration {
    Duration::from_millis(to.since(from))
}
