//! A slot of a context at one key: the local turns, and what stands in the record for all of them.

use alloc::{boxed::Box, vec::Vec};

use super::{
    config::belief_ms,
    id::RequestId,
    mode::Mode,
    operation::{Granted, Way},
    outbox::Sent,
    places::Plan,
    port::{Turn, TurnId},
    record::Sighting,
    time::{Monotonic, earliest},
    token::{Token, TokenBlock},
    turns::Turns,
};

/// Many local turns share one place in the record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) turns: Turns,
    pub(super) stage: Stage,
    pub(super) plan: Plan,
    /// Another context said that it waits, when this transaction was the last that had been sent.
    pub(super) wanted: Option<u64>,
}

/// What stands in the record, as far as this context knows. Boxed: it is taken out and put in as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    #[default]
    Idle,
    Seeking(Box<Seeking>),
    Held(Box<Held>),
}

/// A request under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Seeking {
    pub(super) request: RequestId,
    pub(super) way: Way,
    pub(super) wait: bool,
    /// As it was asked last.
    pub(super) priority: i32,
    /// When the first attempt was sent.
    pub(super) first_sent: Option<Sent>,
    /// When the latest attempt that was answered "waiting" was sent: an heir's lease counts from there.
    pub(super) waiting_sent: Option<Sent>,
    /// The token in the latest such answer: a signalled grant must have a larger one.
    pub(super) last_token: Token,
    /// An earlier attempt gave no answer.
    pub(super) retried: bool,
    /// When the store last answered, or the request began.
    pub(super) heard_at: Monotonic,
    /// When a refused try looks again.
    pub(super) look_at: Option<Monotonic>,
    /// Nor does it look after that.
    pub(super) look_until: Option<Monotonic>,
    /// Another incarnation of this context's instance stands ahead.
    pub(super) twin: Option<Twin>,
    /// Of a lease that is taken over: the token of the next guard.
    pub(super) cursor: Option<Token>,
}

/// A grant of the same instance, not known yet to be dead or alive.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Twin {
    pub(super) seen: Sighting,
    /// Its beacon has so long to go.
    pub(super) until: Option<Monotonic>,
}

/// A lease that this context believes it holds, or held until lately.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub(super) request: RequestId,
    /// As the record has it: a shared lease may have been upgraded, an exclusive one downgraded.
    pub(super) mode: Mode,
    /// The grant's identity.
    pub(super) grant: Token,
    /// The shared grant that it grew out of, and by which request that was granted.
    pub(super) formerly: Option<(Token, RequestId)>,
    /// The token of the next guard. It only moves forward, whatever is answered twice.
    pub(super) next_token: Token,
    /// The last token that is reserved.
    pub(super) last_token: Token,
    pub(super) refilling: bool,
    /// Who uses the lease now.
    pub(super) users: Vec<User>,
    /// One of them wants to be the only one.
    pub(super) upgrade: Option<Box<Upgrade>>,
    pub(super) valid_until: Monotonic,
    /// The lease that the latest renewal asked for.
    pub(super) asked_ms: u64,
    /// Until when a user wants to be sure of it.
    pub(super) extended_until: Monotonic,
    /// Nothing that this transaction or an earlier one carried dispels the doubt.
    pub(super) doubted: Option<u64>,
    pub(super) told_suspect: bool,
    /// Whether another context waits.
    pub(super) contended: bool,
    /// It came out of a queue: others are about, and it is given back at once when it is not used.
    pub(super) queued_for: bool,
    pub(super) tenure_since: Monotonic,
    pub(super) handoffs: u32,
    /// Until when it is kept although nobody uses it.
    pub(super) lingers_until: Option<Monotonic>,
    /// When an heir makes its short lease a long one.
    pub(super) settles_at: Option<Monotonic>,
}

/// A guard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct User {
    pub(super) turn: TurnId,
    pub(super) token: Token,
    /// How it holds: some of those who hold exclusively together may have been downgraded.
    pub(super) mode: Mode,
    pub(super) share: bool,
    pub(super) renews: bool,
    pub(super) ends_at: Option<Monotonic>,
}

/// A guard that shares and wants to hold exclusively.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Upgrade {
    pub(super) query: TurnId,
    pub(super) turn: TurnId,
    /// `None` as long as others here share.
    pub(super) seeking: Option<Seeking>,
    /// Nobody wants it any more; whether it was granted is not known yet.
    pub(super) cancelled: bool,
}

impl Seeking {
    pub(super) fn new(request: RequestId, way: Way, wait: bool, now: Monotonic) -> Self {
        Self {
            request,
            way,
            wait,
            priority: 0,
            first_sent: None,
            waiting_sent: None,
            last_token: Token::default(),
            retried: false,
            heard_at: now,
            look_at: None,
            look_until: None,
            twin: None,
            cursor: None,
        }
    }

    /// Whether it takes over this grant.
    pub(super) fn resumes(&self, grant: Token) -> bool {
        matches!(self.way, Way::Resume { token, .. } if token == grant)
    }

    /// Whether it is too early to say that the key is taken.
    pub(super) fn is_looking(&self) -> bool {
        self.look_at.is_some() || self.twin.as_ref().is_some_and(|twin| twin.until.is_some())
    }
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

    /// The request under way: for a lease, or for holding a shared one exclusively.
    pub(super) fn seeking(&self) -> Option<&Seeking> {
        match &self.stage {
            Stage::Seeking(seeking) => Some(seeking),
            Stage::Held(held) => held.upgrade.as_ref()?.seeking.as_ref(),
            Stage::Idle => None,
        }
    }

    pub(super) fn seeking_mut(&mut self) -> Option<&mut Seeking> {
        match &mut self.stage {
            Stage::Seeking(seeking) => Some(seeking),
            Stage::Held(held) => held.upgrade.as_mut()?.seeking.as_mut(),
            Stage::Idle => None,
        }
    }

    /// Whether a request of this number is under way or was granted.
    pub(super) fn knows(&self, request: RequestId) -> bool {
        let seeks = self.seeking().is_some_and(|seeking| seeking.request == request);
        seeks || self.held().is_some_and(|held| held.request == request)
    }

    /// Whether something may stand in the record for it: what is to be taken over does so before it is asked for.
    pub(super) fn may_be_in_store(&self) -> bool {
        let stands = |seeking: &Seeking| seeking.first_sent.is_some() || matches!(seeking.way, Way::Resume { .. });
        self.held().is_some() || self.seeking().is_some_and(stands)
    }

    /// Whether something in the record is to be kept alive.
    pub(super) fn beats(&self) -> bool {
        self.waits() || self.held().is_some_and(Held::renews)
    }

    /// Whether the request has a place in the queue.
    pub(super) fn waits(&self) -> bool {
        self.seeking().is_some_and(|seeking| seeking.waiting_sent.is_some())
    }

    /// When something is to be done for the turns, the users, or the lease that nobody uses.
    pub(super) fn next_event(&self) -> Option<Monotonic> {
        let seeking = self.seeking();
        let looks = seeking.and_then(|seeking| seeking.look_at);
        let verdict = seeking.and_then(|seeking| seeking.twin.as_ref()?.until);
        let held = self.held().and_then(Held::next_event);
        earliest(&[self.turns.alarm(), looks, verdict, held])
    }

    /// When the holder must begin to doubt, unless it does already.
    pub(super) fn belief_ends(&self) -> Option<Monotonic> {
        self.held().filter(|held| !held.told_suspect && held.renews()).map(|held| held.valid_until)
    }
}

impl Held {
    /// A grant, counted from the sending of the request that it answers.
    pub(super) fn new(request: RequestId, mode: Mode, granted: &Granted, sent: Sent, now: Monotonic) -> Self {
        let TokenBlock { first, last } = granted.block;
        Self {
            request,
            mode,
            grant: first,
            formerly: None,
            next_token: first,
            last_token: last,
            refilling: false,
            users: Vec::new(),
            upgrade: None,
            valid_until: sent.at.plus(belief_ms(granted.lease_ms)),
            asked_ms: granted.lease_ms,
            extended_until: Monotonic::default(),
            doubted: None,
            told_suspect: false,
            contended: granted.contended,
            queued_for: false,
            tenure_since: now,
            handoffs: 0,
            lingers_until: None,
            settles_at: None,
        }
    }

    /// A shared lease became an exclusive one, with tokens of its own.
    pub(super) fn upgraded(&mut self, request: RequestId, granted: &Granted, sent: Sent) {
        self.mode = Mode::Exclusive;
        self.formerly = Some((self.grant, self.request));
        self.request = request;
        self.grant = granted.block.first;
        self.next_token = granted.block.first;
        self.last_token = granted.block.last;
        self.refilling = false;
        self.valid_until = sent.at.plus(belief_ms(granted.lease_ms));
        self.contended = granted.contended;
    }

    pub(super) fn is_used_by(&self, turn: TurnId) -> bool {
        self.users.iter().any(|user| user.turn == turn)
    }

    /// Whether this turn may use the lease beside those who do.
    pub(super) fn admits(&self, turn: &Turn) -> bool {
        match (self.users.is_empty(), turn.mode, self.mode) {
            (_, Mode::Exclusive, Mode::Shared) => false,
            (true, _, _) | (false, Mode::Shared, Mode::Shared) => true,
            (false, _, _) => turn.share && self.users.iter().all(|user| user.share),
        }
    }

    /// Whether it is renewed without being asked.
    pub(super) fn renews(&self) -> bool {
        self.users.is_empty() || self.users.iter().any(|user| user.renews)
    }

    /// Whether it is held exclusively although nobody who uses it needs that.
    pub(super) fn is_too_strong(&self) -> bool {
        let shared = self.users.iter().all(|user| user.mode == Mode::Shared);
        self.mode == Mode::Exclusive && !self.users.is_empty() && shared
    }

    pub(super) fn lingers(&self) -> bool {
        self.lingers_until.is_some()
    }

    fn next_event(&self) -> Option<Monotonic> {
        let runs_out = (!self.renews()).then_some(self.valid_until);
        let next = earliest(&[self.lingers_until, self.settles_at, runs_out]);
        self.users.iter().fold(next, |next, user| earliest(&[next, user.ends_at]))
    }

    /// How long the holder may go on believing, in ms.
    pub(super) fn belief_left(&self, now: Monotonic) -> u64 {
        if self.doubted.is_some() { 0 } else { self.valid_until.since(now) }
    }

    /// The store confirmed the lease, in answer to what was sent at `sent`. Whether that dispelled a doubt.
    pub(super) fn confirm(&mut self, sent: Sent, lease_ms: u64, now: Monotonic) -> bool {
        self.valid_until = self.valid_until.max(sent.at.plus(belief_ms(lease_ms)));
        if self.doubted.is_some_and(|doubted| sent.flight > doubted) {
            self.doubted = None;
        }
        let certain = self.belief_left(now) > 0;
        let dispelled = self.told_suspect && certain;
        self.told_suspect &= !certain;
        dispelled
    }
}
