//! Signals within one process: whoever shares a store shares a hub.

use alloc::vec::Vec;
use core::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Inbox, Notice, Signals};
use crate::executor::{Shared, WeakShared, process_wide};
use crate::machine::{Beacon, Message, SortedMap};
use crate::store::Reach;

process_wide!(with_hubs, SortedMap<Reach, WeakShared<Hub>>, SortedMap::new());

/// Messages and beacons between contexts of one process. A message is delivered before `send` returns.
///
/// A context that is dropped without a word takes its beacon with it.
pub struct LocalSignals {
    hub: Shared<Hub>,
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
    inbox: WeakShared<dyn Inbox>,
    beacon: Option<Beacon>,
    watches: SortedMap<u64, Beacon>,
}

impl LocalSignals {
    /// Signals between the contexts of this process that share a store.
    pub fn new(reach: &Reach) -> Self {
        let hub = with_hubs(|hubs| {
            let mut hubs = hubs.lock().unwrap_or_else(PoisonError::into_inner);
            hubs.retain(|_, hub| hub.strong_count() > 0);
            if let Some(hub) = hubs.get(reach).and_then(WeakShared::upgrade) {
                return hub;
            }
            let hub = Shared::new(Hub::default());
            hubs.insert(reach.clone(), Shared::downgrade(&hub));
            hub
        });
        let seat = hub.next_seat();
        Self { hub, seat }
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
    fn stands(&self, beacon: Beacon) -> bool {
        self.taken.values().any(|seat| seat.beacon == Some(beacon))
    }

    /// Ends the watches of a beacon that is gone; who is to be told.
    fn end_watches(&mut self, gone: Beacon) -> Vec<(WeakShared<dyn Inbox>, u64)> {
        let mut told = Vec::new();
        for seat in self.taken.values_mut() {
            seat.watches.retain(|watch, beacon| {
                if *beacon == gone {
                    told.push((seat.inbox.clone(), *watch));
                }
                *beacon != gone
            });
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
    fn wake(&self, beacon: Option<Beacon>, inbox: WeakShared<dyn Inbox>) -> bool {
        let seat = Seat { inbox: inbox.clone(), beacon, watches: SortedMap::new() };
        self.hub.seats().taken.insert(self.seat, seat);
        if let Some(beacon) = beacon {
            tell(&inbox, Notice::BeaconStands(beacon));
        }
        beacon.is_some()
    }

    fn rest(&self) {
        let mut seats = self.hub.seats();
        let left = seats.taken.remove(&self.seat);
        let told = left.and_then(|seat| seat.beacon).map(|gone| seats.end_watches(gone));
        drop(seats);
        for (inbox, watch) in &told.unwrap_or_default() {
            tell(inbox, Notice::BeaconGone { watch: *watch });
        }
    }

    fn send(&self, message: &Message) {
        let recipient = message.body.recipient();
        let hears = |seat: &Seat| match (recipient, seat.beacon) {
            (Some(recipient), Some(beacon)) => beacon.holder == recipient,
            // Whose seat it is shows only by its beacon.
            _ => true,
        };
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

    fn watch(&self, watch: u64, beacon: Beacon) {
        let mut seats = self.hub.seats();
        let stands = seats.stands(beacon);
        let Some(seat) = seats.taken.get_mut(&self.seat) else { return };
        if stands {
            seat.watches.insert(watch, beacon);
            return;
        }
        let inbox = seat.inbox.clone();
        drop(seats);
        tell(&inbox, Notice::BeaconGone { watch });
    }

    fn unwatch(&self, watch: u64) {
        if let Some(seat) = self.hub.seats().taken.get_mut(&self.seat) {
            seat.watches.remove(&watch);
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
