//! Who waits for which answer of the machine, which guards live, and what happened so far.

use alloc::{boxed::Box, vec::Vec};
use core::task::Waker;

use futures::channel::oneshot;

use crate::event::{Event, LeaseStats};
use crate::executor::Shared;
use crate::fate::Fate;
use crate::machine::{
    Action, Incarnation, Key, LostReason, Monotonic, Outcome, Output, Refusal, ReleaseOutcome, Slot, SortedMap,
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
    Answer(oneshot::Sender<Reaction>, Reaction),
    Wake(Vec<Waker>),
}

/// A request or a question without an answer.
pub(crate) struct Question {
    sender: oneshot::Sender<Reaction>,
    /// Where a request for a lease stands.
    slot: Option<Slot>,
    asked_at: Monotonic,
}

#[derive(Default)]
pub(crate) struct Ledger {
    last_turn: u64,
    questions: SortedMap<TurnId, Question>,
    guards: SortedMap<TurnId, Shared<Fate>>,
    pub(crate) stats: LeaseStats,
    /// To be told once the lock was let go: who listens may ask back.
    pub(crate) news: Vec<Event>,
}

impl Ledger {
    /// A fresh name for a request or a question.
    pub(crate) fn open(&mut self, slot: Option<Slot>, asked_at: Monotonic) -> (TurnId, oneshot::Receiver<Reaction>) {
        let turn = self.next_turn();
        (turn, self.expect(turn, slot, asked_at))
    }

    pub(crate) fn next_turn(&mut self) -> TurnId {
        self.last_turn += 1;
        TurnId(self.last_turn)
    }

    /// An answer is expected under this name.
    pub(crate) fn expect(
        &mut self,
        turn: TurnId,
        slot: Option<Slot>,
        asked_at: Monotonic,
    ) -> oneshot::Receiver<Reaction> {
        let (sender, receiver) = oneshot::channel();
        self.questions.insert(turn, Question { sender, slot, asked_at });
        receiver
    }

    /// To be dropped after the lock was let go: who waits for it is woken.
    pub(crate) fn forget(&mut self, turn: TurnId) -> Option<Question> {
        self.questions.remove(&turn)
    }

    pub(crate) fn is_granted(&self, turn: TurnId) -> bool {
        self.guards.contains_key(&turn)
    }

    pub(crate) fn take_guards(&mut self) -> Vec<Shared<Fate>> {
        core::mem::take(&mut self.guards).into_iter().map(|(_, fate)| fate).collect()
    }

    /// Notes what an output says, and tells what is to be done about it.
    pub(crate) fn note(&mut self, output: Output, holder: Incarnation, now: Monotonic) -> Option<Effect> {
        match output {
            Output::Granted { turn, token } => self.granted(turn, token, holder, now),
            Output::Busy { turn } => self.answer(turn, Reaction::Busy),
            Output::Failed { turn, refusal } => self.answer(turn, Reaction::Failed(refusal)),
            Output::Verified { query, result } => self.answer(query, Reaction::Verified(result)),
            Output::Status { query, result } => self.answer(query, Reaction::Status(Box::new(result))),
            Output::Waiting { turn, ahead } => {
                self.stats.waited += 1;
                self.waits(turn, |key, _| Event::Waiting { key, ahead }, now)
            }
            Output::WaitsLong { turn } => self.waits(turn, |key, waited_ms| Event::WaitsLong { key, waited_ms }, now),
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

    fn tell(&mut self, event: impl FnOnce() -> Event) {
        if Event::are_heard() {
            self.news.push(event());
        }
    }

    fn answer(&mut self, turn: TurnId, reaction: Reaction) -> Option<Effect> {
        self.questions.remove(&turn).map(|question| Effect::Answer(question.sender, reaction))
    }

    fn granted(&mut self, turn: TurnId, token: Token, holder: Incarnation, now: Monotonic) -> Option<Effect> {
        let Question { sender, slot, asked_at } = self.questions.remove(&turn)?;
        let fate = Shared::new(Fate::new(slot?, token, now));
        self.guards.insert(turn, fate.clone());
        self.stats.granted += 1;
        self.tell(|| {
            let (key, mode, waited_ms) = (fate.slot.key.clone(), fate.slot.mode, now.since(asked_at));
            Event::Granted { key, mode, token, holder, waited_ms }
        });
        Some(Effect::Answer(sender, Reaction::Granted(fate)))
    }

    fn waits(&mut self, turn: TurnId, event: impl FnOnce(Key, u64) -> Event, now: Monotonic) -> Option<Effect> {
        let Question { slot, asked_at, .. } = self.questions.get(&turn)?;
        let (key, waited_ms) = (slot.as_ref()?.key.clone(), now.since(*asked_at));
        self.tell(|| event(key, waited_ms));
        None
    }

    fn doubt(&mut self, turn: TurnId, suspect: bool) -> Option<Effect> {
        let fate = self.guards.get(&turn)?.clone();
        self.tell(|| {
            let (key, token) = (fate.slot.key.clone(), fate.state().token);
            if suspect { Event::Suspect { key, token } } else { Event::Certain { key, token } }
        });
        Some(Effect::Wake(fate.change(|state| state.suspect = suspect)))
    }

    fn upgraded(&mut self, query: TurnId, turn: TurnId, token: Token) -> Option<Effect> {
        if let Some(fate) = self.guards.get(&turn) {
            let mut state = fate.state();
            (state.token, state.mode) = (token, crate::machine::Mode::Exclusive);
        }
        self.answer(query, Reaction::Upgraded)
    }

    fn downgraded(&self, turn: TurnId) -> Option<Effect> {
        self.guards.get(&turn)?.state().mode = crate::machine::Mode::Shared;
        None
    }

    fn lost(&mut self, turn: TurnId, reason: LostReason, now: Monotonic) -> Option<Effect> {
        let fate = self.guards.get(&turn)?.clone();
        self.stats.lost += 1;
        self.tell(|| {
            let (key, token, held_ms) = (fate.slot.key.clone(), fate.state().token, now.since(fate.since));
            Event::Lost { key, token, reason, held_ms }
        });
        Some(Effect::Wake(fate.lose(reason)))
    }

    fn released(&mut self, turn: TurnId, result: Result<ReleaseOutcome, StoreError>, now: Monotonic) -> Option<Effect> {
        let fate = self.guards.remove(&turn)?;
        if result == Ok(ReleaseOutcome::Released) {
            self.stats.released += 1;
            self.tell(|| {
                let (key, token, held_ms) = (fate.slot.key.clone(), fate.state().token, now.since(fate.since));
                Event::Released { key, token, held_ms }
            });
        }
        Some(Effect::Wake(fate.release(result)))
    }

    fn count_transaction(&mut self, output: &Output) {
        let Output::Store { batch, .. } = output else { return };
        let renews = |action: &Action| matches!(action, Action::Renew { .. });
        self.stats.transactions += 1;
        self.stats.renewed += batch.0.iter().filter(|operation| renews(&operation.action)).count() as u64;
        self.tell(|| Event::Transaction { operations: batch.0.len() });
    }
}
