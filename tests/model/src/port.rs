//! How the core is spoken to. When its types or methods change, this file changes, and the rest of the model does not.

use std::{sync::LazyLock, time::Duration};

use leasehold::machine::{
    Answer, Batch, Beacon, Config, Granted, Incarnation, Input, Key, Machine, Message, Mode, Monotonic, Now, Options,
    Outcome, Output, Reply, Slot, StoreClock, StoreError, StoreId, StoreNow, Tombstone, Turn, TurnId, Wall,
};

use crate::configuration::Configuration;
pub use crate::view::{Deal, EntryView, RecordView, all_records, asks_for, deal, fence, fit, keys_of, record};

/// The wall clock when the model begins, in ms.
const EPOCH_MS: i64 = 1_000_000;
const STORE: StoreId = StoreId(9);
/// Questions go by their turns' numbers, far from those of turns.
const VERIFIES: u64 = 1_000;
/// See [`VERIFIES`].
const UPGRADES: u64 = 2_000;
/// An incarnation's number: the context, and how often it went on under a new name.
const NAMES: u128 = 16;

pub(crate) static KEYS: LazyLock<[Key; 2]> =
    LazyLock::new(|| ["k", "l"].map(|name| Key::new(name).expect("a letter is a key")));

/// What a user wants of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Want {
    /// Wait for it.
    Wait,
    /// Have it at once or not at all.
    Try,
    /// Wait for it, to share it.
    Read,
    /// Share it at once or not at all.
    TryRead,
    /// Rob whoever has it.
    Steal,
    /// Wait for the second key.
    Second,
    /// Have both keys at once, or none.
    Both,
}

impl Want {
    /// How it is held at first.
    pub const fn mode(self) -> Mode {
        if matches!(self, Self::Read | Self::TryRead) { Mode::Shared } else { Mode::Exclusive }
    }

    /// Which keys it is about.
    pub const fn keys(self) -> &'static [usize] {
        match self {
            Self::Second => &[1],
            Self::Both => &[0, 1],
            _ => &[0],
        }
    }
}

/// One turn, as its context knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// Its number.
    pub turn: u64,
    /// What was asked for.
    pub want: Want,
    /// At which key.
    pub key: usize,
}

impl Ticket {
    fn slot(self) -> Slot {
        let own = (self.want == Want::Both).then_some(TurnId(self.turn));
        Slot { key: key(self.key), mode: self.want.mode(), own }
    }

    fn turn(self) -> Turn {
        let Slot { key, mode, own } = self.slot();
        Turn {
            mode,
            wait: !matches!(self.want, Want::Try | Want::TryRead | Want::Both),
            steal: self.want == Want::Steal,
            alone: own.is_some(),
            ..Turn::new(TurnId(self.turn), key)
        }
    }
}

/// What a context tells its users, and asks of its world.
#[derive(Clone, Debug)]
pub enum Event {
    /// Run a transaction.
    Store(u64, Batch),
    /// Write that the context is gone.
    Entomb(Tombstone),
    /// Tell the others.
    Send(Message),
    /// Listen, and raise this beacon.
    Wake(Option<Beacon>),
    /// Stop listening, lower the beacon.
    Rest,
    /// Watch a beacon.
    Watch(u64, Beacon),
    /// End a watch.
    Unwatch(u64),
    /// A turn has a guard, with this token.
    Granted(u64, u64),
    /// A turn ended without one.
    Refused(u64),
    /// A guard is lost.
    Lost(u64),
    /// A guard was given back.
    Released(u64),
    /// A guard holds exclusively what it shared, with this token.
    Upgraded(u64, u64),
    /// A guard goes on sharing, or is gone.
    StaysShared(u64),
    /// A guard shares from now on.
    Downgraded(u64),
    /// What the model need not know.
    Other,
}

/// A key, by its number.
pub fn key(at: usize) -> Key {
    KEYS[at].clone()
}

/// A fresh context.
pub fn machine(who: usize, configuration: &Configuration) -> Machine {
    let options = Options {
        lease: Duration::from_millis(configuration.lease_ms),
        heartbeat: Some(Duration::from_millis(configuration.heartbeat_ms)),
        store_timeout: Some(Duration::from_millis(configuration.timeout_ms)),
        linger: Duration::from_millis(configuration.linger_ms),
        beacon: configuration.beacons,
        ..Options::default()
    };
    Machine::new(Config::parse(&options).expect("the model's times fit together"), name_of(who, 0))
}

/// A reading of both clocks: `own_ms` on the context's monotonic one, `wall_ms` since the model's epoch.
pub fn now(own_ms: u64, wall_ms: i64) -> Now {
    let wall = u64::try_from(EPOCH_MS + wall_ms).unwrap_or(0);
    Now { monotonic: Monotonic::from_ms(own_ms), wall: Wall::from_ms(wall) }
}

/// Everything that a context says after an input, and when it wants to be woken.
pub fn drain(machine: &mut Machine) -> (Vec<Event>, Option<u64>) {
    let mut events = Vec::new();
    loop {
        match machine.poll_output() {
            Output::Timeout(wake) => return (events, wake.map(Monotonic::as_ms)),
            output => events.push(event(output)),
        }
    }
}

fn event(output: Output) -> Event {
    match output {
        Output::Store { id, batch } => Event::Store(id, batch),
        Output::Entomb(tombstone) => Event::Entomb(tombstone),
        Output::Send(message) => Event::Send(message),
        Output::Wake { beacon } => Event::Wake(beacon),
        Output::Rest => Event::Rest,
        Output::Watch { watch, beacon } => Event::Watch(watch, beacon),
        Output::Unwatch { watch } => Event::Unwatch(watch),
        Output::Granted { turn, token } => Event::Granted(turn.0, token.as_u64()),
        Output::Failed { turn, .. } if turn.0 > UPGRADES => Event::StaysShared(turn.0 - UPGRADES),
        Output::Busy { turn } | Output::Failed { turn, .. } => Event::Refused(turn.0),
        Output::Upgraded { turn, token, .. } => Event::Upgraded(turn.0, token.as_u64()),
        Output::Downgraded { turn } => Event::Downgraded(turn.0),
        Output::Lost { turn, .. } => Event::Lost(turn.0),
        Output::Released { turn, .. } => Event::Released(turn.0),
        _ => Event::Other,
    }
}

/// For how long a guard is valid.
pub fn remaining_ms(machine: &Machine, ticket: Ticket, now: Now) -> u64 {
    machine.remaining_ms(TurnId(ticket.turn), &ticket.slot(), now)
}

/// A user asks: for one lease, or for several at once.
pub fn acquire(tickets: &[Ticket]) -> Input {
    let mut turns: Vec<_> = tickets.iter().map(|ticket| ticket.turn()).collect();
    match turns.pop() {
        Some(turn) if !turn.alone => Input::Acquire(turn),
        last => {
            turns.extend(last);
            Input::AcquireAll(turns)
        }
    }
}

/// A user no longer asks.
pub fn cancel(ticket: Ticket) -> Input {
    Input::Cancel { turn: TurnId(ticket.turn), slot: ticket.slot() }
}

/// A user is done.
pub fn release(ticket: Ticket) -> Input {
    Input::Release { turn: TurnId(ticket.turn), slot: ticket.slot() }
}

/// A user doubts.
pub fn verify(ticket: Ticket) -> Input {
    let query = TurnId(ticket.turn + VERIFIES);
    Input::Verify { query, turn: TurnId(ticket.turn), slot: ticket.slot(), span_ms: 0 }
}

/// A user wants to be the only one.
pub fn upgrade(ticket: Ticket) -> Input {
    Input::Upgrade { query: TurnId(ticket.turn + UPGRADES), turn: TurnId(ticket.turn), slot: ticket.slot() }
}

/// A user no longer wants to be the only one.
pub fn cancel_upgrade(ticket: Ticket) -> Input {
    Input::CancelUpgrade { query: TurnId(ticket.turn + UPGRADES), slot: ticket.slot() }
}

/// A user lets others in.
pub fn downgrade(ticket: Ticket) -> Input {
    Input::Downgrade { query: TurnId(ticket.turn + VERIFIES), turn: TurnId(ticket.turn), slot: ticket.slot() }
}

/// A context goes on under a new name.
pub fn go_on(who: usize, times: u8) -> Input {
    Input::Wake { incarnation: name_of(who, times) }
}

/// The store answered.
pub fn answer(id: u64, answers: Vec<Answer>) -> Input {
    Input::Reply { id, result: Ok(Reply { store: STORE, answers }) }
}

/// The store refused, and nothing was applied.
pub fn refused(id: u64) -> Input {
    Input::Reply { id, result: Err(StoreError::transient("busy")) }
}

/// The store failed, and nobody knows what was applied.
pub fn doubtful(id: u64) -> Input {
    Input::Reply { id, result: Err(StoreError::unknown("gone")) }
}

/// By what time a store applies what a caller sent: its own clock, or the caller's wall clock.
pub fn store_now(clock: StoreClock, store_ms: u64, wall_ms: i64) -> StoreNow {
    StoreNow::new(clock, now(store_ms, wall_ms))
}

/// For whom a message is: one context, or all but its sender.
pub fn addressee(message: &Message) -> Addressee {
    message.body.recipient().map_or(Addressee::Others, |name| Addressee::One(number_of(name)))
}

/// For whom a message is. To all others it says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressee {
    /// This context.
    One(usize),
    /// All but its sender.
    Others,
}

/// The name of a context that went on so many times.
pub fn name_of(who: usize, times: u8) -> Incarnation {
    Incarnation(who as u128 + 1 + NAMES * u128::from(times))
}

/// The number of a context.
pub fn number_of(name: Incarnation) -> usize {
    (name.0 % NAMES) as usize - 1
}

/// Whether an answer confirms a grant to who asked: for traces.
pub fn describe(answer: &Answer) -> String {
    match &answer.outcome {
        Outcome::Granted(Granted { block, .. }) => format!("granted {}", block.first.as_u64()),
        Outcome::Waiting { .. } => "waiting".into(),
        Outcome::Busy { .. } => "busy".into(),
        outcome => format!("{outcome:?}"),
    }
}
