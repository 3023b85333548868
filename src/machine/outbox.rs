//! Operations on their way: one transaction in flight per context, the rest waits and goes together.

use alloc::vec::Vec;

use super::{
    Machine,
    failure::StoreError,
    id::RequestId,
    key::Key,
    operation::{Acquire, Action, Batch, Operation},
    place::{Place, Seeking},
    port::{Output, Slot, TurnId},
    time::{Monotonic, earliest},
    token::Token,
};

/// Late answers of so many transactions are still looked at.
const REMEMBERED: usize = 4;

/// One operation, and who wants to know.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Errand {
    pub(super) slot: Slot,
    /// Of a request for several keys: where each of them stands.
    pub(super) all: Vec<Slot>,
    pub(super) action: Action,
    pub(super) turn: Option<TurnId>,
    pub(super) attempts: u32,
    pub(super) since: Monotonic,
    /// Sent for the heartbeat.
    pub(super) beat: bool,
    /// Of a release: until when the lease was believed in, and whether an attempt without an answer may have given it
    /// back before that.
    pub(super) believed_until: Monotonic,
    pub(super) maybe_released: bool,
    /// Of a release: somebody waits to hear of it.
    pub(super) tells: bool,
    /// Of a try: it looks for the second time.
    pub(super) looked: bool,
}

impl Errand {
    /// Whether it is about this slot.
    pub(super) fn concerns(&self, slot: &Slot) -> bool {
        self.slot == *slot || self.all.contains(slot)
    }

    /// Whether it may have written something by now: a request does only if it was sent.
    fn writes(&self, sent: bool) -> bool {
        match self.action {
            Action::Inspect | Action::Evict { .. } | Action::Fence { .. } => false,
            Action::Acquire(_) | Action::AcquireAll(_) => sent,
            _ => true,
        }
    }
}

/// When something was sent, and by which transaction: two moments of a clock that stood still are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sent {
    pub(super) at: Monotonic,
    pub(super) flight: u64,
}

/// A transaction that was sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Flight {
    pub(super) sent: Sent,
    pub(super) errands: Vec<Errand>,
    limit: Monotonic,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Outbox {
    waiting: Vec<Errand>,
    /// What failed goes again together, or every errand would be a transaction of its own.
    later: Vec<Errand>,
    retry_at: Option<Monotonic>,
    flight: Option<Flight>,
    /// Transactions that did not answer in time.
    overdue: Vec<Flight>,
    last_id: u64,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.later.is_empty() && self.flight.is_none()
    }

    /// Gives up everything.
    pub(super) fn drain(&mut self) -> Vec<Errand> {
        let mut given_up = core::mem::replace(self, Self { last_id: self.last_id, ..Self::default() });
        let mut errands = given_up.waiting;
        errands.append(&mut given_up.later);
        if let Some(mut flight) = given_up.flight {
            errands.append(&mut flight.errands);
        }
        errands
    }

    /// What is in flight is no longer waited for, and waits to be sent again.
    pub(super) fn ground(&mut self) {
        let Some(flight) = self.flight.take() else { return };
        for errand in &flight.errands {
            let mut errand = errand.clone();
            errand.maybe_released = true;
            self.waiting.push(errand);
        }
        self.remember(flight);
    }

    fn remember(&mut self, flight: Flight) {
        self.overdue.push(flight);
        if self.overdue.len() > REMEMBERED {
            self.overdue.remove(0);
        }
    }

    /// Takes what waits to be sent, but for what is to be sent all the same.
    pub(super) fn take_unless(&mut self, stays: impl Fn(&Action) -> bool) -> Vec<Errand> {
        self.waiting.append(&mut self.later);
        self.retry_at = None;
        take(&mut self.waiting, &|errand| !stays(&errand.action))
    }

    pub(super) fn push(&mut self, slot: &Slot, action: Action, turn: Option<TurnId>, now: Monotonic) -> &mut Errand {
        let last = self.waiting.len();
        self.waiting.push(Errand {
            slot: slot.clone(),
            all: Vec::new(),
            action,
            turn,
            attempts: 0,
            since: now,
            beat: false,
            believed_until: Monotonic::default(),
            maybe_released: false,
            tells: false,
            looked: false,
        });
        &mut self.waiting[last]
    }

    /// The transaction that was sent last.
    pub(super) fn last_flight(&self) -> u64 {
        self.last_id
    }

    /// What waits to be sent now is a heartbeat, whatever it was before.
    pub(super) fn mark_beats(&mut self) {
        for errand in &mut self.waiting {
            errand.beat |= matches!(errand.action, Action::Renew { .. } | Action::Acquire(_));
        }
    }

    /// Whether something failed and is to be tried again.
    pub(super) fn retries(&self) -> bool {
        !self.later.is_empty()
    }

    pub(super) fn next_wake(&self) -> Option<Monotonic> {
        let limit = self.flight.as_ref().map(|flight| flight.limit);
        earliest(&[self.retry_at, limit])
    }

    /// Something is sent in a transaction that is none of ours. It gets a number as ours do, if it counts for a lease.
    pub(super) fn sent_elsewhere(&mut self, now: Monotonic, counts: bool) -> Sent {
        self.last_id += u64::from(counts);
        Sent { at: now, flight: self.last_id }
    }

    /// What is under way, and since when.
    pub(super) fn in_flight(&self) -> Option<(Sent, &[Errand])> {
        self.flight.as_ref().map(|flight| (flight.sent, &flight.errands[..]))
    }

    /// Takes the transaction with this number, and whether it was overdue.
    pub(super) fn land(&mut self, id: u64) -> Option<(Flight, bool)> {
        if let Some(flight) = self.flight.take_if(|flight| flight.sent.flight == id) {
            return Some((flight, false));
        }
        let at = self.overdue.iter().position(|flight| flight.sent.flight == id)?;
        Some((self.overdue.remove(at), true))
    }

    fn give_up(&mut self, now: Monotonic) -> Option<Flight> {
        let flight = self.flight.take_if(|flight| flight.limit <= now)?;
        self.remember(flight.clone());
        Some(flight)
    }

    /// Whether a heartbeat is on its way.
    pub(super) fn carries_beats(&self) -> bool {
        any(&[&self.waiting, self.flying()], &|errand| errand.beat)
    }

    pub(super) fn carries(&self, slot: &Slot, is_it: impl Fn(&Action) -> bool) -> bool {
        let lists: [&[Errand]; 3] = [&self.waiting, &self.later, self.flying()];
        any(&lists, &|errand| errand.concerns(slot) && is_it(&errand.action))
    }

    /// Whether something for the key is still to be sent, whatever its slot.
    pub(super) fn will_send_for(&self, key: &Key, is_it: impl Fn(&Action) -> bool) -> bool {
        any(&[&self.waiting, &self.later], &|errand| errand.slot.key == *key && is_it(&errand.action))
    }

    /// Takes what was not sent yet, and is like this.
    fn take_unsent(&mut self, is_it: &dyn Fn(&Errand) -> bool) -> Vec<Errand> {
        let mut taken = take(&mut self.waiting, is_it);
        taken.append(&mut take(&mut self.later, is_it));
        taken
    }

    /// Takes back what was not sent yet.
    pub(super) fn recall(&mut self, slot: &Slot, is_it: impl Fn(&Action) -> bool) -> Vec<Errand> {
        self.take_unsent(&|errand| errand.slot == *slot && is_it(&errand.action))
    }

    /// Takes back what was not sent yet and nobody asked about.
    pub(super) fn recall_plain(&mut self, slot: &Slot, is_it: impl Fn(&Action) -> bool) {
        self.take_unsent(&|errand| errand.turn.is_none() && errand.slot == *slot && is_it(&errand.action));
    }

    /// Takes back all renewals that were not sent yet and nobody asked about: all are about to be sent anew.
    pub(super) fn drop_plain_renewals(&mut self) {
        self.take_unsent(&|errand| errand.turn.is_none() && matches!(errand.action, Action::Renew { .. }));
    }

    /// A try goes once more, at this time at the latest.
    pub(super) fn look_again(&mut self, errand: Errand, at: Monotonic) {
        self.retry_at = earliest(&[self.retry_at, Some(at)]);
        self.later.push(errand);
    }

    /// A try that waits to look at this key again does so now.
    pub(super) fn hurry(&mut self, key: &Key) {
        let mut looks =
            take(&mut self.later, &|errand| errand.looked && errand.all.iter().any(|slot| slot.key == *key));
        self.waiting.append(&mut looks);
        self.retry_at = self.retry_at.filter(|_| !self.later.is_empty());
    }

    /// The keys that something was written to and whose answer is not known. A request that was not sent yet is not among
    /// them; who gives something up has written before.
    pub(super) fn written_keys(&self) -> Vec<Key> {
        let mut keys = Vec::new();
        let mut note = |errands: &[Errand], sent: bool| {
            for errand in errands.iter().filter(|errand| errand.writes(sent)) {
                keys.push(errand.slot.key.clone());
                for slot in &errand.all {
                    keys.push(slot.key.clone());
                }
            }
        };
        note(&self.waiting, false);
        note(&self.later, false);
        note(self.flying(), true);
        for flight in &self.overdue {
            note(&flight.errands, true);
        }
        keys
    }

    fn flying(&self) -> &[Errand] {
        self.flight.as_ref().map_or(&[], |flight| &flight.errands)
    }

    fn collect_due(&mut self, now: Monotonic) {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            self.waiting.append(&mut self.later);
        }
    }
}

impl Machine {
    /// Sends what waits, unless a transaction is in flight.
    pub(super) fn flush(&mut self, now: Monotonic) {
        self.outbox.collect_due(now);
        if self.outbox.flight.is_some() || self.presence.is_rising() {
            return;
        }
        let mut errands = core::mem::take(&mut self.outbox.waiting);
        take(&mut errands, &|errand| !self.is_current(errand));
        if errands.is_empty() {
            return;
        }
        self.outbox.last_id += 1;
        let sent = Sent { at: now, flight: self.outbox.last_id };
        let mut operations = Vec::with_capacity(errands.len());
        for errand in &mut errands {
            operations.push(self.stamp(errand, sent));
            if errand.beat {
                self.last_heartbeat = now;
            }
        }
        let limit = now.plus(self.config.store_timeout_ms);
        self.outbox.flight = Some(Flight { sent, errands, limit });
        self.emit(Output::Store { id: sent.flight, batch: Batch(operations) });
    }

    /// What changed its sense while it waited is not sent.
    fn is_current(&self, errand: &Errand) -> bool {
        let place = self.places.get(&errand.slot);
        let seeks = |slot: &Slot, request| {
            self.places.get(slot).and_then(Place::seeking).is_some_and(|seeking| seeking.request == request)
        };
        match &errand.action {
            Action::Acquire(ask) => seeks(&errand.slot, ask.request),
            Action::AcquireAll(asks) => errand.all.iter().zip(asks).all(|(slot, (_, ask))| seeks(slot, ask.request)),
            Action::Renew { token, .. } if self.is_detached(&errand.slot.key, *token) => true,
            Action::Renew { token, .. } | Action::Downgrade { token } => {
                errand.turn.is_some() || place.and_then(Place::held).is_some_and(|held| held.grant == *token)
            }
            Action::Evict { .. } => place.and_then(Place::seeking).is_some(),
            Action::Release { .. } | Action::Withdraw { .. } | Action::Inspect | Action::Fence { .. } => true,
        }
    }

    /// Fills in what must be true at the time of sending: beat and beacon, and how long a lease is to last.
    fn stamp(&mut self, errand: &mut Errand, sent: Sent) -> Operation {
        let (next_beat, flag) = (self.next_beat(), self.presence.flag());
        match &mut errand.action {
            Action::Acquire(ask) => self.stamp_ask(&errand.slot, ask, (next_beat, flag), sent),
            Action::AcquireAll(asks) => {
                for (slot, (_, ask)) in errand.all.iter().zip(asks) {
                    self.stamp_ask(slot, ask, (next_beat, flag), sent);
                }
            }
            Action::Renew { token, beat, beacon, lease_ms, refill } => {
                let stays = self.is_detached(&errand.slot.key, *token);
                (*beat, *beacon) = (next_beat, if stays { 0 } else { flag });
                (*lease_ms, *refill) = self.renewal_lease_ms(&errand.slot, sent);
            }
            _ => {}
        }
        Operation { key: errand.slot.key.clone(), holder: self.me, action: errand.action.clone() }
    }

    fn stamp_ask(&mut self, slot: &Slot, ask: &mut Acquire, (beat, beacon): (u64, u64), sent: Sent) {
        (ask.beat, ask.beacon) = (beat, beacon);
        let seeking = self.places.change_seeking(slot);
        if let Some(Seeking { first_sent, .. }) = seeking.filter(|seeking| seeking.request == ask.request) {
            first_sent.get_or_insert(sent);
        }
    }

    /// Past its time limit, the outcome of a transaction is unknown until it is read back.
    pub(super) fn give_up_on_silent_store(&mut self, now: Monotonic) {
        if let Some(flight) = self.outbox.give_up(now) {
            let limit_ms = self.config.store_timeout_ms;
            let error = StoreError::unknown(alloc::format!("no answer within {limit_ms} ms"));
            self.failed(&flight, &error, now);
        }
    }

    /// Tries again later, with all else that failed; after twice as long each time, with jitter, capped by the
    /// heartbeat.
    pub(super) fn retry(&mut self, errand: &Errand, now: Monotonic) {
        let cap_ms = (self.config.heartbeat_ms / 2).max(1);
        let delay_ms = (50_u64 << errand.attempts.min(10)).min(cap_ms);
        let jitter_ms = self.dice.below(delay_ms / 2 + 1);
        self.outbox.retry_at.get_or_insert_with(|| now.plus(delay_ms - jitter_ms));
        let mut again = errand.clone();
        again.attempts += 1;
        self.outbox.later.push(again);
    }
}

/// Takes the errands that are like this out of a list.
fn take(errands: &mut Vec<Errand>, is_it: &dyn Fn(&Errand) -> bool) -> Vec<Errand> {
    let mut taken = Vec::new();
    if errands.iter().any(is_it) {
        for errand in core::mem::take(errands) {
            if is_it(&errand) { taken.push(errand) } else { errands.push(errand) }
        }
    }
    taken
}

fn any(lists: &[&[Errand]], is_it: &dyn Fn(&Errand) -> bool) -> bool {
    lists.iter().any(|list| list.iter().any(is_it))
}

pub(super) fn is_renewal_of(token: Token) -> impl Fn(&Action) -> bool {
    move |action| matches!(action, Action::Renew { token: renewed, .. } if *renewed == token)
}

pub(super) fn is_ask_for(request: RequestId) -> impl Fn(&Action) -> bool {
    move |action| matches!(action, Action::Acquire(acquire) if acquire.request == request)
}
