//! Operations on their way: one transaction in flight per context, the rest waits and goes together.

use alloc::vec::Vec;

use super::{
    Machine,
    cohort::Place,
    config::silence_ms,
    failure::StoreError,
    id::{RequestId, SessionId},
    input::{Slot, TurnId},
    key::Key,
    output::Command,
    record::{Acquire, Action, Batch, Ending, Operation, SessionStep, Way},
    time::{Monotonic, earliest},
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
    /// Of a release: until when the lease was believed in, and whether an attempt without an answer may have given it
    /// back before that.
    pub(super) believed_until: Monotonic,
    pub(super) maybe_released: bool,
    /// Of a release: who waits to hear of it.
    pub(super) tells: Option<SessionId>,
    /// Of a try: it looks for the second time.
    pub(super) looked: bool,
    /// It fails for so long that nobody waits for it any more.
    pub(super) is_late: bool,
    /// The store refused it for good. It goes alone from then on, or all that went along would fail with it.
    pub(super) is_refused: bool,
}

impl Errand {
    /// Whether it is about this slot.
    pub(super) fn concerns(&self, slot: &Slot) -> bool {
        self.slot == *slot || self.all.contains(slot)
    }

    /// The same, of which nobody waits to hear.
    pub(super) fn unasked(&self) -> Self {
        Self { turn: None, ..self.clone() }
    }

    /// Whether it asks for a lease: that opens a session where there is none.
    fn acquires(&self) -> bool {
        matches!(self.action, Action::Acquire(_) | Action::AcquireAll(_))
    }

    /// Whether the end of the session does the same, and nobody waits to hear of it.
    fn ends_with_session(&self) -> bool {
        self.turn.is_none() && matches!(self.action, Action::Release { .. } | Action::Withdraw { .. })
    }

    /// Whether it says something about a session. A look at a key does not.
    pub(super) fn is_of_session(&self) -> bool {
        !matches!(self.action, Action::Inspect)
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
    /// Whose it is.
    pub(super) session: SessionId,
    /// Whether it opens that session.
    pub(super) opens: bool,
    /// The lease that its heartbeat asks for, in ms, if it carries one.
    pub(super) lease_ms: Option<u64>,
    /// The sessions that it ends.
    pub(super) ends: Vec<Ending>,
    pub(super) errands: Vec<Errand>,
    limit: Monotonic,
}

impl Flight {
    /// Whether its answer must find the session's row.
    pub(super) fn is_of_session(&self) -> bool {
        self.lease_ms.is_some() || self.errands.iter().any(Errand::is_of_session)
    }
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
    /// Whether nothing is under way, and nothing waits but what the end of the session does as well.
    pub(super) fn ends_with_session(&self) -> bool {
        let is_over = |errand: &Errand| errand.is_refused && errand.ends_with_session();
        self.later.iter().all(is_over) && self.flight.is_none() && self.waiting.iter().all(Errand::ends_with_session)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.later.is_empty() && self.flight.is_none()
    }

    /// Whether there is nothing for which the session must go on.
    pub(super) fn is_idle(&self) -> bool {
        let lists: [&[Errand]; 3] = [&self.waiting, &self.later, self.flying()];
        !any(&lists, &|errand| !(errand.is_refused && errand.ends_with_session())) && !self.carries_beat()
    }

    /// Gives up everything.
    pub(super) fn drain(&mut self) -> Vec<Errand> {
        let overdue = core::mem::take(&mut self.overdue);
        let mut given_up = core::mem::replace(self, Self { last_id: self.last_id, overdue, ..Self::default() });
        let mut errands = given_up.waiting;
        errands.append(&mut given_up.later);
        if let Some(flight) = given_up.flight {
            errands.extend_from_slice(&flight.errands);
            self.remember(flight);
        }
        errands
    }

    /// Whether a session is being opened.
    pub(super) fn opens(&self) -> bool {
        self.flight.as_ref().is_some_and(|flight| flight.opens)
    }

    fn remember(&mut self, flight: Flight) {
        self.overdue.push(flight);
        if self.overdue.len() > REMEMBERED {
            self.overdue.remove(0);
        }
    }

    pub(super) fn push(&mut self, slot: &Slot, action: Action, turn: Option<TurnId>, now: Monotonic) -> &mut Errand {
        let last = self.waiting.len();
        // Mostly it goes alone.
        self.waiting.reserve_exact(usize::from(last == 0));
        self.waiting.push(Errand {
            slot: slot.clone(),
            all: Vec::new(),
            action,
            turn,
            attempts: 0,
            since: now,
            believed_until: Monotonic::default(),
            maybe_released: false,
            tells: None,
            looked: false,
            is_late: false,
            is_refused: false,
        });
        &mut self.waiting[last]
    }

    /// The transaction that was sent last.
    pub(super) fn last_flight(&self) -> u64 {
        self.last_id
    }

    /// Whether something failed and is to be tried again, whoever else has gone.
    pub(super) fn retries(&self) -> bool {
        self.later.iter().any(|errand| !errand.is_late)
    }

    pub(super) fn next_wake(&self) -> Option<Monotonic> {
        let limit = self.flight.as_ref().map(|flight| flight.limit);
        earliest(&[self.retry_at, limit])
    }

    /// What is known now was known after this.
    pub(super) fn last_sent(&self, now: Monotonic) -> Sent {
        Sent { at: now, flight: self.last_id }
    }

    /// Something is sent in a transaction that is none of ours. It gets a number as ours do, if it counts for a lease.
    pub(super) fn sent_elsewhere(&mut self, now: Monotonic, counts: bool) -> Sent {
        self.last_id += u64::from(counts);
        Sent { at: now, flight: self.last_id }
    }

    /// What is under way.
    pub(super) fn in_flight(&self) -> Option<&Flight> {
        self.flight.as_ref()
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

    /// A key at which something of the session is still under way.
    pub(super) fn any_key(&self) -> Option<&Key> {
        let lists: [&[Errand]; 3] = [&self.waiting, &self.later, self.flying()];
        let mut errands = lists.into_iter().flatten();
        errands.find(|errand| errand.is_of_session()).map(|errand| &errand.slot.key)
    }

    /// Whether a heartbeat is on its way.
    pub(super) fn carries_beat(&self) -> bool {
        self.flight.as_ref().is_some_and(|flight| flight.lease_ms.is_some())
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

    /// Takes back what was not sent yet and makes sense in one session only. Requests go with the next one.
    fn recall_all_of_session(&mut self) -> Vec<Errand> {
        self.take_unsent(&|errand| errand.is_of_session() && !errand.acquires())
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
    /// Drops what changed its sense while it waited, before anybody looks whether there is anything left to send.
    pub(super) fn drop_obsolete(&mut self, now: Monotonic) {
        self.outbox.collect_due(now);
        if self.may_send() {
            let mut errands = core::mem::take(&mut self.outbox.waiting);
            take(&mut errands, &|errand| !self.is_current(errand));
            self.outbox.waiting = errands;
        }
    }

    /// Sends what waits, unless a transaction is in flight.
    pub(super) fn flush(&mut self, now: Monotonic) {
        if self.may_send() {
            self.send_now(now);
        }
    }

    /// Whether a transaction may be sent. Until then, a timer for one would fire again and again.
    pub(super) fn may_send(&self) -> bool {
        self.outbox.flight.is_none() && !self.presence.is_rising() && !self.life.is_suspended()
    }

    /// Sends what waits, whatever else is under way.
    pub(super) fn send_now(&mut self, now: Monotonic) {
        let mut errands = core::mem::take(&mut self.outbox.waiting);
        let mut refused = take(&mut errands, &|errand| errand.is_refused).into_iter();
        let mut goes_alone = false;
        if errands.is_empty() && !self.has_to_send(now) {
            errands.extend(refused.next());
            goes_alone = true;
        }
        self.outbox.waiting.extend(refused);
        if goes_alone && errands.is_empty() {
            return;
        }
        self.outbox.last_id += 1;
        let sent = Sent { at: now, flight: self.outbox.last_id };
        let session = self.session.id();
        let step = if goes_alone { SessionStep::Stay } else { self.step_for(&errands, sent) };
        let opens = matches!(step, SessionStep::Open { .. });
        let mut operations = Vec::with_capacity(errands.len());
        for errand in &mut errands {
            operations.push(self.stamp(errand, sent));
        }
        let ends = self.session.endings(|peer, read_at| now.since(read_at) >= silence_ms(peer.lease_ms));
        let mut batch = Batch { session, step, ends: ends.clone(), operations, forgets: self.hands.take_forgotten() };
        batch.forgets.retain(|key| self.places.pick(Some(key), &|_, _| true).is_empty());
        let lease_ms = batch.beat().map(|beat| beat.lease_ms);
        let limit = now.plus(self.config.store_timeout_ms);
        let closes = batch.step == SessionStep::Close;
        self.outbox.flight = Some(Flight { sent, session, opens, lease_ms, ends, errands, limit });
        self.emit(Command::Store { id: sent.flight, batch });
        if closes {
            // The id is dead from now on, whatever becomes of the deletion.
            self.renew_session(now);
        }
    }

    /// Whether something is to be sent although nobody asked for anything.
    fn has_to_send(&self, now: Monotonic) -> bool {
        let ends = self.ends_stale_at().is_some_and(|at| at <= now);
        self.session.wants_beat() || self.session.wants_close() || ends
    }

    /// When stale sessions are ended by a transaction of their own: what is tried again takes them along.
    pub(super) fn ends_stale_at(&self) -> Option<Monotonic> {
        self.session.stale_at().filter(|_| !self.outbox.retries() && !self.presence.is_rising())
    }

    /// What the transaction does to the session's row.
    fn step_for(&mut self, errands: &[Errand], sent: Sent) -> SessionStep {
        let acquires = errands.iter().any(Errand::acquires);
        let opens = !self.session.is_open();
        if self.session.wants_close() && errands.iter().all(Errand::ends_with_session) {
            return SessionStep::Close;
        }
        self.session.stay();
        if (opens && !acquires) || (!opens && !self.session.needs_beat(acquires, sent.at)) {
            return SessionStep::Stay;
        }
        self.last_heartbeat = sent.at;
        let beat = self.session.beat(sent, self.config.lease_ms, self.presence.beacon_stands());
        match opens {
            true => SessionStep::Open { beat, instance: self.config.instance.clone() },
            false => SessionStep::Beat(beat),
        }
    }

    /// What went with the session need not be sent. Whoever waits for an answer hears that it was lost.
    pub(super) fn drop_errands_of_session(&mut self, now: Monotonic) {
        for errand in self.outbox.recall_all_of_session() {
            self.ended_with_session(&errand, now);
        }
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
            Action::Verify { token, .. } | Action::Downgrade { token } => {
                errand.turn.is_some() || place.and_then(Place::held).is_some_and(|held| held.grant == *token)
            }
            Action::End { .. } => place.and_then(Place::seeking).is_some(),
            Action::Look => !self.places.pick(Some(&errand.slot.key), &|_, place| place.waits()).is_empty(),
            Action::Release { .. }
            | Action::Withdraw { .. }
            | Action::Detach { .. }
            | Action::Inspect
            | Action::Fence { .. } => true,
        }
    }

    /// Fills in what must be true at the time of sending.
    fn stamp(&mut self, errand: &mut Errand, sent: Sent) -> Operation {
        match &mut errand.action {
            Action::Acquire(ask) => self.stamp_ask(&errand.slot, ask, sent),
            Action::AcquireAll(asks) => {
                for (slot, (_, ask)) in errand.all.iter().zip(asks) {
                    self.stamp_ask(slot, ask, sent);
                }
            }
            Action::Verify { refill, .. } => {
                *refill = self.places.held(&errand.slot).is_some_and(|held| held.refilling);
            }
            Action::Downgrade { .. }
            | Action::Detach { .. }
            | Action::Release { .. }
            | Action::Withdraw { .. }
            | Action::End { .. }
            | Action::Look
            | Action::Inspect
            | Action::Fence { .. } => {}
        }
        Operation { key: errand.slot.key.clone(), action: errand.action.clone() }
    }

    fn stamp_ask(&mut self, slot: &Slot, ask: &mut Acquire, sent: Sent) {
        ask.attempt = sent.flight;
        let seeking = self.places.change_seeking(slot);
        if let Some(seeking) = seeking.filter(|seeking| seeking.request == ask.request) {
            seeking.sent = true;
            seeking.thefts += u32::from(ask.way == Way::Steal);
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

    /// How long to wait before something is tried again, in ms: twice as long each time, with jitter, capped by the
    /// heartbeat.
    pub(super) fn backoff_ms(&mut self, attempts: u32) -> u64 {
        let cap_ms = (self.config.heartbeat_ms / 2).max(1);
        let delay_ms = (50_u64 << attempts.min(10)).min(cap_ms);
        delay_ms - self.dice.below(delay_ms / 2 + 1)
    }

    /// Tries again later, with all else that failed.
    pub(super) fn retry(&mut self, errand: &Errand, now: Monotonic) {
        let delay_ms = self.backoff_ms(errand.attempts);
        self.outbox.retry_at.get_or_insert_with(|| now.plus(delay_ms));
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

pub(super) fn is_ask_for(request: RequestId) -> impl Fn(&Action) -> bool {
    move |action| matches!(action, Action::Acquire(acquire) if acquire.request == request)
}
