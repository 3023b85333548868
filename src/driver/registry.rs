//! Who waits for which answer of the machine, and which guards exist.

mod noting;

use alloc::{boxed::Box, vec::Vec};
use core::{sync::atomic::Ordering, task::Waker, time::Duration};

use super::event::{Event, LeaseStats, Origin};
use super::events::Audience;
use super::guards::Guards;
use super::questions::{Answer, Questions};
use crate::client::fate::{Fate, LeaseState};
use crate::executor::Shared;
use crate::machine::{Key, Monotonic, Outcome, Refusal, SessionId, Slot, StoreError, TurnId};
use crate::oneshot::{self, Receiver, Sender};

/// The machine's answer to one request or question.
#[derive(Debug)]
pub(crate) enum Response {
    Granted(Shared<Fate>),
    Busy,
    Failed(Refusal),
    /// A request timed out. The answer says whether a guard of this context holds the key, and whether others do.
    TimedOut {
        waited: Duration,
        held_here: bool,
        held_elsewhere: bool,
    },
    Verified(Result<bool, StoreError>),
    Upgraded,
    /// Boxed, because it is rare, and larger than everything else that is stored for each request.
    Status(Box<Result<Outcome, StoreError>>),
}

/// What to do for an event after the lock is released. Values whose drop calls outside code, such as the span of a request, are dropped
/// then, too.
pub(crate) enum Effect {
    Answer(Question, Response),
    Wake(Vec<Waker>),
    /// Wakes the task that waits for an answer.
    WakeOne(Waker),
    /// The end of a guard.
    End(Shared<Fate>, Vec<Waker>),
    /// A request has waited for a long time for a guard of its own context.
    WarnOfOwnWait(Key),
    Tell(Event, SessionId, Origin),
}

/// A request or a question without an answer.
pub(crate) struct Question {
    /// `None` until the receiver is taken, which happens before the mutex of the core is released.
    sender: Option<Sender<Response>>,
    /// The slot of a request for a lease.
    slot: Option<Slot>,
    asked_at: Monotonic,
    told_waiting: bool,
    /// Whether the store said that others hold the key or came first.
    queued: bool,
    origin: Origin,
}

impl Question {
    /// If the receiver was dropped, its owner has abandoned the request, or is about to.
    pub(crate) fn answer(self, response: Response) {
        if let Some(sender) = self.sender {
            sender.send(response);
        }
    }
}

pub(crate) struct Registry {
    /// The manager's session, as events show it.
    holder: SessionId,
    last_turn: u64,
    questions: Questions,
    /// The answer to the request that is being made, if it came before its receiver was taken.
    at_once: Option<Answer>,
    guards: Guards,
    warned_of_own_wait: bool,
    /// How and when the latest transaction failed, if it did.
    failure: Option<(Monotonic, StoreError)>,
    /// Whether the store has ever answered.
    pub(crate) has_heard: bool,
    pub(crate) stats: LeaseStats,
    /// Effects for after the lock is released, because listeners may call back.
    pub(crate) news: Vec<Effect>,
    audience: Audience,
}

impl Registry {
    pub(crate) fn new(holder: SessionId) -> Self {
        Self {
            holder,
            last_turn: 0,
            questions: Questions::default(),
            at_once: None,
            guards: Guards::default(),
            warned_of_own_wait: false,
            failure: None,
            has_heard: false,
            stats: LeaseStats::default(),
            news: Vec::new(),
            audience: Audience::default(),
        }
    }

    /// Opens a question under a new id.
    pub(crate) fn open(&mut self) -> (TurnId, Receiver<Response>) {
        let turn = self.next_turn();
        self.expect(turn, None, Monotonic::default(), Origin::default());
        (turn, self.receiver(turn))
    }

    pub(crate) fn next_turn(&mut self) -> TurnId {
        self.last_turn += 1;
        TurnId(self.last_turn)
    }

    /// Opens a question with this id. Before the caller unlocks the core, it must call [`receiver`](Self::receiver) or
    /// [`heard`](Self::heard).
    pub(crate) fn expect(&mut self, turn: TurnId, slot: Option<Slot>, asked_at: Monotonic, origin: Origin) {
        let question = Question { sender: None, slot, asked_at, told_waiting: false, queued: false, origin };
        self.questions.push(turn, question);
        self.at_once = None;
    }

    /// The channel for the answer. Call this while the question is open: after that, the receiver yields `None` at once.
    pub(crate) fn receiver(&mut self, turn: TurnId) -> Receiver<Response> {
        let (sender, receiver) = oneshot::channel();
        let question = self.questions.get_mut(turn);
        debug_assert!(question.is_some(), "the question was answered before its receiver was taken");
        if let Some(question) = question {
            question.sender = Some(sender);
        }
        receiver
    }

    /// The answer to a request: the one that was given at once, or else the channel on which it will come.
    pub(crate) fn heard(&mut self, turn: TurnId) -> Answer {
        self.at_once.take().unwrap_or_else(|| Answer::Coming(self.receiver(turn)))
    }

    /// Performs an effect if that runs only our own code, which is safe under the lock. Returns what is left to do. `is_next` says that no
    /// other effect is planned before this one.
    pub(crate) fn perform(&mut self, effect: Effect, is_next: bool) -> Option<Effect> {
        match effect {
            Effect::Answer(question, response) => self.give(question, response, is_next),
            Effect::End(fate, wakers) if is_next && wakers.is_empty() && !fate.origin.is_known() => None,
            other => Some(other),
        }
    }

    fn give(&mut self, mut question: Question, response: Response, is_next: bool) -> Option<Effect> {
        let is_safe = is_next && !question.origin.is_known();
        let response = match response {
            Response::Granted(fate) if is_safe && question.sender.is_none() => {
                self.at_once = Some(Answer::Granted(Some(fate)));
                return None;
            }
            other => other,
        };
        if question.sender.is_none() {
            let (sender, receiver) = oneshot::channel();
            self.at_once = Some(Answer::Coming(receiver));
            question.sender = Some(sender);
        }
        match question.sender {
            Some(sender) if is_safe => sender.put(response).map(Effect::WakeOne),
            _ => Some(Effect::Answer(question, response)),
        }
    }

    /// Notes that the request joins others of its context that have a position in the queue.
    pub(crate) fn joins_queue(&mut self, turn: TurnId) {
        if let Some(question) = self.questions.get_mut(turn) {
            question.queued = true;
        }
    }

    /// Notes that the context has no position in any queue, because it is suspended.
    pub(crate) fn leave_queues(&mut self) {
        self.questions.each(|question| question.queued = false);
    }

    /// Removes a question. Drop it after the lock is released, because that wakes the task that waits for it.
    pub(crate) fn forget(&mut self, turn: TurnId, now: Monotonic) -> Option<Question> {
        let question = self.questions.remove(turn)?;
        self.tell_end_of_wait(&question, now);
        Some(question)
    }

    /// Everything that waits for an answer, with the slot of a request. Answer each after the lock is released.
    pub(crate) fn forget_all(&mut self, now: Monotonic) -> Vec<(TurnId, Option<Slot>, Question)> {
        let questions = self.questions.take_all();
        let forget = |(turn, question): (TurnId, Question)| {
            self.tell_end_of_wait(&question, now);
            (turn, question.slot.clone(), question)
        };
        questions.map(forget).collect()
    }

    /// The keys of the guards that still exist, except those whose work ends together with the lease.
    pub(crate) fn forgotten_keys(&self) -> Vec<Key> {
        let forgotten = self.guards.iter().filter(|(_, fate)| {
            let is_held = matches!(fate.state().summary(), LeaseState::Held | LeaseState::Suspect);
            is_held && !fate.ends_work.load(Ordering::Relaxed)
        });
        let mut keys: Vec<_> = forgotten.map(|(_, fate)| fate.slot.key.clone()).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// The slot of a request, granted or not; `None` if it was refused.
    pub(crate) fn slot_of(&mut self, turn: TurnId) -> Option<Slot> {
        match self.guards.get(turn) {
            Some(fate) => Some(fate.slot.clone()),
            None => self.questions.get_mut(turn)?.slot.clone(),
        }
    }

    pub(crate) fn take_guards(&mut self) -> Guards {
        core::mem::take(&mut self.guards)
    }

    pub(crate) fn audience(&mut self) -> &mut Audience {
        &mut self.audience
    }

    /// Ends the streams of events.
    pub(crate) fn end_events(&mut self) {
        let listeners = self.audience.end();
        self.news.push(Effect::Wake(listeners));
    }
}
