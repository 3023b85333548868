//! What a context does: it merges the requests of its tasks, keeps its session alive, and considers its leases valid no longer than it may.

mod acquire;
mod belief;
mod busy;
mod clocks;
mod cohort;
mod cohorts;
mod detector;
mod fence;
mod heartbeat;
mod hold;
mod last_writer;
mod lifecycle;
mod local_queue;
mod looks;
mod passing;
mod pending;
mod presence;
mod released;
mod reply;
mod retry;
mod sending;
mod session;
mod store_queue;
mod upgrade;
mod verify;
mod watches;

#[cfg(test)]
mod machine_tests;

pub use fence::{FenceRefusal, Ticket};

use alloc::vec::Vec;

use super::{
    config, failure, id, input, key, message, mode, output,
    record::{self, Entry, Sighting},
    sorted, time, token,
};
use clocks::{Clocks, Dice};
use cohorts::Cohorts;
use config::Config;
use detector::Observations;
use failure::StoreError;
use heartbeat::HeartbeatTimer;
use hold::Detached;
use id::{RequestId, SessionId, StoreId};
use input::{Input, TurnId};
use last_writer::LastWriters;
use lifecycle::Life;
use output::{Event, LostReason, Output};
use presence::Presence;
use released::Released;
use session::OwnSession;
use store_queue::StoreQueue;
use time::{Monotonic, Now, earliest};
use watches::Watches;

/// What one context does: one per [`LeaseManager`](crate::LeaseManager).
///
/// # The driving rule
/// 1. Call [`handle`](Self::handle) with one [`Input`] and the present time.
/// 2. Call [`poll_output`](Self::poll_output) until it returns [`Output::Timeout`]. In this order, do each [command](Output::Command), and
///    report each [event](Output::Event) to the caller that it concerns.
/// 3. Whatever results from that is a new input. If there is none by the time in the `Timeout`, the input is [`Input::Tick`].
///
/// ```text
///            turns queue            answered "waiting"
///   Idle ───────────────▶ Seeking ──────────────────────┐
///    ▲ ▲                   │  ▲ └── looks each heartbeat ┘
///    │ │ all gave up       │  └───────────────────────┐
///    │ └── W ──────────────┤                          │ more turns wait
///    │                     │ granted, by answer       │
///    │                     ▼ or by signal             │
///    └──── R ─────────── Held ────────── R or W ──────┘
///         last turn        │ ▲
///         released         └─┘ handed from turn to turn
///
///   R sends Release, W sends Withdraw: every request ends with one of them, or with its session.
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    config: Config,
    session: OwnSession,
    store: Option<StoreId>,
    life: Life,
    cohorts: Cohorts,
    observed: Observations,
    watches: Watches,
    store_queue: StoreQueue,
    presence: Presence,
    clocks: Clocks,
    dice: Dice,
    last_writers: LastWriters,
    /// Leases on their way to another guard, until the store has answered.
    detached: Vec<Detached>,
    released: Released,
    last_request: RequestId,
    heartbeat: HeartbeatTimer,
    /// How many transactions have failed since all leases came into doubt, counted up to the attempts that a request has; `None` once the
    /// store has answered. In a hidden page every timer may be as late as after a freeze, so a further doubt does not begin a new count.
    failures_since_doubt: Option<u32>,
    outputs: Vec<Output>,
    /// How many of the outputs have been polled.
    polled: usize,
}

impl Machine {
    /// A machine whose first session has this random id. All later ids follow from it.
    pub fn new(config: Config, first: SessionId) -> Self {
        Self {
            config,
            session: OwnSession::new(first),
            store: None,
            life: Life::Open,
            cohorts: Cohorts::default(),
            observed: Observations::default(),
            watches: Watches::default(),
            store_queue: StoreQueue::default(),
            presence: Presence::default(),
            clocks: Clocks::default(),
            dice: Dice::new(first),
            last_writers: LastWriters::default(),
            detached: Vec::new(),
            released: Released::default(),
            last_request: RequestId::default(),
            heartbeat: HeartbeatTimer::default(),
            failures_since_doubt: None,
            outputs: Vec::new(),
            polled: 0,
        }
    }

    /// How long work may go on while its lease is in doubt.
    pub(crate) fn longest_doubt(&self) -> core::time::Duration {
        self.config.longest_doubt()
    }

    /// The session that this machine acts for, or opens next.
    pub fn session(&self) -> SessionId {
        self.session.id()
    }

    /// Takes one input.
    pub fn handle(&mut self, input: Input, now: Now) {
        let jumped = self.clocks.take_reading(now, &self.config);
        if jumped {
            self.doubt(now.monotonic);
        }
        let now = now.monotonic;
        match input {
            Input::Acquire(turn) => self.acquire(turn, now),
            Input::AcquireAll(turns) => self.acquire_all(turns, now),
            Input::Resume { turn, parcel } => self.resume(turn, &parcel, now),
            Input::Reply { id, result } => self.reply(id, result, now),
            ref other => self.dispatch(other, now),
        }
        self.fire_due(now);
        self.settle(now);
    }

    /// Handles an input that need not be stored.
    fn dispatch(&mut self, input: &Input, now: Monotonic) {
        match *input {
            Input::Cancel { turn, ref slot } => self.cancel(turn, slot, now),
            Input::Release { turn, ref slot } => self.release(turn, slot, now),
            Input::Detach { turn, ref slot, to } => self.detach(turn, slot, to, now),
            Input::Verify { query, turn, ref slot, span_ms } => self.verify(query, turn, slot, span_ms, now),
            Input::Downgrade { query, turn, ref slot } => self.downgrade(query, turn, slot, now),
            Input::Upgrade { query, turn, ref slot } => self.upgrade(query, turn, slot, now),
            Input::CancelUpgrade { query, ref slot } => self.cancel_upgrade(query, slot, now),
            Input::ClearChanged { ref key } => self.last_writers.clear_changed(key),
            Input::Inspect { query, ref key } => self.inspect(query, key, now),
            Input::InspectAll(ref looks) => looks.iter().for_each(|(query, key)| self.inspect(*query, key, now)),
            Input::Fenced { ref slot, ref ticket, ref reply } => self.fenced(slot, ticket, reply, now),
            Input::Message(ref message) => self.message(message, now),
            Input::BeaconStands(session) => self.beacon_stands(session),
            Input::BeaconLost(session) => self.beacon_lost(session, now),
            Input::NoBeacon => self.presence.no_beacon(),
            Input::BeaconGone { watch } => self.beacon_gone(watch, now),
            Input::Suspend { abandons } => self.suspend(abandons, now),
            Input::Ending { abandons } => self.ending(abandons, now),
            Input::Wake => self.wake_up(now),
            Input::StoreGone { abandons } => self.lose_store(abandons, now),
            Input::Hide => self.end_all_lingers(now),
            Input::Doubt => self.doubt(now),
            Input::Recheck => self.recheck(now),
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
        // Most inputs cause one output. Room for more is freed, because most contexts wait most of the time.
        if self.outputs.capacity() > 1 {
            self.outputs = Vec::new();
        }
        self.polled = 0;
        Output::Timeout(self.announce_wake())
    }

    /// Lends a scratch buffer for the outputs of the next input, so that a context that waits keeps none of its own.
    pub(crate) fn lend(&mut self, room: Vec<Output>) {
        if self.outputs.is_empty() {
            self.outputs = room;
        }
    }

    /// Takes all outputs at once, in their order, in the buffer that was lent. Also returns when to wake.
    pub(crate) fn take_outputs(&mut self) -> (Vec<Output>, Option<Monotonic>) {
        debug_assert!(self.polled == 0, "outputs are either polled or taken");
        (core::mem::take(&mut self.outputs), self.announce_wake())
    }

    fn announce_wake(&mut self) -> Option<Monotonic> {
        let wake = self.next_wake();
        self.clocks.announce(wake);
        wake
    }

    /// The end of every input: updates timers and watches for the changed cohorts, and sends what is to be sent.
    fn settle(&mut self, now: Monotonic) {
        let (observed, endings) = (&self.observed, self.store_queue.endings(self.cohorts.touched()));
        let begin_or_end = self.cohorts.settle(|slot, cohort| observed.next_judgement(slot, cohort, &endings));
        begin_or_end.iter().for_each(|slot| self.watches.neighbours_changed(slot));
        self.watches.sync(&self.cohorts, self.session.id(), &mut self.outputs);
        self.drop_obsolete(now);
        self.follow_presence(now);
        self.close_session_at_last();
        self.flush(now);
        self.arm_heartbeat(now);
        self.end_closing();
    }

    /// Does everything that is due by now. The order matters.
    fn fire_due(&mut self, now: Monotonic) {
        self.give_up_on_silent_store(now);
        self.doubt_if_expired(now);
        let due = self.time_out_late(now);
        for slot in &due {
            self.end_overdue_users(slot, now);
            self.end_linger_if_due(slot, now);
            self.look_if_due(slot, now);
            self.end_probe_if_due(slot, now);
            self.judge_twin_if_due(slot, now);
        }
        self.judge_silent(&due, now);
        self.beat_if_due(now);
        self.presence.give_up_rising(now);
        self.rest_if_due(now);
        self.force_closed(now);
    }

    /// The earliest of all timers.
    fn next_wake(&self) -> Option<Monotonic> {
        earliest(&[
            self.cohorts.next_wake(),
            self.heartbeat.next_wake(),
            self.belief_ends(),
            self.ends_stale_at().filter(|_| self.may_send()),
            self.store_queue.next_wake(),
            self.presence.next_wake(),
            self.life.next_wake(),
        ])
    }

    fn emit(&mut self, output: impl Into<Output>) {
        self.outputs.reserve_exact(usize::from(self.outputs.is_empty()));
        self.outputs.push(output.into());
    }

    fn tell_verified(&mut self, query: TurnId, result: Result<bool, StoreError>) {
        self.emit(Event::Verified { query, result });
    }

    /// Reports that a guard was released, or how it had been lost before.
    fn tell_released(&mut self, turn: TurnId, result: Result<Option<LostReason>, StoreError>) {
        self.emit(Event::Released { turn, result });
    }

    fn next_request(&mut self) -> RequestId {
        self.last_request = self.last_request.next();
        self.last_request
    }
}
