//! Floor 0: it decides everything and does nothing.
//!
//! Two pure pieces. [`Operation::apply`] is *what a store does*: the only code that grants, queues, promotes, renews,
//! evicts or refuses. [`Machine`] is *what a context does*: it never waits, never asks the time, never knows the
//! platform. Both are plain data, so that a model checker and a simulator run the shipped code, not a copy.

mod apply;
mod clock;
mod codec;
mod config;
mod failure;
mod fence;
mod glance;
mod hands;
mod hold;
mod id;
mod json;
mod key;
mod life;
mod message;
mod mode;
mod operation;
mod outbox;
mod place;
mod places;
mod port;
mod presence;
mod record;
mod records;
mod renew;
mod reply;
mod seek;
mod setback;
mod sight;
mod sorted;
mod time;
mod token;
mod tombstone;
mod turns;
mod upgrade;
mod work;

#[cfg(test)]
mod apply_tests;
#[cfg(test)]
mod machine_tests;
#[cfg(test)]
mod mode_tests;

pub use codec::Unreadable;
pub use config::{Config, InvalidOptions, LEAST_HEARTBEAT_MS, LEAST_LEASE_MS, LONGEST_LEASE_MS, MOST_KEYS, Options};
pub use failure::{Applied, StoreError, StoreErrorKind};
pub use fence::Ticket;
pub use id::{Beacon, Incarnation, RequestId, StoreId};
pub use key::{InvalidKey, KEY_LIMIT, Key, LOCK_PREFIX};
pub use message::{Body, Message};
pub use mode::Mode;
pub use operation::{
    Acquire, Action, Answer, Batch, Granted, Operation, Outcome, Promotion, Reply, StoreClock, StoreNow, Way,
};
pub use port::{Input, LostReason, Output, Parcel, Refusal, ReleaseOutcome, Slot, Turn, TurnId};
pub use record::{Entry, FORMAT, Grant, Record, Sighting, Waiter};
pub use records::Records;
pub(crate) use sorted::SortedMap;
pub(crate) use time::whole_ms;
pub use time::{Monotonic, Now, Wall};
pub use token::TokenBlock;
pub use token::{BLOCK, Token};
pub use tombstone::Tombstone;

use alloc::vec::Vec;

use clock::{Clocks, Dice};
use hands::Hands;
use life::Life;
use outbox::Outbox;
use place::Held;
use places::Places;
use presence::Presence;
use sight::{Observations, Watches};
use time::earliest;

/// What one context does: one per [`LeaseManager`](crate::LeaseManager).
///
/// # The driving rule
/// 1. Call [`handle`](Self::handle) with one [`Input`] and the present time.
/// 2. Call [`poll_output`](Self::poll_output) until it returns [`Output::Timeout`], and do what each output says.
/// 3. Whatever comes of that is a new input. If nothing comes by the time of the `Timeout`, the input is
///    [`Input::Tick`].
///
/// ```text
///            turns queue            answered "waiting"
///   Idle ───────────────▶ Seeking ──────────────────────┐
///    ▲ ▲                   │  ▲ └──── renews its place ─┘
///    │ │ all gave up       │  └───────────────────────┐
///    │ └── W ──────────────┤                          │ more turns wait
///    │                     │ granted, by answer       │
///    │                     ▼ or by signal             │
///    └──── R ─────────── Held ────────── R or W ──────┘
///         last turn        │ ▲
///         released         └─┘ renewed; handed from turn to turn
///
///   R sends Release, W sends Withdraw: every request ends with one of them.
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    config: Config,
    me: Incarnation,
    store: Option<StoreId>,
    life: Life,
    places: Places,
    observed: Observations,
    watches: Watches,
    outbox: Outbox,
    presence: Presence,
    clocks: Clocks,
    dice: Dice,
    hands: Hands,
    /// Grants on their way to another guard.
    detached: Vec<(Key, Token)>,
    last_request: RequestId,
    last_beat: u64,
    heartbeat_at: Option<Monotonic>,
    last_heartbeat: Monotonic,
    /// The last transaction that was sent before a clock jumped: what it granted is in doubt.
    doubted: Option<u64>,
    outputs: Vec<Output>,
    /// How many of the outputs were polled.
    polled: usize,
}

impl Machine {
    /// A machine for a fresh incarnation.
    pub fn new(config: Config, me: Incarnation) -> Self {
        Self {
            config,
            me,
            store: None,
            life: Life::Open,
            places: Places::default(),
            observed: Observations::default(),
            watches: Watches::default(),
            outbox: Outbox::default(),
            presence: Presence::default(),
            clocks: Clocks::default(),
            dice: Dice::new(me),
            hands: Hands::default(),
            detached: Vec::new(),
            last_request: RequestId::default(),
            last_beat: 0,
            heartbeat_at: None,
            last_heartbeat: Monotonic::default(),
            doubted: None,
            outputs: Vec::new(),
            polled: 0,
        }
    }

    /// The incarnation that this machine acts for.
    pub fn incarnation(&self) -> Incarnation {
        self.me
    }

    /// Takes one input.
    pub fn handle(&mut self, input: Input, now: Now) {
        if self.clocks.jumped(now, &self.config) {
            self.suspect_all(now.monotonic);
        }
        let now = now.monotonic;
        match input {
            Input::Acquire(turn) => self.acquire(turn, now),
            Input::AcquireAll(turns) => self.acquire_all(turns, now),
            Input::Resume { turn, parcel } => self.resume(turn, &parcel, now),
            Input::Reply { id, result } => self.reply(id, result, now),
            ref other => self.heed(other, now),
        }
        self.fire_due(now);
        self.settle(now);
    }

    /// Takes an input of which nothing is kept.
    fn heed(&mut self, input: &Input, now: Monotonic) {
        match *input {
            Input::Cancel { turn, ref slot } => self.cancel(turn, slot, now),
            Input::Release { turn, ref slot } => self.release(turn, slot, now),
            Input::Detach { turn, ref slot } => self.detach(turn, slot, now),
            Input::Verify { query, turn, ref slot, span_ms } => self.verify(query, turn, slot, span_ms, now),
            Input::Downgrade { query, turn, ref slot } => self.downgrade(query, turn, slot, now),
            Input::Upgrade { query, turn, ref slot } => self.upgrade(query, turn, slot, now),
            Input::CancelUpgrade { query, ref slot } => self.cancel_upgrade(query, slot, now),
            Input::ClearChanged { ref key } => self.hands.clear_changed(key),
            Input::Inspect { query, ref key } => self.inspect(query, key, now),
            Input::InspectAll(ref looks) => looks.iter().for_each(|(query, key)| self.inspect(*query, key, now)),
            Input::Fenced { ref slot, ref ticket, ref answers } => self.fenced(slot, ticket, answers, now),
            Input::Message(ref message) => self.message(message, now),
            Input::BeaconStands(beacon) => self.presence.stands(beacon),
            Input::BeaconLost(beacon) => self.beacon_lost(beacon, now),
            Input::NoBeacon => self.presence.no_beacon(),
            Input::BeaconGone { watch } => self.beacon_gone(watch, now),
            Input::Suspend { entombs } => self.suspend(entombs, now),
            Input::Wake { incarnation } => self.wake_up(incarnation, now),
            Input::Hide => self.end_all_lingers(now),
            Input::Doubt => self.suspect_all(now),
            Input::Close => self.close(now),
            Input::Acquire(_) | Input::AcquireAll(_) | Input::Resume { .. } | Input::Reply { .. } | Input::Tick => {}
        }
    }

    /// The next thing to do; [`Output::Timeout`] when there is none.
    pub fn poll_output(&mut self) -> Output {
        if let Some(output) = self.outputs.get_mut(self.polled) {
            self.polled += 1;
            return core::mem::replace(output, Output::Timeout(None));
        }
        self.outputs.clear();
        self.polled = 0;
        let wake = self.next_wake();
        self.clocks.announce(wake);
        Output::Timeout(wake)
    }

    /// What every input ends with: timers and watches follow the places, and what is to be sent is sent.
    fn settle(&mut self, now: Monotonic) {
        let (observed, outbox) = (&self.observed, &self.outbox);
        let queues_changed = self.places.settle(|slot, place| observed.next_judgement(slot, place, outbox));
        self.sync_watches(queues_changed);
        self.follow_presence(now);
        self.flush(now);
        self.arm_heartbeat(now);
        self.end_closing();
    }

    /// Everything that is due by now, in the order in which it matters.
    fn fire_due(&mut self, now: Monotonic) {
        self.give_up_on_silent_store(now);
        for slot in &self.places.due(now) {
            self.time_out_turns(slot, now);
            self.end_overdue_users(slot, now);
            self.end_linger_if_due(slot, now);
            self.settle_heir_if_due(slot, now);
            self.doubt_if_expired(slot, now);
            self.look_if_due(slot, now);
            self.judge_twin_if_due(slot, now);
            self.judge_if_silent(slot, now);
        }
        self.beat_if_due(now);
        self.presence.give_up_rising(now);
        self.rest_if_due(now);
        self.force_closed(now);
    }

    /// All timers, in one place.
    fn next_wake(&self) -> Option<Monotonic> {
        earliest(&[
            self.places.next_wake(),
            self.heartbeat_at,
            self.outbox.next_wake(),
            self.presence.next_wake(),
            self.life.next_wake(),
        ])
    }

    fn emit(&mut self, output: Output) {
        self.outputs.push(output);
    }

    fn tell_verified(&mut self, query: TurnId, result: Result<bool, StoreError>) {
        self.emit(Output::Verified { query, result });
    }

    fn tell_released(&mut self, turn: TurnId, result: Result<ReleaseOutcome, StoreError>) {
        self.emit(Output::Released { turn, result });
    }

    fn next_request(&mut self) -> RequestId {
        self.last_request = self.last_request.next();
        self.last_request
    }

    fn next_beat(&mut self) -> u64 {
        self.last_beat += 1;
        self.last_beat
    }

    /// One heartbeat for all keys. It is armed anew when the store has answered the last one, counted from its sending:
    /// else a slow store would stretch the time between two.
    fn arm_heartbeat(&mut self, now: Monotonic) {
        if !self.places.any_beats() {
            self.heartbeat_at = None;
        } else if self.heartbeat_at.is_none() && !self.outbox.carries_beats() {
            let since = now.since(self.last_heartbeat);
            let base = if since < self.config.lease_ms { self.last_heartbeat } else { now };
            self.beat_by(base);
        }
    }

    /// Has the next heartbeat come no later than one interval after this moment.
    fn beat_by(&mut self, sent: Monotonic) {
        let early_ms = self.dice.below(self.config.heartbeat_ms / 8 + 1);
        let at = sent.plus(self.config.heartbeat_ms - early_ms);
        self.heartbeat_at = earliest(&[self.heartbeat_at, Some(at)]);
    }

    fn beat_if_due(&mut self, now: Monotonic) {
        if self.heartbeat_at.is_none_or(|at| at > now) {
            return;
        }
        self.heartbeat_at = None;
        self.outbox.drop_plain_renewals();
        for slot in &self.places.slots() {
            let Some(place) = self.places.get(slot) else { continue };
            let renews = |held: &Held| held.renews() || held.doubted.is_some();
            let (renews, waits) = (place.held().is_some_and(renews), place.waits());
            if renews {
                self.push_renewal(slot, None, now);
            }
            if waits {
                self.ask(slot, now);
            }
        }
        self.outbox.mark_beats();
    }
}
