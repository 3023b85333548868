//! How the core is spoken to. When its types or methods change, this file changes, and the rest of the model does not.

use std::{sync::LazyLock, time::Duration};

use leasehold::machine::{
    self, Answer, Batch, Command, Config, Granted, Input, Key, LOCK_PREFIX, Machine, Message, Mode, Monotonic, Now,
    Options, Outcome, Output, Parcel, Refusal, Reply, SessionId, SessionStep, Slot, StoreClock, StoreError, StoreId,
    StoreNow, Turn, TurnId, Wall,
};

use crate::configuration::Configuration;
pub use crate::view::{
    Ask, Deal, EntryView, RecordView, all_records, asks, asks_for, deal, keys_of, passes, record, requests_of, stored,
};

/// The wall clock when the model begins, in ms.
const EPOCH_MS: i64 = 1_000_000;
/// The store's id before it is wiped for the first time.
pub(crate) const STORE: StoreId = StoreId(9);
/// Questions go by their turns' numbers, far from those of turns.
const VERIFIES: u64 = 1_000;
/// See [`VERIFIES`].
const UPGRADES: u64 = 2_000;
/// The last byte of a session's id says whose it is: all sessions of a context share it.
const LAST_BYTE: u128 = 0xff;

/// Two keys as users name them, and that of a lock.
pub(crate) static KEYS: LazyLock<[Key; 3]> = LazyLock::new(|| {
    let lock = [LOCK_PREFIX, "m"].concat();
    ["k", "l", &lock].map(|name| Key::new(name).expect("a letter is a key"))
});

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
    /// Wait for it, and go before the others.
    Urgent,
    /// Go before the others, and get it at once or not at all.
    TryUrgent,
    /// Rob whoever has it.
    Steal,
    /// Wait for the second key.
    Second,
    /// Have both keys at once, or none.
    Both,
    /// Wait for a lock, whose record goes when nobody uses it.
    Lock,
    /// Take over a lease that another guard left.
    TakeOver,
}

impl Want {
    /// How it is held at first.
    pub const fn mode(self) -> Mode {
        if matches!(self, Self::Read | Self::TryRead) { Mode::Shared } else { Mode::Exclusive }
    }

    /// A larger one goes first.
    pub const fn priority(self) -> i32 {
        if matches!(self, Self::Urgent | Self::TryUrgent) { 1 } else { 0 }
    }

    /// Which keys it is about.
    pub const fn keys(self) -> &'static [usize] {
        match self {
            Self::Second => &[1],
            Self::Both => &[0, 1],
            Self::Lock => &[2],
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
        let own = matches!(self.want, Want::Both | Want::TakeOver).then_some(TurnId(self.turn));
        Slot { key: key(self.key), mode: self.want.mode(), own }
    }

    fn turn(self) -> Turn {
        let Slot { key, mode, own } = self.slot();
        Turn {
            mode,
            wait: !matches!(self.want, Want::Try | Want::TryRead | Want::TryUrgent | Want::Both | Want::TakeOver),
            priority: self.want.priority(),
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
    /// Delete the row of this session blindly.
    Abandon(SessionId),
    /// Tell the others.
    Send(Message),
    /// Listen, and raise a beacon for this session, if any.
    Wake(Option<SessionId>),
    /// Stop listening, lower the beacon.
    Rest,
    /// Watch the beacon of a session.
    Watch(u64, SessionId),
    /// End a watch.
    Unwatch(u64),
    /// A turn has a guard, with this token.
    Granted(u64, u64),
    /// A turn ended without one.
    Refused(u64),
    /// A guard is lost.
    Lost(u64),
    /// A guard was released, and whether the release says that its lease had been lost.
    Released(u64, bool),
    /// A guard holds exclusively what it shared, with this token.
    Upgraded(u64, u64),
    /// A guard goes on sharing, or is gone.
    StaysShared(u64),
    /// A guard goes on sharing, because somebody else upgrades.
    Conflicts(u64),
    /// A guard shares from now on.
    Downgraded(u64),
    /// What the model need not know.
    Other,
}

/// The id of a store that was wiped.
pub fn store_after(store: StoreId) -> StoreId {
    StoreId(store.0 + 1)
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
    Machine::new(Config::parse(&options).expect("the model's times fit together"), name_of(who))
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
            Output::Command(command) => events.push(ordered(command)),
            Output::Event(event) => events.push(told(&event)),
        }
    }
}

fn ordered(command: Command) -> Event {
    match command {
        Command::Store { id, batch } => Event::Store(id, batch),
        Command::Abandon(session) => Event::Abandon(session),
        Command::Send(message) => Event::Send(message),
        Command::Wake { session, beacon } => Event::Wake(beacon.then_some(session)),
        Command::Rest | Command::Fall => Event::Rest,
        Command::Watch { watch, session } => Event::Watch(watch, session),
        Command::Unwatch { watch } => Event::Unwatch(watch),
    }
}

fn told(event: &machine::Event) -> Event {
    match *event {
        machine::Event::Granted { turn, token } => Event::Granted(turn.0, token.as_u64()),
        machine::Event::Failed { turn, refusal: Refusal::UpgradeConflict } => Event::Conflicts(turn.0 - UPGRADES),
        machine::Event::Failed { turn, .. } if turn.0 > UPGRADES => Event::StaysShared(turn.0 - UPGRADES),
        machine::Event::Busy { turn } | machine::Event::Failed { turn, .. } => Event::Refused(turn.0),
        machine::Event::Upgraded { turn, token, .. } => Event::Upgraded(turn.0, token.as_u64()),
        machine::Event::Downgraded { turn } => Event::Downgraded(turn.0),
        machine::Event::Lost { turn, .. } => Event::Lost(turn.0),
        machine::Event::Released { turn, ref result } => Event::Released(turn.0, matches!(result, Ok(Some(_)))),
        machine::Event::Waiting { .. }
        | machine::Event::WaitsLong { .. }
        | machine::Event::Suspect { .. }
        | machine::Event::Certain { .. }
        | machine::Event::Verified { .. }
        | machine::Event::Status { .. }
        | machine::Event::Closed => Event::Other,
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

/// A user doubts, and wants to be sure for this long.
pub fn verify(ticket: Ticket, span_ms: u64) -> Input {
    let query = TurnId(ticket.turn + VERIFIES);
    Input::Verify { query, turn: TurnId(ticket.turn), slot: ticket.slot(), span_ms }
}

/// A user leaves its lease for another guard, unless others use it too.
pub fn detach(machine: &mut Machine, ticket: Ticket) -> Option<(Parcel, Input)> {
    let (turn, slot) = (TurnId(ticket.turn), ticket.slot());
    let parcel = machine.parcel(turn, &slot)?;
    let detach = Input::Detach { turn, slot, to: parcel.from };
    Some((parcel, detach))
}

/// A user is about to send a fenced write, and its machine is told, as it should be. `None` if its guard has ended.
pub fn begin_fence(machine: &mut Machine, ticket: Ticket, is_told: bool, now: Now) -> Option<machine::Ticket> {
    let slot = ticket.slot();
    let fence = machine.ticket(TurnId(ticket.turn), &slot, false, now)?;
    if is_told {
        machine.begin_fence(&slot, &fence);
    }
    Some(fence)
}

/// A user reports that its fenced write was answered.
pub fn end_fence(machine: &mut Machine, ticket: Ticket, fence: &machine::Ticket) {
    machine.end_fence(&ticket.slot(), fence);
}

/// A user takes over what another guard left.
pub fn resume(ticket: Ticket, parcel: Parcel) -> Input {
    Input::Resume { turn: ticket.turn(), parcel }
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

/// The store answered.
pub fn answer(id: u64, reply: Reply) -> Input {
    Input::Reply { id, result: Ok(reply) }
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
    message.body.recipient().map_or(Addressee::Others, |session| Addressee::One(number_of(session)))
}

/// For whom a message is. To all others it says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressee {
    /// This context.
    One(usize),
    /// All but its sender.
    Others,
}

/// The first session of a context.
pub fn name_of(who: usize) -> SessionId {
    SessionId(who as u128 + 1)
}

/// The number of the context that a session is of.
pub fn number_of(session: SessionId) -> usize {
    (session.0 & LAST_BYTE) as usize - 1
}

/// A session, for traces: its context, and a part of the rest.
pub fn short(session: SessionId) -> String {
    let letter = u8::try_from(number_of(session)).map_or('?', |who| char::from(b'A' + who));
    format!("{letter}{:02x}", (session.0 >> 8) & LAST_BYTE)
}

/// What a batch does to its session, for traces.
pub fn step(batch: &Batch) -> String {
    let session = short(batch.session);
    match &batch.step {
        SessionStep::Stay => session,
        SessionStep::Open { beat, .. } => format!("{session} opens with {}", beat.beat),
        SessionStep::Beat(beat) => format!("{session} beats {} (floor {})", beat.beat, beat.floor),
        SessionStep::Close => format!("{session} closes"),
    }
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
