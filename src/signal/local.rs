//! Signals within one process: contexts that share a store share a hub.

use alloc::vec::Vec;
use core::fmt;
use std::sync::MutexGuard;

use super::{Beacons, Inbox, Notice, Signals};
use crate::executor::{HAS_MANY_CONTEXTS, Mutex, Shared, WeakShared, process_wide};
use crate::machine::{Message, SessionId, SortedMap};
use crate::store::Reach;

process_wide!(with_hubs, SortedMap<Reach, WeakShared<Hub>>, SortedMap::new());

/// Messages between contexts of one process. A message is delivered before `send` returns.
///
/// For a store of this process ([`Reach::Process`]) they also raise beacons, and the beacon of a context ends when the context is dropped.
/// Other processes that share a store with a name ([`Reach::Named`]) could not see such beacons. So for such a store there are none, and a
/// watch reports nothing.
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
    /// Each session with the number of its seat, so that a message to one session looks at no other. Empty where contexts are few.
    by_session: SortedMap<(SessionId, u64), ()>,
    /// Each session whose beacon is watched, with the number of a seat that watches it and that of the watch. Empty where contexts are few.
    watchers: SortedMap<(SessionId, u64, u64), ()>,
    last: u64,
}

/// An awake context.
struct Seat {
    session: SessionId,
    inbox: WeakShared<dyn Inbox>,
    beacon: bool,
    watches: SortedMap<u64, SessionId>,
}

impl LocalSignals {
    /// Signals between the contexts of this process that share a store.
    pub fn new(reach: &Reach) -> Self {
        let hub = with_hubs(|hubs| {
            let mut hubs = hubs.lock();
            hubs.retain(|_, hub| hub.strong_count() > 0);
            if let Some(hub) = hubs.get(reach).and_then(WeakShared::upgrade) {
                return hub;
            }
            let hub = Shared::new(Hub::default());
            hubs.insert(reach.clone(), Shared::downgrade(&hub));
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
    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.0.lock()
    }

    fn next_seat(&self) -> u64 {
        let mut seats = self.seats();
        seats.last += 1;
        seats.last
    }
}

impl Seats {
    fn take(&mut self, number: u64, seat: Seat) {
        if HAS_MANY_CONTEXTS {
            self.by_session.insert((seat.session, number), ());
        }
        self.taken.insert(number, seat);
    }

    fn leave(&mut self, number: u64) -> Option<Seat> {
        let seat = self.taken.remove(&number)?;
        if HAS_MANY_CONTEXTS {
            self.by_session.remove(&(seat.session, number));
            for (watch, session) in seat.watches.iter() {
                self.watchers.remove(&(*session, number, *watch));
            }
        }
        Some(seat)
    }

    /// Visits the seats that hear a message, in the order of their numbers.
    fn visit(&self, recipient: Option<SessionId>, mut visit: impl FnMut(u64, &Seat)) {
        if HAS_MANY_CONTEXTS && let Some(session) = recipient {
            // As a rule, a session has one seat.
            let own = self.by_session.from(|(known, _)| *known < session).map(|((known, number), ())| (known, number));
            own.take_while(|(known, _)| **known == session)
                .filter_map(|(_, number)| Some((number, self.taken.get(number)?)))
                .for_each(|(at, seat)| visit(*at, seat));
            return;
        }
        let hears = |seat: &Seat| recipient.is_none_or(|recipient| recipient == seat.session);
        self.taken.iter().filter(|(_, seat)| hears(seat)).for_each(|(number, seat)| visit(*number, seat));
    }

    fn stands(&self, session: SessionId) -> bool {
        let mut stands = false;
        self.visit(Some(session), |_, seat| stands |= seat.beacon);
        stands
    }

    /// Notes that a seat watches a beacon, if the seat is taken.
    fn watch(&mut self, number: u64, watch: u64, session: SessionId) {
        let Some(seat) = self.taken.get_mut(&number) else { return };
        seat.watches.insert(watch, session);
        if HAS_MANY_CONTEXTS {
            self.watchers.insert((session, number, watch), ());
        }
    }

    fn unwatch(&mut self, number: u64, watch: u64) -> Option<&Seat> {
        let seat = self.taken.get_mut(&number)?;
        let session = seat.watches.remove(&watch)?;
        if HAS_MANY_CONTEXTS {
            self.watchers.remove(&(session, number, watch));
        }
        Some(seat)
    }

    /// Ends the watches of a beacon that is gone; who is to be told.
    fn end_watches(&mut self, gone: SessionId) -> Vec<(WeakShared<dyn Inbox>, u64)> {
        let mut told = Vec::new();
        if HAS_MANY_CONTEXTS {
            let from = self.watchers.from(|(session, ..)| *session < gone).map(|(watcher, ())| *watcher);
            let ended: Vec<_> = from.take_while(|(session, ..)| *session == gone).collect();
            for (_, number, watch) in ended {
                told.extend(self.unwatch(number, watch).map(|seat| (seat.inbox.clone(), watch)));
            }
            return told;
        }
        for seat in self.taken.values_mut() {
            seat.watches.retain(|watch, session| {
                if *session == gone {
                    told.push((seat.inbox.clone(), *watch));
                }
                *session != gone
            });
        }
        told
    }
}

/// Call this after the hub's lock is released, because inboxes may call back.
fn tell(inbox: &WeakShared<dyn Inbox>, notice: Notice) {
    if let Some(inbox) = inbox.upgrade() {
        inbox.notice(notice);
    }
}

impl Signals for LocalSignals {
    fn beacons(&self) -> Beacons {
        self.beacons.clone()
    }

    fn wake(&self, session: SessionId, beacon: bool, inbox: WeakShared<dyn Inbox>) -> bool {
        self.rest();
        let beacon = beacon && self.raises_beacons();
        let seat = Seat { session, inbox: inbox.clone(), beacon, watches: SortedMap::new() };
        self.hub.seats().take(self.seat, seat);
        if beacon {
            tell(&inbox, Notice::BeaconStands(session));
        }
        beacon
    }

    fn rest(&self) {
        let mut seats = self.hub.seats();
        let left = seats.leave(self.seat);
        let told = left.filter(|seat| seat.beacon).map(|seat| seats.end_watches(seat.session));
        drop(seats);
        for (inbox, watch) in &told.unwrap_or_default() {
            tell(inbox, Notice::BeaconGone { watch: *watch });
        }
    }

    fn send(&self, message: &Message) {
        let mut others = Vec::new();
        self.hub.seats().visit(message.body.recipient(), |number, seat| {
            if number != self.seat {
                others.push(seat.inbox.clone());
            }
        });
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
        if stands {
            return seats.watch(self.seat, watch, session);
        }
        let Some(seat) = seats.taken.get(&self.seat) else { return };
        let inbox = seat.inbox.clone();
        drop(seats);
        tell(&inbox, Notice::BeaconGone { watch });
    }

    fn unwatch(&self, watch: u64) {
        self.hub.seats().unwatch(self.seat, watch);
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

#[cfg(test)]
mod tests {
    use super::*;

    struct Deaf;

    impl Inbox for Deaf {
        fn notice(&self, _: Notice) {}
    }

    fn seats(sessions: &[u128]) -> Seats {
        let inbox: Shared<dyn Inbox> = Shared::new(Deaf);
        let mut seats = Seats::default();
        for (number, session) in (1..).zip(sessions) {
            let inbox = Shared::downgrade(&inbox);
            let seat = Seat { session: SessionId(*session), inbox, beacon: false, watches: SortedMap::new() };
            seats.take(number, seat);
        }
        seats
    }

    #[test]
    fn a_beacon_stands_as_long_as_a_seat_of_its_session_raises_it() {
        let mut seats = seats(&[7, 3, 7]);
        assert!(!seats.stands(SessionId(7)) && !seats.stands(SessionId(8)));
        seats.taken.get_mut(&3).unwrap().beacon = true;
        assert!(seats.stands(SessionId(7)) && !seats.stands(SessionId(3)));
        seats.leave(3);
        assert!(!seats.stands(SessionId(7)));
    }

    #[test]
    fn who_watches_a_beacon_is_told_once_when_it_is_gone_and_nobody_else() {
        let mut seats = seats(&[7, 3, 8, 9]);
        for (number, watch, session) in [(2, 5, 7), (3, 1, 7), (3, 2, 8), (4, 6, 7), (4, 9, 7), (99, 1, 7)] {
            seats.watch(number, watch, SessionId(session));
        }
        seats.unwatch(4, 9);
        seats.leave(2);
        let told = |seats: &mut Seats, gone| {
            let told = seats.end_watches(SessionId(gone));
            told.into_iter().map(|(_, watch)| watch).collect::<Vec<_>>()
        };
        assert_eq!(told(&mut seats, 7), [1, 6]);
        assert_eq!((told(&mut seats, 7), told(&mut seats, 9)), (Vec::new(), Vec::new()));
        assert_eq!(told(&mut seats, 8), [2]);
        assert_eq!((seats.watchers.len(), seats.by_session.len()), (0, 3));
    }

    fn visited(seats: &Seats, recipient: Option<u128>) -> Vec<u64> {
        let mut visited = Vec::new();
        seats.visit(recipient.map(SessionId), |number, _| visited.push(number));
        visited
    }

    #[test]
    fn a_message_to_one_context_visits_its_seats_and_a_broadcast_visits_all_in_order() {
        let mut seats = seats(&[7, 3, 7, 9]);
        assert_eq!(visited(&seats, Some(7)), [1, 3]);
        assert_eq!(visited(&seats, Some(9)), [4]);
        assert_eq!(visited(&seats, Some(8)), [0; 0]);
        assert_eq!(visited(&seats, None), [1, 2, 3, 4]);
        assert!(seats.leave(1).is_some() && seats.leave(1).is_none());
        assert_eq!(visited(&seats, Some(7)), [3]);
        assert_eq!(visited(&seats, None), [2, 3, 4]);
    }
}
