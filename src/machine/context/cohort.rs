//! A cohort: the requests of one context for one key and mode, and the entry in the record that they share.

use alloc::{boxed::Box, string::String, vec::Vec};

use super::{
    cohorts::Plan,
    detector::Ahead,
    id::RequestId,
    input::{Slot, Turn, TurnId},
    local_queue::Turns,
    mode::Mode,
    pending::Sent,
    record::{Granted, Sighting, Way},
    time::{Monotonic, earliest},
    token::{Token, TokenBlock},
};

/// Many local requests share one position in the record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Cohort {
    pub(super) turns: Turns,
    pub(super) stage: Stage,
    pub(super) plan: Plan,
    /// The sessions that were ahead of the request under way when it was last answered, or that kept the next turn from sharing the lease.
    pub(super) ahead: Ahead,
    /// The `info` that was sent with the request. The store shows it for as long as the lease is held.
    pub(super) info: String,
    /// If another context said that it waits: the last transaction that had been sent by then. The answer to it or to an earlier one may
    /// leave that waiter out.
    pub(super) wanted: Option<u64>,
}

/// The entry in the record, as far as this context knows.
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
    pub(super) way: Way,
    pub(super) wait: bool,
    /// The priority that was sent last.
    pub(super) priority: i32,
    /// Whether it was put into the store queue by itself, not only together with other keys.
    pub(super) asked: bool,
    /// Whether a transaction carried it.
    pub(super) sent: bool,
    /// How many attempts to steal were sent.
    pub(super) thefts: u32,
    /// Whether it has a place in the queue.
    pub(super) queued: bool,
    /// The token in the latest answer "waiting": a signalled grant must have a larger one.
    pub(super) last_token: Token,
    /// Whether an earlier attempt failed.
    pub(super) retried: bool,
    /// Whether an earlier attempt may have been applied, which the errors of later ones do not show.
    pub(super) may_be_applied: bool,
    /// When the store last answered, or the request began.
    pub(super) heard_at: Monotonic,
    /// When a try whose key is taken looks again.
    pub(super) look_at: Option<Monotonic>,
    /// By when the holder must have given the key back: a try that finds it taken after that does not look again.
    pub(super) look_until: Option<Monotonic>,
    /// Until when a try, or an upgrade whose rival may be dead, watches a beacon.
    pub(super) probes_until: Option<Monotonic>,
    /// Whether a holder said that it uses the key.
    pub(super) is_in_use: bool,
    /// Another context of this instance that is ahead.
    pub(super) twin: Option<Box<Twin>>,
    /// For a lease that is being taken over: the token of the next guard.
    pub(super) cursor: Option<Token>,
}

/// A grant of the same instance, not known yet to be dead or alive.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Twin {
    pub(super) seen: Sighting,
    pub(super) life: TwinLife,
}

/// Whether a twin is alive, as far as this context knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum TwinLife {
    /// Its beacon is watched, and has until this moment to disappear.
    Watched { until: Monotonic },
    /// Its beacon still stood after that. If the store's next answer still shows its grant, the request is refused.
    Alive,
    /// Nobody knows, because no beacon shows it. The twin is a holder like any other until its next heartbeat.
    Unknown,
}

/// A lease that this context considers held, or did until recently.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub(super) request: RequestId,
    /// The mode in the record. It differs from the slot's after an upgrade or a downgrade.
    pub(super) mode: Mode,
    /// The grant's identity.
    pub(super) grant: Token,
    /// The shared grant that was upgraded to this one, and the request of that grant.
    pub(super) formerly: Option<(Token, RequestId)>,
    /// The token of the next guard. It only grows, even if an answer arrives twice.
    pub(super) next_token: Token,
    /// The last token that is reserved.
    pub(super) last_token: Token,
    pub(super) refilling: bool,
    /// Whether a query to the store about this grant may still have to be sent.
    pub(super) is_asked_about: bool,
    /// The guards that use the lease now.
    pub(super) users: Vec<User>,
    /// The upgrade, if one of the guards wants one.
    pub(super) upgrade: Option<Box<Upgrade>>,
    /// Whether another context waits.
    pub(super) contended: bool,
    /// Whether it was granted from a queue. Then others are likely to wait, and it is released as soon as it is unused.
    pub(super) queued_for: bool,
    /// Whether a theft was granted.
    pub(super) stolen: bool,
    pub(super) tenure_since: Monotonic,
    pub(super) handoffs: u32,
    /// Whether it passed from one user to another since the store was last asked whether others wait.
    pub(super) passed_on: bool,
    /// Until when it is kept although nobody uses it.
    pub(super) lingers_until: Option<Monotonic>,
    /// How many fenced transactions of its users may be open: of this grant, and of the one that it was [formerly](Self::formerly).
    pub(super) open_fences: [u32; 2],
}

/// A guard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct User {
    pub(super) turn: TurnId,
    pub(super) token: Token,
    /// The guard's own mode. Of several guards of an exclusive lease, some may have been downgraded.
    pub(super) mode: Mode,
    pub(super) share: bool,
    pub(super) ends_at: Option<Monotonic>,
    /// For a guard without automatic renewal: when it expires unless its user renews it.
    pub(super) expires_at: Option<Monotonic>,
}

/// The upgrade of a guard that shares the key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Upgrade {
    pub(super) query: TurnId,
    pub(super) turn: TurnId,
    /// `None` while other guards of this context share the lease.
    pub(super) seeking: Option<Seeking>,
    /// Whether the upgrade was given up. It is not known yet whether it was granted.
    pub(super) cancelled: bool,
    /// The query by which the guard has meanwhile asked again.
    pub(super) again: Option<TurnId>,
}

impl Seeking {
    pub(super) fn new(request: RequestId, way: Way, wait: bool, now: Monotonic) -> Self {
        Self {
            request,
            way,
            wait,
            priority: 0,
            asked: false,
            sent: false,
            thefts: 0,
            queued: false,
            last_token: Token::default(),
            retried: false,
            may_be_applied: false,
            heard_at: now,
            look_at: None,
            look_until: None,
            probes_until: None,
            is_in_use: false,
            twin: None,
            cursor: None,
        }
    }

    /// Whether the request takes over this grant.
    pub(super) fn resumes(&self, grant: Token) -> bool {
        matches!(self.way, Way::Resume { token, .. } if token == grant)
    }

    /// Whether it is too early to say that the key is taken.
    pub(super) fn is_looking(&self) -> bool {
        self.look_at.is_some()
            || self.probes_until.is_some()
            || self.twin.as_ref().is_some_and(|twin| twin.life != TwinLife::Unknown)
    }
}

impl Twin {
    fn judged_at(&self) -> Option<Monotonic> {
        match self.life {
            TwinLife::Watched { until } => Some(until),
            TwinLife::Alive | TwinLife::Unknown => None,
        }
    }
}

impl Cohort {
    pub(super) fn is_idle(&self) -> bool {
        self.turns.is_empty() && matches!(self.stage, Stage::Idle)
    }

    /// Notes whether another context waits, as the answer to a transaction says. Returns whether one does, by this answer or by a message
    /// that came after the transaction was sent.
    pub(super) fn note_contention(&mut self, sent: Sent, answer: bool) -> bool {
        self.wanted = self.wanted.filter(|wanted| *wanted >= sent.transaction);
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

    /// Takes the lease out of the cohort, which is idle after that. `None` if none is held.
    pub(super) fn take_held(&mut self) -> Option<Held> {
        match core::mem::take(&mut self.stage) {
            Stage::Held(held) => Some(held),
            other => {
                self.stage = other;
                None
            }
        }
    }

    /// Takes the request for a lease out of the cohort, which is idle after that. `None` if none is under way.
    pub(super) fn take_seeking(&mut self) -> Option<Seeking> {
        match core::mem::take(&mut self.stage) {
            Stage::Seeking(seeking) => Some(seeking),
            other => {
                self.stage = other;
                None
            }
        }
    }

    /// The request under way: for a lease, or for an upgrade.
    pub(super) fn seeking(&self) -> Option<&Seeking> {
        match &self.stage {
            Stage::Seeking(seeking) => Some(seeking),
            Stage::Held(held) => held.upgrade_seeking(),
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

    /// If no thief is left, the request steals no more. Returns whether that changes anything.
    pub(super) fn rob_no_more(&mut self) -> bool {
        let Stage::Seeking(seeking) = &mut self.stage else { return false };
        let changes = seeking.way == Way::Steal && self.turns.first().is_some_and(|first| !first.steal);
        if changes {
            seeking.way = Way::Plain;
        }
        changes
    }

    /// Adds a turn. If it is the only thief here, the theft that was granted was an earlier thief's, so this one still has to steal.
    pub(super) fn add(&mut self, turn: Turn) {
        let is_only_thief = turn.steal && self.turns.first().is_none_or(|first| !first.steal);
        if let Stage::Held(held) = &mut self.stage
            && is_only_thief
        {
            held.stolen = false;
        }
        self.turns.push(turn);
    }

    /// Whether the store may have granted, or may still grant, an earlier request without anybody here having used its lease.
    pub(super) fn may_have_been_granted(&self) -> bool {
        match &self.stage {
            Stage::Seeking(before) => before.queued || before.may_be_applied,
            Stage::Held(held) => held.users.is_empty() && !held.lingers(),
            Stage::Idle => false,
        }
    }

    /// Whether a theft was sent that the store may have applied.
    pub(super) fn may_have_stolen(&self) -> bool {
        self.held().is_some_and(Held::is_untold_theft) || self.seeking().is_some_and(|seeking| seeking.thefts > 0)
    }

    /// Removes the thieves of such a theft. Its request does not go on: the other turns, if there are any, ask anew.
    pub(super) fn take_unsure_thieves(&mut self) -> Vec<TurnId> {
        if self.may_have_stolen() { core::iter::from_fn(|| self.turns.pop_thief()).collect() } else { Vec::new() }
    }

    /// Whether the request has a place in the queue, or waits for the queue. An upgrade without a place also waits while it watches the
    /// beacon of its rival.
    pub(super) fn waits(&self) -> bool {
        let watches = |seeking: &Seeking| seeking.probes_until.is_some() && matches!(self.stage, Stage::Held(_));
        let is_placed = self.seeking().is_some_and(|seeking| seeking.queued || watches(seeking));
        is_placed || self.waits_for_queue_only()
    }

    /// Whether the next turn could share the lease, if no other request queued for the key.
    pub(super) fn waits_for_queue_only(&self) -> bool {
        let Stage::Held(held) = &self.stage else { return false };
        let shares = held.mode == Mode::Shared && held.upgrade.is_none() && !held.users.is_empty();
        shares && held.contended && self.turns.first().is_some_and(|turn| held.admits(turn))
    }

    /// When something is next to be done for the turns, the users, or an unused lease.
    pub(super) fn next_event(&self) -> Option<Monotonic> {
        let seeking = self.seeking();
        let looks = seeking.and_then(|seeking| earliest(&[seeking.look_at, seeking.probes_until]));
        let verdict = seeking.and_then(|seeking| seeking.twin.as_ref()?.judged_at());
        let held = self.held().and_then(Held::next_event);
        earliest(&[self.turns.alarm(), looks, verdict, held])
    }
}

impl Held {
    /// Whether a theft was granted, and its thief has no guard yet.
    pub(super) fn is_untold_theft(&self) -> bool {
        self.stolen && self.users.is_empty()
    }

    pub(super) fn new(request: RequestId, mode: Mode, granted: &Granted, now: Monotonic) -> Self {
        let TokenBlock { first, last } = granted.block;
        Self {
            request,
            mode,
            grant: first,
            formerly: None,
            next_token: first,
            last_token: last,
            refilling: false,
            is_asked_about: false,
            users: Vec::new(),
            upgrade: None,
            contended: granted.contended,
            queued_for: false,
            stolen: false,
            tenure_since: now,
            handoffs: 0,
            passed_on: false,
            lingers_until: None,
            open_fences: [0; 2],
        }
    }

    /// The shared lease became an exclusive one, with tokens of its own.
    pub(super) fn upgraded(&mut self, request: RequestId, granted: &Granted) {
        self.mode = Mode::Exclusive;
        // A transaction that an earlier grant has fenced ended before this upgrade, or is refused after it.
        self.open_fences = [0, self.open_fences[0]];
        self.formerly = Some((self.grant, self.request));
        self.request = request;
        self.grant = granted.block.first;
        self.next_token = granted.block.first;
        self.last_token = granted.block.last;
        self.refilling = false;
        self.contended = granted.contended;
    }

    /// How many transactions that this grant has fenced may still be open.
    pub(super) fn fences_of(&mut self, grant: (Token, RequestId)) -> Option<&mut u32> {
        let [current, former] = &mut self.open_fences;
        if (self.grant, self.request) == grant {
            return Some(current);
        }
        Some(former).filter(|_| self.formerly == Some(grant))
    }

    /// Whether it is exclusive now, or was before a downgrade.
    pub(super) const fn was_exclusive(&self, slot: &Slot) -> bool {
        matches!(slot.mode, Mode::Exclusive) || self.formerly.is_some()
    }

    /// Whether a fenced transaction of one of its users may be open.
    pub(super) fn may_be_fenced(&self) -> bool {
        self.open_fences != [0; 2]
    }

    pub(super) fn is_used_by(&self, turn: TurnId) -> bool {
        self.users.iter().any(|user| user.turn == turn)
    }

    /// Whether this turn may use the lease together with its present users.
    pub(super) fn admits(&self, turn: &Turn) -> bool {
        match (self.users.is_empty(), turn.mode, self.mode) {
            (_, Mode::Exclusive, Mode::Shared) => false,
            (true, _, _) | (false, Mode::Shared, Mode::Shared) => true,
            (false, _, _) => turn.share && self.users.iter().all(|user| user.share),
        }
    }

    /// Whether this turn joins a user who shares, even if others wait. The turn may be nested in the work of that user, which would
    /// otherwise wait for ever.
    // Protocol: docs/protocol.md#p5.
    pub(super) fn is_joined_by(&self, turn: &Turn) -> bool {
        turn.share && self.upgrade_seeking().is_none() && self.users.iter().any(|user| user.share) && self.admits(turn)
    }

    /// Whether the lease is exclusive although no user needs that.
    pub(super) fn is_too_strong(&self) -> bool {
        let shared = self.users.iter().all(|user| user.mode == Mode::Shared);
        self.mode == Mode::Exclusive && !self.users.is_empty() && shared
    }

    pub(super) fn lingers(&self) -> bool {
        self.lingers_until.is_some()
    }

    fn next_event(&self) -> Option<Monotonic> {
        let mut next = self.lingers_until;
        for user in &self.users {
            next = earliest(&[next, user.ends_at, user.expires_at]);
        }
        next
    }

    /// Renews the users that are not renewed automatically.
    pub(super) fn renew_users(&mut self, until: Monotonic) {
        for user in &mut self.users {
            user.expires_at = user.expires_at.map(|at| at.max(until));
        }
    }

    /// The longest time for which this user may still hold the lease, in ms.
    pub(super) fn limit_ms(&self, turn: TurnId, now: Monotonic) -> u64 {
        let user = self.users.iter().find(|user| user.turn == turn);
        let end = user.and_then(|user| earliest(&[user.ends_at, user.expires_at]));
        end.map_or(u64::MAX, |end| end.since(now))
    }
}
