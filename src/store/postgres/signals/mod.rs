//! Signals by way of the server: a message is a notification, and a beacon an advisory lock of the connection that hears them.

mod alarm;
mod ear;
mod ears;
mod hearing;
mod link;
mod outbox;
mod watches;

use core::{fmt, time::Duration};
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::{
    sync::{
        mpsc::{UnboundedSender, unbounded_channel},
        watch,
    },
    time::timeout,
};

use super::{Place, carrier::Exchange};
use crate::executor::{Mutex, Shared, WeakShared};
use crate::machine::{Message, SessionId};
use crate::signal::{Beacons, Inbox, Signals};

use ear::Ear;
pub(super) use ears::Ears;
pub(super) use hearing::{Hearing, check_for_beacons};
use link::Event;
pub(super) use outbox::Letter;
use watches::{Locks, Watches};

/// How long a closing store waits until its last messages are sent.
const LONGEST_END: Duration = Duration::from_secs(1);

/// The signals of one context. Each session has a connection of its own, and a task that speaks on it.
pub(super) struct PostgresSignals {
    exchange: Shared<dyn Exchange>,
    place: Shared<Place>,
    beacons: bool,
    awake: Mutex<Option<Awake>>,
    speaking: Speaking,
}

/// How many tasks speak for the sessions of a handle.
#[derive(Clone, Debug)]
pub(super) struct Speaking(Shared<watch::Sender<usize>>);

impl Speaking {
    pub(super) fn nobody() -> Self {
        Self(Shared::new(watch::Sender::new(0)))
    }

    /// Counts a task that speaks, before it begins, so that nobody misses it.
    pub(super) fn begin(&self) -> Turn {
        self.0.send_modify(|count| *count += 1);
        Turn(self.clone())
    }

    /// Waits until none speaks any more, for a moment at most.
    pub(super) async fn end(&self) {
        let mut count = self.0.subscribe();
        // Whoever still speaks then has a server that does not answer.
        let _ = timeout(LONGEST_END, count.wait_for(|count| *count == 0)).await;
    }
}

/// The turn of a task that speaks, until the task ends, or its runtime.
pub(super) struct Turn(Speaking);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

/// What stands between [`wake`](Signals::wake) and [`rest`](Signals::rest).
#[derive(Debug)]
struct Awake {
    session: SessionId,
    events: UnboundedSender<Event>,
    over: Shared<AtomicBool>,
    watches: Shared<Watches>,
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // Its task is gone with its runtime.
        let _ = self.events.send(Event::Rest);
    }
}

impl fmt::Debug for PostgresSignals {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("PostgresSignals").field("awake", &self.awake).finish_non_exhaustive()
    }
}

impl PostgresSignals {
    pub(super) fn new(exchange: Shared<dyn Exchange>, place: Shared<Place>, beacons: bool, speaking: Speaking) -> Self {
        Self { exchange, place, beacons, awake: Mutex::default(), speaking }
    }

    fn tell(&self, event: impl FnOnce(&Awake) -> Option<Event>) {
        if let Some(awake) = &*self.awake.lock()
            && let Some(event) = event(awake)
        {
            // Its task is gone with its runtime.
            let _ = awake.events.send(event);
        }
    }
}

impl Signals for PostgresSignals {
    fn beacons(&self) -> Beacons {
        if self.beacons { Beacons::All } else { Beacons::None }
    }

    fn wake(&self, session: SessionId, beacon: bool, inbox: WeakShared<dyn Inbox>) -> bool {
        self.rest();
        let beacon = beacon && self.beacons;
        let (events, heard) = unbounded_channel();
        let ear = Ear::new(self.exchange.clone(), self.place.clone(), session, beacon, inbox);
        let (over, watches) = (ear.over.clone(), ear.watches.clone());
        let (turn, life) = (self.speaking.begin(), ear.live(events.clone(), heard));
        self.place.runtime.spawn(async move {
            life.await;
            drop(turn);
        });
        *self.awake.lock() = Some(Awake { session, events, over, watches });
        beacon
    }

    fn rest(&self) {
        let awake = self.awake.lock().take();
        drop(awake);
    }

    fn send(&self, message: &Message) {
        self.tell(|awake| Letter::of(message, awake.session, &self.place.names).map(Event::Send));
    }

    fn watch(&self, watch: u64, session: SessionId) {
        // Without beacons an absent one proves nothing.
        if self.beacons {
            let names = &self.place.names;
            self.tell(|awake| {
                awake.watches.add(watch, Locks { session, beacon: names.beacon(session), waits: names.waits(session) });
                Some(Event::Watches)
            });
        }
    }

    fn unwatch(&self, watch: u64) {
        self.tell(|awake| {
            awake.watches.remove(watch);
            Some(Event::Watches)
        });
    }

    /// A young connection cannot tell dead contexts from those that were cut off and have not yet connected again.
    fn shows_deaths_at_once(&self) -> bool {
        false
    }
}

impl Drop for PostgresSignals {
    fn drop(&mut self) {
        self.rest();
    }
}
