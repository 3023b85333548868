//! One operation at work on one record: what each action means.

use alloc::vec::Vec;

use super::{
    id::{Incarnation, RequestId},
    json::Extra,
    key::Key,
    mode::Mode,
    operation::{Acquire, Action, Answer, Granted, Outcome, Promotion, StoreNow, Way},
    record::{Entry, Grant, Rank, Record, Sighting, Waiter, rank},
    token::{Token, TokenBlock},
    tombstone::Graves,
};

/// The tokens of so many stolen grants are remembered.
const STOLEN_LIMIT: usize = 8;

/// One operation at work on one record.
pub(super) struct Work<'a> {
    key: &'a Key,
    record: &'a mut Record,
    graves: &'a Graves,
    holder: Incarnation,
    now: StoreNow,
    promoted: Vec<Promotion>,
    robbed: Vec<(Incarnation, Token)>,
}

impl<'a> Work<'a> {
    pub(super) fn new(
        key: &'a Key,
        (record, graves): (&'a mut Record, &'a Graves),
        holder: Incarnation,
        now: StoreNow,
    ) -> Self {
        Self { key, record, graves, holder, now, promoted: Vec::new(), robbed: Vec::new() }
    }

    pub(super) fn run(mut self, action: &Action) -> Answer {
        if !matches!(action, Action::Inspect | Action::Fence { .. }) {
            self.clean();
        }
        let mut outcome = match action {
            // It comes late: what it asks for belongs to nobody.
            Action::Acquire(_) if self.graves.hold(self.holder) => Outcome::Superseded,
            Action::Acquire(ask) => self.acquire(ask),
            Action::Renew { token, beat, beacon, lease_ms, refill } => {
                self.renew(*token, (*beat, *beacon, *lease_ms), *refill)
            }
            Action::Downgrade { token } => self.downgrade(*token),
            Action::Release { token, request } => self.release(*token, *request),
            Action::Withdraw { request } => self.withdraw(*request),
            Action::Evict { target, entry, beat } => self.evict(*target, *entry, *beat),
            Action::Inspect => return self.status().into(),
            Action::Fence { token, request } => return self.fence(*token, *request).into(),
            // Several keys are one operation of several works.
            Action::AcquireAll(_) => return Outcome::BusyAll(Vec::new()).into(),
        };
        self.promote();
        outcome.note_contention(!self.record.queue.is_empty());
        Answer { outcome, promoted: self.promoted, robbed: self.robbed }
    }

    /// Asked first, this enqueues; asked again, it renews the place or adopts the grant.
    fn acquire(&mut self, ask: &Acquire) -> Outcome {
        self.expire();
        if let Some(grant) = self.own_grant(ask.request) {
            return self.adopt(grant, ask);
        }
        let has_place = match self.own_place(ask) {
            Some(at) if self.record.queue[at].request > ask.request => return Outcome::Superseded,
            Some(at) if self.record.queue[at].request == ask.request => {
                self.renew_place(at, ask);
                true
            }
            // A place under an older request was abandoned.
            Some(at) => {
                self.record.queue.remove(at);
                self.changed();
                false
            }
            None => false,
        };
        // What ran out makes way for those who queue, before anybody is refused because of it. A thief robs it instead.
        if ask.way != Way::Steal {
            self.promote();
        }
        if self.own_grant(ask.request).is_none() {
            if let Some(refusal) = self.refusal(ask, has_place) {
                self.remove_place(ask.request);
                return refusal;
            }
            self.enqueue(ask);
            self.promote();
        }
        match self.own_grant(ask.request) {
            Some(grant) => self.adopt(grant, ask),
            None => Outcome::Waiting { last_token: self.record.last_token, ahead: self.ahead_of(ask) },
        }
    }

    /// Why a request that has no grant gets no place either; what stands in the way of a theft is removed.
    fn refusal(&mut self, ask: &Acquire, has_place: bool) -> Option<Outcome> {
        if TokenBlock::after(self.record.last_token, self.now.wall).is_none() {
            return Some(Outcome::Exhausted);
        }
        match ask.way {
            Way::Steal => self.rob(),
            Way::Upgrade(token) if self.grant_of(self.holder, token).is_none() => return Some(self.not_current(token)),
            Way::Upgrade(_) if !has_place && self.record.queue.iter().any(|waiter| waiter.upgrades.is_some()) => {
                return Some(Outcome::UpgradeConflict);
            }
            Way::Resume { from, token, request } => return Some(self.resume(from, token, request, ask)),
            Way::Upgrade(_) | Way::Plain => {}
        }
        let obstacles = if ask.wait || ask.way == Way::Steal { None } else { self.obstacles(ask) };
        obstacles.map(|ahead| Outcome::Busy { ahead })
    }

    /// Looks whether a request could be granted at once, and who stands in its way; and who else was granted.
    pub(super) fn look(mut self, ask: &Acquire) -> (Option<Vec<Sighting>>, Vec<Promotion>) {
        self.clean();
        self.expire();
        self.promote();
        (self.obstacles(ask), self.promoted)
    }

    /// Who keeps a request from being granted at once, if anybody does.
    fn obstacles(&self, ask: &Acquire) -> Option<Vec<Sighting>> {
        if self.own_grant(ask.request).is_some() {
            return None;
        }
        let ahead = self.ahead_of(ask);
        let queued = ahead.iter().any(|seen| matches!(seen.entry, Entry::Waiter(_)));
        let fits = self.fits(self.holder, ask.mode, ask.upgrades());
        (queued || !fits).then_some(ahead)
    }

    /// Adopting a grant is a renewal. It never shortens the lease, and an older beat changes nothing.
    fn adopt(&mut self, at: usize, ask: &Acquire) -> Outcome {
        let lease_ms = self.record.grants[at].lease_ms.max(ask.lease_ms);
        self.renew_grant(at, ask.beat, ask.beacon, lease_ms);
        let Grant { block, lease_ms, previous, .. } = self.record.grants[at];
        // The holder is told in this very answer.
        self.promoted.retain(|promotion| promotion.block != block);
        Outcome::Granted(Granted { block, lease_ms, previous, contended: false })
    }

    /// The grant goes over to this holder and request; its tokens stay.
    fn resume(&mut self, from: Incarnation, token: Token, request: RequestId, ask: &Acquire) -> Outcome {
        let left = self.grant_of(from, token).filter(|&at| self.record.grants[at].request == request);
        let Some(at) = left else { return self.not_current(token) };
        let grant = &mut self.record.grants[at];
        grant.holder = self.holder;
        grant.request = ask.request;
        grant.beat = 0;
        grant.instance.clone_from(&ask.instance);
        grant.info.clone_from(&ask.info);
        self.changed();
        self.adopt(at, ask)
    }

    fn renew(&mut self, token: Token, (beat, beacon, lease_ms): (u64, u64, u64), refill: bool) -> Outcome {
        let Some(at) = self.grant_of(self.holder, token) else { return self.not_current(token) };
        self.renew_grant(at, beat, beacon, lease_ms);
        let refill = if refill { self.refill(at) } else { None };
        Outcome::Renewed { lease_ms: self.record.grants[at].lease_ms, contended: false, refill }
    }

    /// Reserves more tokens for a grant; the first one stays its identity.
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

    fn downgrade(&mut self, token: Token) -> Outcome {
        let Some(at) = self.grant_of(self.holder, token) else { return self.not_current(token) };
        if self.record.grants[at].mode == Mode::Exclusive {
            self.record.grants[at].mode = Mode::Shared;
            self.changed();
        }
        Outcome::Downgraded
    }

    fn release(&mut self, token: Token, request: RequestId) -> Outcome {
        self.remove_place(request);
        match self.grant_of(self.holder, token) {
            Some(at) => {
                self.remove_grant(at);
                Outcome::Released
            }
            None => {
                // The request may have been granted anew since: it is withdrawn with every release.
                self.remove_grant_of(request);
                self.not_current(token)
            }
        }
    }

    fn withdraw(&mut self, request: RequestId) -> Outcome {
        self.remove_place(request);
        self.remove_grant_of(request);
        Outcome::Withdrawn
    }

    fn evict(&mut self, target: Incarnation, entry: Entry, beat: u64) -> Outcome {
        let found = match entry {
            Entry::Grant(token) => self.grant_of(target, token).filter(|&at| self.record.grants[at].beat == beat),
            Entry::Waiter(request) => (self.record.queue.iter())
                .position(|waiter| (waiter.holder, waiter.request, waiter.beat) == (target, request, beat)),
        };
        match (found, entry) {
            (None, _) => return Outcome::Moved,
            (Some(at), Entry::Grant(_)) => self.remove_grant(at),
            (Some(at), Entry::Waiter(_)) => {
                self.record.queue.remove(at);
                self.changed();
            }
        }
        Outcome::Evicted
    }

    fn status(&self) -> Outcome {
        let mut seen = self.record.clone();
        seen.clean(self.graves);
        Outcome::Status { last_token: seen.last_token, grants: seen.grants, queue: seen.queue }
    }

    fn fence(&self, token: Token, request: RequestId) -> Outcome {
        match self.own_grant(request) {
            Some(at) if self.record.grants[at].block.first == token && !self.graves.hold(self.holder) => {
                Outcome::Current
            }
            _ => self.not_current(token),
        }
    }

    fn not_current(&self, token: Token) -> Outcome {
        Outcome::NotCurrent { last_token: self.record.last_token, stolen: self.record.stolen.contains(&token) }
    }
}

/// What the actions are made of.
impl Work<'_> {
    fn changed(&mut self) {
        self.record.changed();
    }

    /// What those who are gone left does not count.
    fn clean(&mut self) {
        if self.record.clean(self.graves) {
            self.changed();
        }
    }

    /// What ran out by a clock that everybody shares is over at once.
    fn expire(&mut self) {
        let (now, holder) = (self.now, self.holder);
        let goes_on = |owner, deadline| owner == holder || !now.is_over(deadline);
        if self
            .record
            .keep(&|grant| goes_on(grant.holder, grant.deadline), &|waiter| goes_on(waiter.holder, waiter.deadline))
        {
            self.changed();
        }
    }

    /// Removes all grants; their holders are to be told.
    fn rob(&mut self) {
        for grant in &core::mem::take(&mut self.record.grants) {
            self.record.stolen.push(grant.block.first);
            self.robbed.push((grant.holder, grant.block.first));
            self.changed();
        }
        while self.record.stolen.len() > STOLEN_LIMIT {
            self.record.stolen.remove(0);
        }
    }

    /// Grants to whoever is first in line, as long as that fits. At rest the head of the queue is never grantable.
    fn promote(&mut self) {
        while let Some(head) = self.record.queue.first() {
            let orphaned = head.upgrades.is_some_and(|token| self.grant_of(head.holder, token).is_none());
            let over = self.now.is_over(head.deadline) && head.holder != self.holder;
            let fits = self.fits(head.holder, head.mode, head.upgrades);
            let block = TokenBlock::after(self.record.last_token, self.now.wall);
            match block.filter(|_| fits) {
                _ if orphaned => {
                    self.record.queue.remove(0);
                    self.changed();
                }
                Some(_) if over => {
                    self.record.queue.remove(0);
                    self.changed();
                }
                Some(block) => self.grant_head(block),
                None => break,
            }
        }
    }

    fn grant_head(&mut self, block: TokenBlock) {
        let mut waiter = self.record.queue.remove(0);
        if let Some(at) = waiter.upgrades.and_then(|token| self.grant_of(waiter.holder, token)) {
            waiter.info = self.record.grants.remove(at).info;
        }
        self.changed();
        // Who runs this very transaction is alive. An heir may be dead: its first lease is short, to cost little.
        let lease_ms = if waiter.holder == self.holder { waiter.lease_ms } else { waiter.heir_ms };
        let Waiter { holder, request, mode, .. } = waiter;
        let previous = self.record.last_exclusive;
        self.promoted.push(Promotion { key: self.key.clone(), holder, request, block, lease_ms, previous });
        self.record.last_token = block.last;
        if mode == Mode::Exclusive {
            self.record.last_exclusive = block.last;
        }
        self.record.grants.push(waiter.into_grant(block, previous, lease_ms, self.now));
    }

    /// Whether somebody could hold the key in this mode beside those who do. Who upgrades gives the old grant for it.
    fn fits(&self, holder: Incarnation, mode: Mode, upgrades: Option<Token>) -> bool {
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
            // A thief finds the key free, and goes before everybody who queues, wherever it queued itself.
            self.record.queue.insert(0, waiter);
        } else {
            self.put_in_queue(waiter);
        }
    }

    fn put_in_queue(&mut self, waiter: Waiter) {
        self.record.queue.insert(self.place_of(waiter.rank()), waiter);
    }

    fn place_of(&self, rank: Rank) -> usize {
        self.record.queue.partition_point(|queued| queued.rank() <= rank)
    }

    /// The place that a request would get now.
    fn place_for(&self, ask: &Acquire) -> Waiter {
        Waiter {
            holder: self.holder,
            instance: ask.instance.clone(),
            request: ask.request,
            mode: ask.mode,
            priority: ask.priority,
            ticket: self.record.revision,
            upgrades: ask.upgrades(),
            alone: ask.alone,
            beat: ask.beat,
            beacon: ask.beacon,
            lease_ms: ask.lease_ms,
            heir_ms: ask.heir_ms,
            deadline: self.now.deadline(ask.lease_ms),
            info: ask.info.clone(),
            extra: Extra::default(),
        }
    }

    fn renew_place(&mut self, at: usize, ask: &Acquire) {
        let place = &mut self.record.queue[at];
        if ask.beat <= place.beat {
            return;
        }
        place.beat = ask.beat;
        place.beacon = ask.beacon;
        place.lease_ms = ask.lease_ms;
        place.heir_ms = ask.heir_ms;
        place.deadline = self.now.deadline(ask.lease_ms);
        place.priority = ask.priority;
        let place = self.record.queue.remove(at);
        self.put_in_queue(place);
        self.changed();
    }

    fn renew_grant(&mut self, at: usize, beat: u64, beacon: u64, lease_ms: u64) {
        let grant = &mut self.record.grants[at];
        if beat > grant.beat {
            grant.beat = beat;
            grant.beacon = beacon;
            grant.lease_ms = lease_ms;
            grant.renewed_at = self.now.wall;
            grant.expires_at = self.now.wall.plus(lease_ms);
            grant.deadline = self.now.deadline(lease_ms);
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
        if self.record.keep(&|_| true, &|waiter| (waiter.holder, waiter.request) != (holder, request)) {
            self.changed();
        }
    }

    fn own_grant(&self, request: RequestId) -> Option<usize> {
        self.record.grants.iter().position(|grant| (grant.holder, grant.request) == (self.holder, request))
    }

    fn grant_of(&self, holder: Incarnation, token: Token) -> Option<usize> {
        self.record.grants.iter().position(|grant| (grant.holder, grant.block.first) == (holder, token))
    }

    /// The place that a request has already: its own, or the one that all plain requests of a mode share.
    fn own_place(&self, ask: &Acquire) -> Option<usize> {
        let is_common = !ask.alone && ask.upgrades().is_none();
        self.record.queue.iter().position(|waiter| {
            let common = is_common && !waiter.alone && waiter.upgrades.is_none() && waiter.mode == ask.mode;
            waiter.holder == self.holder && (waiter.request == ask.request || common)
        })
    }

    fn is_own_place(&self, waiter: &Waiter, request: RequestId) -> bool {
        (waiter.holder, waiter.request) == (self.holder, request)
    }

    /// Who stands before a request, or would if it queued now.
    fn ahead_of(&self, ask: &Acquire) -> Vec<Sighting> {
        let twin = |holder, instance: &str| holder != self.holder && !instance.is_empty() && instance == ask.instance;
        let mut ahead = Vec::new();
        for grant in &self.record.grants {
            if grant.holder != self.holder || Some(grant.block.first) != ask.upgrades() {
                let mut seen = Sighting::from(grant);
                seen.twin = twin(grant.holder, &grant.instance);
                ahead.push(seen);
            }
        }
        let is_own = |waiter: &Waiter| self.is_own_place(waiter, ask.request);
        let own = self.record.queue.iter().position(is_own);
        let last = own.unwrap_or_else(|| self.place_of(rank(ask.upgrades(), ask.priority, self.record.revision)));
        for waiter in &self.record.queue[..last] {
            ahead.push(Sighting::from(waiter));
        }
        ahead
    }
}

impl Acquire {
    /// The shared grant that the request gives for an exclusive one.
    pub(super) fn upgrades(&self) -> Option<Token> {
        match self.way {
            Way::Upgrade(token) => Some(token),
            Way::Plain | Way::Steal | Way::Resume { .. } => None,
        }
    }
}

impl Waiter {
    fn into_grant(self, block: TokenBlock, previous: Token, lease_ms: u64, now: StoreNow) -> Grant {
        Grant {
            holder: self.holder,
            instance: self.instance,
            request: self.request,
            mode: self.mode,
            block,
            previous,
            beat: self.beat,
            beacon: self.beacon,
            lease_ms,
            renewed_at: now.wall,
            expires_at: now.wall.plus(lease_ms),
            deadline: now.deadline(lease_ms),
            info: self.info,
            extra: self.extra,
        }
    }
}
