//! Signals within one process: whoever shares a store shares a hub.

use alloc::vec::Vec;
use core::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Beacons, Inbox, Notice, Signals};
use crate::executor::{Shared, WeakShared, process_wide};
use crate::machine::{Message, SessionId, SortedMap};
use crate::store::Reach;

process_wide!(with_hubs, Vec<(Reach, WeakShared<Hub>)>, Vec::new());

/// Messages between contexts of one process. A message is delivered before `send` returns.
///
/// For a store of this process ([`Reach::Process`]) it raises beacons too, and a context that is dropped without a word
/// takes its beacon with it. Contexts of other processes that share a store with a name ([`Reach::Named`]) could not see
/// those: for such a store there is no beacon, and a watch reports nothing.
pub struct LocalSignals {
    hub: Shared<Hub>,
    beacons: Beacons,
    seat: u64,
}

/// Where the contexts that share a store meet.
#[derive(Default)]
struct Hub(Mutex<Seats>);

#[derive(Default)]
struct Seats {
    taken: SortedMap<u64, Seat>,
    last: u64,
}

/// An awake context.
struct Seat {
    session: SessionId,
    inbox: WeakShared<dyn Inbox>,
    beacon: bool,
    watches: Vec<(u64, SessionId)>,
}

impl Seat {
    fn unwatch(&mut self, watch: u64) {
        self.watches.retain(|(known, _)| *known != watch);
    }
}

impl LocalSignals {
    /// Signals between the contexts of this process that share a store.
    pub fn new(reach: &Reach) -> Self {
        let hub = with_hubs(|hubs| {
            let mut hubs = hubs.lock().unwrap_or_else(PoisonError::into_inner);
            hubs.retain(|(_, hub)| hub.strong_count() > 0);
            let known = hubs.iter().find(|(known, _)| known == reach);
            if let Some(hub) = known.and_then(|(_, hub)| hub.upgrade()) {
                return hub;
            }
            let hub = Shared::new(Hub::default());
            hubs.push((reach.clone(), Shared::downgrade(&hub)));
            hub
        });
        let seat = hub.next_seat();
        let beacons = match reach {
            Reach::Process(number) => Beacons::Process(*number),
            Reach::Machine(_) | Reach::Named(_) => Beacons::None,
        };
        Self { hub, beacons, seat }
    }

    fn raises_beacons(&self) -> bool {
        self.beacons != Beacons::None
    }
}

impl Hub {
    /// No code of ours runs under the lock, so a poisoned one guards sound seats.
    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_seat(&self) -> u64 {
        let mut seats = self.seats();
        seats.last += 1;
        seats.last
    }
}

impl Seats {
    fn stands(&self, session: SessionId) -> bool {
        self.taken.values().any(|seat| seat.beacon && seat.session == session)
    }

    /// Ends the watches of a beacon that is gone; who is to be told.
    fn end_watches(&mut self, gone: SessionId) -> Vec<(WeakShared<dyn Inbox>, u64)> {
        let mut told = Vec::new();
        for seat in self.taken.values_mut() {
            while let Some(at) = seat.watches.iter().position(|(_, session)| *session == gone) {
                let (watch, _) = seat.watches.remove(at);
                told.push((seat.inbox.clone(), watch));
            }
        }
        told
    }
}

/// Inboxes are called after the hub's lock was let go: they may call back.
fn tell(inbox: &WeakShared<dyn Inbox>, notice: Notice) {
    if let Some(inbox) = inbox.upgrade() {
        inbox.notice(notice);
    }
}

impl Signals for LocalSignals {
    fn beacons(&self) -> Beacons {
        self.beacons
    }

    fn wake(&self, session: SessionId, beacon: bool, inbox: WeakShared<dyn Inbox>) -> bool {
        self.rest();
        let beacon = beacon && self.raises_beacons();
        let seat = Seat { session, inbox: inbox.clone(), beacon, watches: Vec::new() };
        self.hub.seats().taken.insert(self.seat, seat);
        if beacon {
            tell(&inbox, Notice::BeaconStands(session));
        }
        beacon
    }

    fn rest(&self) {
        let mut seats = self.hub.seats();
        let left = seats.taken.remove(&self.seat);
        let told = left.filter(|seat| seat.beacon).map(|seat| seats.end_watches(seat.session));
        drop(seats);
        for (inbox, watch) in &told.unwrap_or_default() {
            tell(inbox, Notice::BeaconGone { watch: *watch });
        }
    }

    fn send(&self, message: &Message) {
        let recipient = message.body.recipient();
        let hears = |seat: &Seat| recipient.is_none_or(|recipient| recipient == seat.session);
        let mut others = Vec::new();
        for (number, seat) in self.hub.seats().taken.iter() {
            if *number != self.seat && hears(seat) {
                others.push(seat.inbox.clone());
            }
        }
        for inbox in &others {
            tell(inbox, Notice::Message(message.clone()));
        }
    }

    fn watch(&self, watch: u64, session: SessionId) {
        if !self.raises_beacons() {
            return;
        }
        let mut seats = self.hub.seats();
        let stands = seats.stands(session);
        let Some(seat) = seats.taken.get_mut(&self.seat) else { return };
        if stands {
            seat.unwatch(watch);
            seat.watches.push((watch, session));
            return;
        }
        let inbox = seat.inbox.clone();
        drop(seats);
        tell(&inbox, Notice::BeaconGone { watch });
    }

    fn unwatch(&self, watch: u64) {
        if let Some(seat) = self.hub.seats().taken.get_mut(&self.seat) {
            seat.unwatch(watch);
        }
    }
}

impl Drop for LocalSignals {
    fn drop(&mut self) {
        self.rest();
    }
}

impl fmt::Debug for LocalSignals {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "LocalSignals({})", self.seat)
    }
}
