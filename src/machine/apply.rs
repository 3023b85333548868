//! The only code that grants, queues, promotes, renews, evicts or refuses. Every store runs it in one transaction.

use alloc::vec::Vec;

use super::{
    codec::Unreadable,
    id::{Incarnation, RequestId},
    json::Extra,
    operation::{Acquire, Action, Answer, Batch, Operation, Outcome, Promotion, StoreNow},
    record::{Entry, Grant, Record, Sighting, Waiter},
    records::Records,
    token::{Token, TokenBlock},
};

impl Batch {
    /// Applies all operations in order.
    pub fn apply(&self, records: &mut Records, now: StoreNow) -> Vec<Answer> {
        self.0.iter().map(|operation| operation.apply(records, now)).collect()
    }
}

impl Operation {
    /// Applies the operation to its key's record, and promotes who is next.
    pub fn apply(&self, records: &mut Records, now: StoreNow) -> Answer {
        match records.record(&self.key) {
            Ok(record) => Work { record, holder: self.holder, now, promoted: Vec::new() }.run(&self.action),
            Err(unreadable) => Answer::from(Outcome::Unreadable(unreadable)),
        }
    }
}

impl From<Outcome> for Answer {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, promoted: Vec::new() }
    }
}

impl From<Unreadable> for Answer {
    fn from(unreadable: Unreadable) -> Self {
        Self::from(Outcome::Unreadable(unreadable))
    }
}

/// One operation at work on one record.
struct Work<'a> {
    record: &'a mut Record,
    holder: Incarnation,
    now: StoreNow,
    promoted: Vec<Promotion>,
}

impl Work<'_> {
    fn run(mut self, action: &Action) -> Answer {
        let outcome = match action {
            Action::Acquire(acquire) => self.acquire(acquire),
            Action::Renew { token, beat, beacon, lease_ms } => self.renew(*token, *beat, *beacon, *lease_ms),
            Action::Release { token, request } => self.release(*token, *request),
            Action::Withdraw { request } => self.withdraw(*request),
            Action::Evict { target, entry, beat } => self.evict(*target, *entry, *beat),
            Action::Inspect => return Answer::from(self.status()),
        };
        self.promote();
        let contended = !self.record.queue.is_empty();
        Answer { outcome: outcome.with_contention(contended), promoted: self.promoted }
    }

    /// Asked first, this enqueues; asked again, it renews the place or adopts the grant.
    fn acquire(&mut self, ask: &Acquire) -> Outcome {
        self.expire();
        if let Some(grant) = self.own_grant(ask.request) {
            return self.adopt(grant, ask);
        }
        match self.record.queue.iter().position(|waiter| waiter.holder == self.holder) {
            Some(at) if self.record.queue[at].request > ask.request => return Outcome::Superseded,
            Some(at) if self.record.queue[at].request == ask.request => self.renew_place(at, ask),
            // A place under an older request was abandoned.
            Some(at) => {
                self.record.queue.remove(at);
                self.changed();
            }
            None => {}
        }
        if TokenBlock::after(self.record.last_token, self.now.wall).is_none() {
            self.remove_place(ask.request);
            return Outcome::Exhausted;
        }
        let free = self.record.grants.is_empty() && self.record.queue.is_empty();
        if !ask.wait && !free {
            return Outcome::Busy { ahead: self.ahead_of(ask.request) };
        }
        self.enqueue(ask);
        self.promote();
        match self.own_grant(ask.request) {
            Some(grant) => self.adopt(grant, ask),
            None => Outcome::Waiting { last_token: self.record.last_token, ahead: self.ahead_of(ask.request) },
        }
    }

    /// Adopting a grant is a renewal. It never shortens the lease, and an older beat changes nothing.
    fn adopt(&mut self, at: usize, ask: &Acquire) -> Outcome {
        let lease_ms = self.record.grants[at].lease_ms.max(ask.lease_ms);
        self.renew_grant(at, ask.beat, ask.beacon, lease_ms);
        let grant = &self.record.grants[at];
        // The holder is told in this very answer.
        self.promoted.retain(|promotion| promotion.block != grant.block);
        Outcome::Granted { block: grant.block, lease_ms: grant.lease_ms, contended: false }
    }

    fn renew(&mut self, token: Token, beat: u64, beacon: u64, lease_ms: u64) -> Outcome {
        let Some(at) = self.grant_of(self.holder, token) else { return self.not_current() };
        self.renew_grant(at, beat, beacon, lease_ms);
        Outcome::Renewed { lease_ms: self.record.grants[at].lease_ms, contended: false }
    }

    fn release(&mut self, token: Token, request: RequestId) -> Outcome {
        self.remove_place(request);
        match self.grant_of(self.holder, token) {
            Some(at) => {
                self.remove_grant(at);
                Outcome::Released
            }
            None => self.not_current(),
        }
    }

    fn withdraw(&mut self, request: RequestId) -> Outcome {
        self.remove_place(request);
        if let Some(at) = self.own_grant(request) {
            self.remove_grant(at);
        }
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
        Outcome::Status {
            last_token: self.record.last_token,
            grants: self.record.grants.clone(),
            queue: self.record.queue.clone(),
        }
    }

    fn not_current(&self) -> Outcome {
        Outcome::NotCurrent { last_token: self.record.last_token }
    }

    // ---- what the operations are made of

    /// Tells stores to write the record. Whatever number a record came with, the next one differs.
    fn changed(&mut self) {
        self.record.revision = self.record.revision.wrapping_add(1);
    }

    /// What ran out by a clock that everybody shares is over at once.
    fn expire(&mut self) {
        let (now, holder) = (self.now, self.holder);
        let entries = self.record.grants.len() + self.record.queue.len();
        self.record.grants.retain(|grant| grant.holder == holder || !now.is_over(grant.deadline));
        self.record.queue.retain(|waiter| waiter.holder == holder || !now.is_over(waiter.deadline));
        if self.record.grants.len() + self.record.queue.len() < entries {
            self.changed();
        }
    }

    /// Grants to whoever is first in line, as long as that fits. At rest the head of the queue is never grantable.
    fn promote(&mut self) {
        while self.record.grants.is_empty() && !self.record.queue.is_empty() {
            let Some(block) = TokenBlock::after(self.record.last_token, self.now.wall) else { break };
            let waiter = self.record.queue.remove(0);
            self.changed();
            if self.now.is_over(waiter.deadline) && waiter.holder != self.holder {
                continue;
            }
            // Who runs this very transaction is alive. An heir may be dead: its first lease is short, to cost little.
            let lease_ms = if waiter.holder == self.holder { waiter.lease_ms } else { waiter.heir_ms };
            let Waiter { holder, request, .. } = waiter;
            self.promoted.push(Promotion { holder, request, block, lease_ms });
            self.record.last_token = block.last;
            self.record.grants.push(waiter.into_grant(block, lease_ms, self.now));
        }
    }

    fn enqueue(&mut self, ask: &Acquire) {
        if self.record.queue.iter().any(|waiter| self.is_own_place(waiter, ask.request)) {
            return;
        }
        self.changed();
        self.record.queue.push(Waiter {
            holder: self.holder,
            request: ask.request,
            ticket: self.record.revision,
            beat: ask.beat,
            beacon: ask.beacon,
            lease_ms: ask.lease_ms,
            heir_ms: ask.heir_ms,
            deadline: self.now.deadline(ask.lease_ms),
            info: ask.info.clone(),
            extra: Extra::default(),
        });
    }

    fn renew_place(&mut self, at: usize, ask: &Acquire) {
        let place = &mut self.record.queue[at];
        if ask.beat > place.beat {
            place.beat = ask.beat;
            place.beacon = ask.beacon;
            place.lease_ms = ask.lease_ms;
            place.heir_ms = ask.heir_ms;
            place.deadline = self.now.deadline(ask.lease_ms);
            self.changed();
        }
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

    fn remove_place(&mut self, request: RequestId) {
        let places = self.record.queue.len();
        let holder = self.holder;
        self.record.queue.retain(|waiter| (waiter.holder, waiter.request) != (holder, request));
        if self.record.queue.len() < places {
            self.changed();
        }
    }

    fn own_grant(&self, request: RequestId) -> Option<usize> {
        self.record.grants.iter().position(|grant| (grant.holder, grant.request) == (self.holder, request))
    }

    fn grant_of(&self, holder: Incarnation, token: Token) -> Option<usize> {
        self.record.grants.iter().position(|grant| (grant.holder, grant.block.first) == (holder, token))
    }

    fn is_own_place(&self, waiter: &Waiter, request: RequestId) -> bool {
        (waiter.holder, waiter.request) == (self.holder, request)
    }

    fn ahead_of(&self, request: RequestId) -> Vec<Sighting> {
        let queue = self.record.queue.iter().take_while(|waiter| !self.is_own_place(waiter, request));
        self.record.grants.iter().map(Sighting::from).chain(queue.map(Sighting::from)).collect()
    }
}

impl Waiter {
    fn into_grant(self, block: TokenBlock, lease_ms: u64, now: StoreNow) -> Grant {
        Grant {
            holder: self.holder,
            request: self.request,
            block,
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

impl Outcome {
    fn with_contention(mut self, others: bool) -> Self {
        if let Self::Granted { contended, .. } | Self::Renewed { contended, .. } = &mut self {
            *contended = others;
        }
        self
    }
}
