//! How one operation changes one record: what each action means.

mod parts;

use alloc::vec::Vec;

use super::{
    Grant, Rank, Record, Sighting, Waiter,
    codec::Unreadable,
    id::{RequestId, SessionId},
    json::Extra,
    key::Key,
    mode::Mode,
    operation::{Acquire, Action, Answer, Granted, Outcome, Promotion, StoreNow, Way},
    records::NEAREST,
    session::Stolen,
    sessions::Sessions,
    token::{Token, TokenBlock},
};

/// One operation at work on one record.
pub(super) struct Transition<'a> {
    pub(super) record: &'a mut Record,
    pub(super) sessions: &'a mut Sessions,
    pub(super) key: &'a Key,
    /// The session that sent the operation.
    pub(super) holder: SessionId,
    now: StoreNow,
    asked: Option<RequestId>,
    pub(super) promoted: Vec<Promotion>,
    robbed: Vec<(SessionId, Token)>,
}

impl<'a> Transition<'a> {
    pub(super) fn new(
        key: &'a Key,
        record: &'a mut Record,
        sessions: &'a mut Sessions,
        holder: SessionId,
        now: StoreNow,
    ) -> Self {
        Self { record, sessions, key, holder, now, asked: None, promoted: Vec::new(), robbed: Vec::new() }
    }

    // Protocol: docs/protocol.md#s14, #f.
    pub(super) fn run(mut self, action: &Action) -> Answer {
        if !matches!(action, Action::Inspect | Action::Fence { .. }) {
            self.drop_ended();
        }
        let mut outcome = match action {
            Action::Acquire(ask) => self.acquire(ask),
            Action::Verify { token, request, refill } => self.verify(*token, *request, *refill),
            Action::Downgrade { token, request } => self.downgrade(*token, *request),
            Action::Detach { token, request, to, lease_ms } => self.detach(*token, *request, *to, *lease_ms),
            Action::Release { token, request } => self.release(*token, *request),
            Action::Withdraw { request } => self.withdraw(*request),
            Action::End { target, beat } => self.end(*target, *beat),
            Action::Look => self.look(),
            Action::Inspect => return self.status().into(),
            Action::Fence { token, request, upgrade, mode } => {
                return self.fence(*token, *request, *upgrade, *mode).into();
            }
            // An operation for several keys runs a transition for each key instead.
            Action::AcquireAll(_) => return Outcome::BusyAll(Vec::new()).into(),
        };
        self.promote();
        let contended = !self.record.queue.is_empty();
        outcome.note_contention(contended);
        self.promoted.iter_mut().for_each(|promotion| promotion.contended = contended);
        Answer { outcome, promoted: self.promoted, robbed: self.robbed }
    }

    /// Why a request is refused at once: its session has ended, or the attempt is too late.
    // Protocol: docs/protocol.md#s11.
    fn comes_too_late(&self, ask: &Acquire) -> Option<Outcome> {
        match self.sessions.own(self.holder) {
            None => Some(Outcome::NoSession),
            Some(row) if ask.attempt < row.floor => Some(Outcome::TooLate),
            Some(_) => None,
        }
    }

    /// The first attempt enqueues the request; a later one returns its grant.
    // Protocol: docs/protocol.md#s2, #s5, #s8, #i3.
    fn acquire(&mut self, ask: &Acquire) -> Outcome {
        if let Some(refusal) = self.comes_too_late(ask) {
            return refusal;
        }
        self.asked = Some(ask.request);
        if let Some(grant) = self.own_grant(ask.request) {
            return self.adopt(grant);
        }
        if self.sessions.was_robbed_of(self.holder, self.key, ask.request) {
            // One request gets only one grant, even if that was stolen before the context learned of it.
            return Outcome::NotCurrent { last_token: self.record.last_token, stolen: true };
        }
        let has_place = match self.own_place(ask) {
            Some(at) if self.record.queue[at].request > ask.request => return Outcome::Superseded,
            Some(at) if self.record.queue[at].request == ask.request => {
                self.move_place(at, ask);
                true
            }
            // An entry of an older request was abandoned.
            Some(at) => {
                self.record.queue.remove(at);
                self.changed();
                false
            }
            None => false,
        };
        // Expired grants make way for waiters before they cause a refusal. A theft takes them itself.
        if ask.way != Way::Steal {
            self.promote();
        }
        if self.own_grant(ask.request).is_none() {
            if let Some(refusal) = self.refusal(ask, has_place) {
                self.remove_place(ask.request);
                return refusal;
            }
            match ask.way {
                Way::Steal => self.rob(),
                Way::Resume { from, origin, token, request } => {
                    self.remove_place(ask.request);
                    return self.resume([from, origin], token, request, ask);
                }
                Way::Upgrade { .. } | Way::Plain => {}
            }
            self.enqueue(ask);
            self.promote();
        }
        match self.own_grant(ask.request) {
            Some(grant) => self.adopt(grant),
            None => self.waiting(ask),
        }
    }

    /// Why a request without a grant gets no queue entry either.
    // Protocol: docs/protocol.md#i9.
    fn refusal(&self, ask: &Acquire, has_place: bool) -> Option<Outcome> {
        if TokenBlock::after(self.record.last_token, self.now.wall).is_none() {
            return Some(Outcome::Exhausted);
        }
        match ask.way {
            Way::Steal => return self.unreadable_holder().map(Outcome::Unreadable),
            Way::Resume { .. } => return None,
            Way::Upgrade { token, request } if self.own_grant_of(request, token).is_none() => {
                return Some(self.not_current(token));
            }
            Way::Upgrade { .. } if !has_place && self.record.queue.iter().any(|waiter| waiter.upgrades.is_some()) => {
                return Some(Outcome::UpgradeConflict { ahead: self.ahead_of(ask) });
            }
            Way::Upgrade { .. } | Way::Plain => {}
        }
        let obstacles = if ask.wait { None } else { self.obstacles(ask) };
        obstacles.map(|ahead| Outcome::Busy { ahead })
    }

    // Protocol: docs/protocol.md#s12.
    fn waiting(&mut self, ask: &Acquire) -> Outcome {
        let place = self.record.queue.iter().position(|waiter| self.is_own_place(waiter, ask.request));
        let place = self.sweep_before(place.unwrap_or(self.record.queue.len()));
        let position = self.record.grants.len() + place;
        Outcome::Waiting { last_token: self.record.last_token, position, ahead: self.ahead_of(ask) }
    }

    /// Finds out which entries keep a request from being granted at once, if any do; and which waiters were granted the lease on the way.
    pub(super) fn survey(mut self, ask: &Acquire) -> Result<(Option<Vec<Sighting>>, Vec<Promotion>), Outcome> {
        if let Some(refusal) = self.comes_too_late(ask) {
            return Err(refusal);
        }
        self.drop_ended();
        self.promote();
        let contended = !self.record.queue.is_empty();
        self.promoted.iter_mut().for_each(|promotion| promotion.contended = contended);
        Ok((self.obstacles(ask), self.promoted))
    }

    fn adopt(&self, at: usize) -> Outcome {
        let Grant { block, previous, .. } = self.record.grants[at];
        Outcome::Granted(Granted { block, previous, contended: false })
    }

    fn verify(&mut self, token: Token, request: RequestId, refill: bool) -> Outcome {
        let Some(at) = self.own_grant_of(request, token) else { return self.not_current(token) };
        let refill = if refill { self.refill(at) } else { None };
        Outcome::Current { contended: false, refill }
    }

    /// Reserves more tokens for a grant. The first token stays the grant's identity.
    // Protocol: docs/protocol.md#q.
    fn refill(&mut self, at: usize) -> Option<TokenBlock> {
        let more = TokenBlock::refill_after(self.record.last_token, self.now.wall)?;
        self.record.last_token = more.last;
        self.record.grants[at].block.last = more.last;
        if self.record.grants[at].mode == Mode::Exclusive {
            self.record.last_exclusive = more.last;
        }
        self.changed();
        Some(more)
    }

    // Protocol: docs/protocol.md#i9.
    fn downgrade(&mut self, token: Token, request: RequestId) -> Outcome {
        let Some(at) = self.own_grant_of(request, token) else { return self.not_current(token) };
        if self.record.grants[at].mode == Mode::Exclusive {
            self.record.grants[at].mode = Mode::Shared;
            self.changed();
        }
        Outcome::Downgraded
    }

    // Protocol: docs/protocol.md#e, #i9.
    fn release(&mut self, token: Token, request: RequestId) -> Outcome {
        self.remove_place(request);
        // The request must match, too: if the lease was resumed since, its token is the same, but this must not release it.
        let held = self.own_grant_of(request, token);
        // The request may have been granted again since, so every release also withdraws it.
        self.remove_grant_of(request);
        if held.is_some() { Outcome::Released } else { self.not_current(token) }
    }

    // Protocol: docs/protocol.md#e.
    fn withdraw(&mut self, request: RequestId) -> Outcome {
        self.remove_place(request);
        self.remove_grant_of(request);
        Outcome::Withdrawn
    }

    /// Compares the beat in the same transaction that deletes the row.
    // Protocol: docs/protocol.md#s3.
    fn end(&mut self, target: SessionId, beat: u64) -> Outcome {
        let stands_still = match self.sessions.get(target) {
            Some(row) => row.beat == beat,
            // A session whose row was not read may be alive: then this is false.
            None => self.sessions.has_ended(target),
        };
        if !stands_still {
            return Outcome::Moved;
        }
        self.sessions.end(target);
        self.keep(&|grant| grant.holder != target, &|waiter| waiter.holder != target);
        Outcome::Ended
    }

    // Protocol: docs/protocol.md#s7, #s.
    fn fence(&self, token: Token, request: RequestId, upgrade: Option<RequestId>, mode: Mode) -> Outcome {
        match self.own_grant_of(request, token).or_else(|| self.own_grant(upgrade?)) {
            Some(at) if mode == Mode::Exclusive && self.record.grants[at].mode == Mode::Shared => Outcome::Downgraded,
            Some(_) => Outcome::Current { contended: !self.record.queue.is_empty(), refill: None },
            None => self.not_current(token),
        }
    }

    fn not_current(&self, token: Token) -> Outcome {
        let stolen = self.sessions.was_robbed(self.holder, self.key, token);
        Outcome::NotCurrent { last_token: self.record.last_token, stolen }
    }
}

/// The steps of the actions.
impl Transition<'_> {
    fn changed(&mut self) {
        self.record.changed();
    }

    /// Removes all entries but these.
    fn keep(&mut self, grant: &dyn Fn(&Grant) -> bool, waiter: &dyn Fn(&Waiter) -> bool) {
        let entries = self.record.grants.len() + self.record.queue.len();
        self.record.grants.retain(grant);
        self.record.queue.retain(waiter);
        if self.record.grants.len() + self.record.queue.len() < entries {
            self.changed();
        }
    }

    /// Drops the grants of ended sessions. Their queue entries are dropped when they come to the front.
    fn drop_ended(&mut self) {
        let before = self.record.grants.len();
        let (sessions, holder, now) = (&mut *self.sessions, self.holder, self.now);
        self.record.grants.retain(|grant| !has_ended(sessions, grant.holder, holder, now));
        if self.record.grants.len() < before {
            self.changed();
        }
    }

    /// Drops the entries of ended sessions right ahead of a position in the queue, and returns the new position.
    // Protocol: docs/protocol.md#s14.
    pub(super) fn sweep_before(&mut self, place: usize) -> usize {
        let (mut at, mut seen, mut place) = (place, 0, place);
        while at > 0 && seen < NEAREST {
            at -= 1;
            if has_ended(self.sessions, self.record.queue[at].holder, self.holder, self.now) {
                self.record.queue.remove(at);
                self.changed();
                place -= 1;
            } else {
                seen += 1;
            }
        }
        place
    }

    /// Removes all grants, and notes the loss in the holders' sessions. The answer names the holders.
    // Protocol: docs/protocol.md#s8, #f.
    fn rob(&mut self) {
        for grant in &core::mem::take(&mut self.record.grants) {
            let (token, request) = (grant.block.first, grant.request);
            self.sessions.rob(grant.holder, Stolen { key: self.key.clone(), token, request });
            self.robbed.push((grant.holder, token));
            self.changed();
        }
    }

    /// Why the lease must not be stolen: one of the holders would never learn of it.
    // Protocol: docs/protocol.md#s8.
    fn unreadable_holder(&self) -> Option<Unreadable> {
        self.record.grants.iter().find_map(|grant| self.sessions.unreadable(grant.holder))
    }

    /// Grants the lease to the head of the queue for as long as its mode fits. Afterwards the head cannot be granted.
    // Protocol: docs/protocol.md#s14.
    pub(super) fn promote(&mut self) {
        while let Some(head) = self.record.queue.first() {
            let orphaned = head.upgrades.is_some_and(|token| self.grant_of(head.holder, token).is_none());
            let ended = has_ended(self.sessions, head.holder, self.holder, self.now);
            let fits = self.fits(head.holder, head.mode, head.upgrades);
            let block = TokenBlock::after(self.record.last_token, self.now.wall);
            match block.filter(|_| fits) {
                _ if orphaned || ended => {
                    self.record.queue.remove(0);
                    self.changed();
                }
                Some(block) => self.grant_head(block),
                None => break,
            }
        }
    }

    // Protocol: docs/protocol.md#q.
    fn grant_head(&mut self, block: TokenBlock) {
        let mut waiter = self.record.queue.remove(0);
        if let Some(at) = waiter.upgrades.and_then(|token| self.grant_of(waiter.holder, token)) {
            waiter.info = self.record.grants.remove(at).info;
        }
        self.changed();
        let previous = self.record.last_exclusive;
        self.record.last_token = block.last;
        if waiter.mode == Mode::Exclusive {
            self.record.last_exclusive = block.last;
        }
        let grant = waiter.into_grant(block, previous);
        // The sender learns of its own grant from the answer.
        if self.asked != Some(grant.request) || grant.holder != self.holder {
            self.promoted.push(Promotion::of(self.key, &grant));
        }
        self.record.grants.push(grant);
    }

    /// Whether a session could hold the key in this mode beside the present holders. An upgrade replaces the session's old grant.
    pub(super) fn fits(&self, holder: SessionId, mode: Mode, upgrades: Option<Token>) -> bool {
        let given = |grant: &Grant| grant.holder == holder && Some(grant.block.first) == upgrades;
        self.record.grants.iter().all(|grant| given(grant) || mode.fits(grant.mode))
    }

    fn enqueue(&mut self, ask: &Acquire) {
        let own = self.record.queue.iter().position(|waiter| self.is_own_place(waiter, ask.request));
        let steals = ask.way == Way::Steal;
        if own.is_some() && !steals {
            return;
        }
        self.changed();
        let waiter = match own {
            Some(at) => self.record.queue.remove(at),
            None => self.place_for(ask),
        };
        if steals {
            // The theft has freed the key, so the thief goes ahead of everybody in the queue, wherever it queued itself.
            self.record.queue.insert(0, waiter);
        } else {
            self.put_in_queue(waiter);
        }
    }

    fn put_in_queue(&mut self, waiter: Waiter) {
        self.record.queue.insert(self.place_of(waiter.rank()), waiter);
    }

    pub(super) fn place_of(&self, rank: Rank) -> usize {
        self.record.queue.partition_point(|queued| queued.rank() <= rank)
    }

    /// The queue entry that a request would get now.
    fn place_for(&self, ask: &Acquire) -> Waiter {
        Waiter {
            holder: self.holder,
            request: ask.request,
            mode: ask.mode,
            priority: ask.priority,
            ticket: self.record.revision,
            upgrades: ask.upgrades(),
            alone: ask.alone,
            info: ask.info.clone(),
            extra: Extra::default(),
        }
    }

    /// Moves a queue entry whose priority has changed.
    fn move_place(&mut self, at: usize, ask: &Acquire) {
        if self.record.queue[at].priority != ask.priority {
            let mut place = self.record.queue.remove(at);
            place.priority = ask.priority;
            self.put_in_queue(place);
            self.changed();
        }
    }

    fn remove_grant(&mut self, at: usize) {
        self.record.grants.remove(at);
        self.changed();
    }

    fn remove_grant_of(&mut self, request: RequestId) {
        if let Some(at) = self.own_grant(request) {
            self.remove_grant(at);
        }
    }

    fn remove_place(&mut self, request: RequestId) {
        let holder = self.holder;
        self.keep(&|_| true, &|waiter| (waiter.holder, waiter.request) != (holder, request));
    }

    pub(super) fn own_grant(&self, request: RequestId) -> Option<usize> {
        self.record.grants.iter().position(|grant| (grant.holder, grant.request) == (self.holder, request))
    }

    /// The grant with this token, if it belongs to this request.
    fn own_grant_of(&self, request: RequestId, token: Token) -> Option<usize> {
        self.own_grant(request).filter(|&at| self.record.grants[at].block.first == token)
    }

    fn grant_of(&self, holder: SessionId, token: Token) -> Option<usize> {
        self.record.grants.iter().position(|grant| (grant.holder, grant.block.first) == (holder, token))
    }

    /// The queue entry that a request already has: its own, or the one that all plain requests of a mode share.
    // Protocol: docs/protocol.md#a.
    fn own_place(&self, ask: &Acquire) -> Option<usize> {
        let is_common = !ask.alone && ask.upgrades().is_none();
        self.record.queue.iter().position(|waiter| {
            let common = is_common && !waiter.alone && waiter.upgrades.is_none() && waiter.mode == ask.mode;
            waiter.holder == self.holder && (waiter.request == ask.request || common)
        })
    }

    pub(super) fn is_own_place(&self, waiter: &Waiter, request: RequestId) -> bool {
        (waiter.holder, waiter.request) == (self.holder, request)
    }
}

/// Whether a session has ended. If it has expired by a trusted clock, this ends it. The sender itself counts as alive.
fn has_ended(sessions: &mut Sessions, session: SessionId, asker: SessionId, now: StoreNow) -> bool {
    if session != asker && sessions.is_over(session, now) {
        sessions.end(session);
    }
    sessions.has_ended(session)
}
