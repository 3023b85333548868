//! What a context does, with a store that answers what the test says.

mod alarms;
mod alone;
mod busy_store;
mod divided;
mod doubt;
mod ending;
mod failing;
mod fence;
mod given_back;
mod leftovers;
mod many;
mod opening;
mod overtaken;
mod presence;
mod protocol;
mod refused;
mod robbed;
mod served;
mod sessions;
mod soon;
mod sure;
mod suspension;
mod thieves;
mod unheard;

use alloc::vec::Vec;
use core::time::Duration;

use crate::machine::{
    Action, Answer, Batch, Beat, Body, Command, Config, Entry, Event, Granted, Input, Key, Machine, Message, Mode,
    Monotonic, Now, Options, Outcome, Output, Reply, RequestId, SessionId, SessionStep, Sighting, Slot, StoreError,
    StoreId, Token, TokenBlock, Turn, TurnId, Wall,
};

const ME: SessionId = SessionId(1);
const OTHER: SessionId = SessionId(2);
const STORE: StoreId = StoreId(9);
const LEASE_MS: u64 = 20_000;
/// How long a context considers its leases valid, counted from before the last heartbeat was sent.
const BELIEF_MS: u64 = 18_000;

/// A machine whose store answers what the test says.
struct Script {
    machine: Machine,
    now_ms: u64,
    key: Key,
    outputs: Vec<Output>,
    /// When the machine wants to be woken.
    wake: Option<Monotonic>,
}

impl Script {
    fn new() -> Self {
        let config = Config::parse(&Options { beacon: false, linger: Duration::ZERO, ..Options::default() }).unwrap();
        let machine = Machine::new(config, ME);
        Self { machine, now_ms: 1_000, key: Key::new("k").unwrap(), outputs: Vec::new(), wake: None }
    }

    fn with_beacon() -> Self {
        let mut script = Self::new();
        script.machine =
            Machine::new(Config::parse(&Options { linger: Duration::ZERO, ..Options::default() }).unwrap(), ME);
        script
    }

    fn slot(&self) -> Slot {
        Slot::of_key(self.key.clone())
    }

    fn now(&self) -> Now {
        Now { monotonic: Monotonic::from_ms(self.now_ms), wall: Wall::from_ms(self.now_ms + 1_000_000) }
    }

    /// A minute later: the wall clock went on while the monotonic one stood still.
    fn asleep(&self) -> Now {
        Now { wall: self.now().wall.plus(60_000), ..self.now() }
    }

    fn input(&mut self, input: Input) -> &[Output] {
        self.machine.handle(input, self.now());
        self.outputs.clear();
        loop {
            match self.machine.poll_output() {
                Output::Timeout(wake) => {
                    self.wake = wake;
                    return &self.outputs;
                }
                output => self.outputs.push(output),
            }
        }
    }

    fn acquire(&mut self, turn: u64, wait: bool) {
        let key = self.key.clone();
        self.input(Input::Acquire(Turn { wait, ..Turn::new(TurnId(turn), key) }));
    }

    /// The transaction that was just sent.
    fn sent(&self) -> (u64, Batch) {
        let sent = self.outputs.iter().find_map(|output| match output {
            Output::Command(Command::Store { id, batch }) => Some((*id, batch.clone())),
            _ => None,
        });
        sent.unwrap_or_else(|| panic!("nothing was sent: {:?}", self.outputs))
    }

    fn actions(&self) -> Vec<Action> {
        self.sent().1.operations.into_iter().map(|operation| operation.action).collect()
    }

    fn is_sent(&self) -> bool {
        self.outputs.iter().any(|output| matches!(output, Output::Command(Command::Store { .. })))
    }

    /// The heartbeat that was just sent.
    fn beat(&self) -> Beat {
        *self.sent().1.beat().unwrap_or_else(|| panic!("no heartbeat: {:?}", self.outputs))
    }

    fn opens(&self) -> bool {
        matches!(self.sent().1.step, SessionStep::Open { .. })
    }

    fn reply(&mut self, id: u64, outcomes: impl IntoIterator<Item = Outcome>) -> &[Output] {
        self.input(Input::Reply { id, result: Ok(said(outcomes)) })
    }

    /// Says of what was just sent that nobody knows whether it was applied.
    fn lose_reply(&mut self) -> &[Output] {
        self.lose_reply_of(self.sent().0)
    }

    fn lose_reply_of(&mut self, id: u64) -> &[Output] {
        self.input(Input::Reply { id, result: Err(StoreError::unknown("no answer")) })
    }

    /// Answers what was just sent.
    fn answer(&mut self, outcomes: impl IntoIterator<Item = Outcome>) -> &[Output] {
        self.reply(self.sent().0, outcomes)
    }

    /// Refuses what was just sent, if anything; how many operations that was.
    fn refuse(&mut self) -> Option<usize> {
        let (id, batch) = self.is_sent().then(|| self.sent())?;
        self.input(Input::Reply { id, result: Err(StoreError::transient("down")) });
        Some(batch.operations.len())
    }

    fn signal(&mut self, body: Body) -> &[Output] {
        let key = self.key.clone();
        self.input(Input::Message(Message { store: STORE, key, body }))
    }

    fn tick(&mut self, after_ms: u64) -> &[Output] {
        self.now_ms += after_ms;
        self.input(Input::Tick)
    }

    fn remaining_ms(&self, turn: u64) -> u64 {
        self.machine.remaining_ms(TurnId(turn), &self.slot(), self.now())
    }

    fn result(&mut self, id: u64, result: Result<Reply, StoreError>) -> Vec<Output> {
        self.input(Input::Reply { id, result }).to_vec()
    }

    fn ask_for(&mut self, turn: Turn) -> Vec<Output> {
        self.input(Input::Acquire(turn)).to_vec()
    }

    /// Lets time pass until something is sent.
    fn until_sent(&mut self) -> Vec<Action> {
        for _ in 0..1_000 {
            if self.is_sent() {
                return self.actions();
            }
            self.tick(10);
        }
        panic!("nothing was sent");
    }

    /// A script whose first turn holds the key.
    fn holding() -> Self {
        let mut script = Self::new();
        script.acquire(1, true);
        script.answer([granted(64)]);
        script
    }

    /// The first request shares the key.
    fn shares(&mut self) -> Slot {
        let turn = Turn { mode: Mode::Shared, ..Turn::new(TurnId(1), self.key.clone()) };
        let slot = turn.slot();
        self.ask_for(turn);
        self.answer([granted(64)]);
        slot
    }

    /// Queues behind another holder; the request's number.
    fn queue(&mut self, turn: u64, last_token: u64) -> RequestId {
        self.acquire(turn, true);
        let Action::Acquire(acquire) = self.actions().remove(0) else { panic!("a request acquires") };
        self.answer([waiting(last_token, 1)]);
        acquire.request
    }
}

fn block(first: u64) -> TokenBlock {
    TokenBlock { first: Token(first), last: Token(first + 63) }
}

/// What a store says in which the asking session has a row, and was not robbed.
fn said(outcomes: impl IntoIterator<Item = Outcome>) -> Reply {
    let answers = outcomes.into_iter().map(Answer::from).collect();
    Reply { store: STORE, robbed: Some(Vec::new()), peers: Vec::new(), answers }
}

fn granted(first: u64) -> Outcome {
    Outcome::Granted(Granted { block: block(first), previous: Token(0), contended: false })
}

fn seen(beat: u64, beacon: bool) -> Sighting {
    let request = RequestId(99);
    Sighting { holder: OTHER, entry: Entry::Grant(Token(64)), request, beat, beacon, lease_ms: LEASE_MS, twin: false }
}

fn waiting(last_token: u64, beat: u64) -> Outcome {
    Outcome::Waiting { last_token: Token(last_token), position: 1, ahead: [seen(beat, false)].into() }
}

fn looked(request: RequestId, last_token: u64, beat: u64) -> Outcome {
    Outcome::Looked { requests: [request].into(), last_token: Token(last_token), ahead: [seen(beat, false)].into() }
}

fn current() -> Outcome {
    Outcome::Current { contended: false, refill: None }
}

fn heir(request: RequestId, first: u64) -> Body {
    Body::Granted { holder: ME, request, block: block(first), previous: Token(0), contended: false }
}

fn is_granted(outputs: &[Output]) -> bool {
    outputs.iter().any(|output| matches!(output, Output::Event(Event::Granted { .. })))
}

fn is_lost(outputs: &[Output]) -> bool {
    outputs.iter().any(|output| matches!(output, Output::Event(Event::Lost { .. })))
}

fn events(outputs: &[Output]) -> Vec<Event> {
    let event = |output: &Output| match output {
        Output::Event(event) => Some(event.clone()),
        _ => None,
    };
    outputs.iter().filter_map(event).collect()
}

fn named(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn taken(holder: SessionId, first: u64, request: RequestId) -> Sighting {
    Sighting { holder, entry: Entry::Grant(Token(first)), request, ..seen(1, false) }
}
