//! A context's place at one key: the local turns, and what stands in the record for all of them.

use alloc::vec::Vec;

use super::{
    config::belief_ms,
    id::RequestId,
    outbox::Sent,
    places::Plan,
    port::{Turn, TurnId},
    time::Monotonic,
    token::{Token, TokenBlock},
};

/// Many local turns share one place in the record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) turns: Vec<Turn>,
    pub(super) stage: Stage,
    pub(super) plan: Plan,
    /// Another context said that it waits, when this transaction was the last that had been sent.
    pub(super) wanted: Option<u64>,
}

/// What stands in the record, as far as this context knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    #[default]
    Idle,
    Seeking(Seeking),
    Held(Held),
}

/// A request under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Seeking {
    pub(super) request: RequestId,
    pub(super) wait: bool,
    /// When the first attempt was sent.
    pub(super) first_sent: Option<Sent>,
    /// When the latest attempt that was answered "waiting" was sent: an heir's lease counts from there.
    pub(super) waiting_sent: Option<Sent>,
    /// The token in the latest such answer: a signalled grant must have a larger one.
    pub(super) last_token: Token,
    /// When the store last answered, or the request began.
    pub(super) heard_at: Monotonic,
}

/// A lease that this context believes it holds, or held until lately.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub(super) request: RequestId,
    pub(super) block: TokenBlock,
    /// The token of the next guard. It only moves forward, whatever is answered twice.
    pub(super) next_token: Token,
    /// Who uses the lease now.
    pub(super) user: Option<TurnId>,
    pub(super) valid_until: Monotonic,
    /// Nothing that this transaction or an earlier one carried dispels the doubt.
    pub(super) doubted: Option<u64>,
    pub(super) told_suspect: bool,
    /// Whether another context waits.
    pub(super) contended: bool,
    pub(super) tenure_since: Monotonic,
    pub(super) handoffs: u32,
}

impl Place {
    pub(super) fn is_idle(&self) -> bool {
        self.turns.is_empty() && matches!(self.stage, Stage::Idle)
    }

    /// Whether another context waits, as an answer to what was sent then says, unless that one said so since.
    pub(super) fn contended(&mut self, sent: Sent, answer: bool) -> bool {
        self.wanted = self.wanted.filter(|wanted| *wanted >= sent.flight);
        answer || self.wanted.is_some()
    }

    pub(super) fn held(&self) -> Option<&Held> {
        match &self.stage {
            Stage::Held(held) => Some(held),
            _ => None,
        }
    }

    pub(super) fn held_mut(&mut self) -> Option<&mut Held> {
        match &mut self.stage {
            Stage::Held(held) => Some(held),
            _ => None,
        }
    }

    pub(super) fn seeking(&self) -> Option<&Seeking> {
        match &self.stage {
            Stage::Seeking(seeking) => Some(seeking),
            _ => None,
        }
    }

    pub(super) fn seeking_mut(&mut self) -> Option<&mut Seeking> {
        match &mut self.stage {
            Stage::Seeking(seeking) => Some(seeking),
            _ => None,
        }
    }

    /// Whether something in the record is to be kept alive.
    pub(super) fn beats(&self) -> bool {
        match &self.stage {
            Stage::Idle => false,
            Stage::Seeking(_) => self.waits(),
            Stage::Held(_) => true,
        }
    }

    /// Whether the request has a place in the queue.
    pub(super) fn waits(&self) -> bool {
        self.seeking().is_some_and(|seeking| seeking.waiting_sent.is_some())
    }

    pub(super) fn next_deadline(&self) -> Option<Monotonic> {
        self.turns.iter().filter_map(|turn| turn.deadline).min()
    }

    /// When the holder must begin to doubt, unless it does already.
    pub(super) fn belief_ends(&self) -> Option<Monotonic> {
        self.held().filter(|held| !held.told_suspect).map(|held| held.valid_until)
    }
}

impl Held {
    /// A grant, counted from the sending of the request that it answers.
    pub(super) fn new(request: RequestId, block: TokenBlock, sent: Sent, lease_ms: u64, now: Monotonic) -> Self {
        Self {
            request,
            block,
            next_token: block.first,
            user: None,
            valid_until: sent.at.plus(belief_ms(lease_ms)),
            doubted: None,
            told_suspect: false,
            contended: false,
            tenure_since: now,
            handoffs: 0,
        }
    }

    /// How long the holder may go on believing, in ms.
    pub(super) fn belief_left(&self, now: Monotonic) -> u64 {
        if self.doubted.is_some() { 0 } else { self.valid_until.since(now) }
    }

    /// The store confirmed the lease, in answer to what was sent at `sent`.
    pub(super) fn confirm(&mut self, sent: Sent, lease_ms: u64, now: Monotonic) {
        self.valid_until = self.valid_until.max(sent.at.plus(belief_ms(lease_ms)));
        if self.doubted.is_some_and(|doubted| sent.flight > doubted) {
            self.doubted = None;
        }
        self.told_suspect &= self.belief_left(now) == 0;
    }
}
