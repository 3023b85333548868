//! A context without a driver: its state machine alone, for the figures of the core.

use std::time::Duration;

use cpu_time::ThreadTime;
use leasehold::machine::{
    Batch, Command, Config, Event, Input, Key, Machine, Monotonic, Now, Options, Output, Records, Row, SessionId,
    SessionStep, StoreClock, StoreId, StoreNow, Turn, TurnId, Wall,
};

use crate::figures::{micros, now};

/// A context without a runtime, over a store in memory.
pub(crate) struct Context {
    machine: Machine,
    pub(crate) ms: u64,
    pub(crate) sent: Option<(u64, Batch)>,
    pub(crate) granted: usize,
}

impl Context {
    pub(crate) fn new(number: u128) -> Self {
        let options = Options { beacon: false, linger: Duration::ZERO, ..Options::default() };
        let config = Config::parse(&options).expect("the default options fit together");
        // The last byte of an id stays, the rest is anything.
        Self { machine: Machine::new(config, SessionId(number << 8)), ms: 1_000, sent: None, granted: 0 }
    }

    pub(crate) fn handle(&mut self, input: Input) {
        let at = Now { monotonic: Monotonic::from_ms(self.ms), wall: Wall::from_ms(1_700_000_000_000 + self.ms) };
        self.machine.handle(input, at);
        loop {
            match self.machine.poll_output() {
                Output::Timeout(_) => return,
                Output::Command(Command::Store { id, batch }) => self.sent = Some((id, batch)),
                Output::Event(Event::Granted { .. }) => self.granted += 1,
                _ => {}
            }
        }
    }

    pub(crate) fn acquire(&mut self, turn: Turn) {
        self.handle(Input::Acquire(turn));
    }

    /// Runs the transactions that were sent, and returns how many bytes they wrote.
    pub(crate) fn run(&mut self, records: &mut Records) -> usize {
        let mut bytes = 0;
        while let Some((id, batch)) = self.sent.take() {
            bytes += self.run_one(id, &batch, records);
        }
        bytes
    }

    fn run_one(&mut self, id: u64, batch: &Batch, records: &mut Records) -> usize {
        let at = Now { monotonic: Monotonic::from_ms(self.ms), wall: Wall::from_ms(1_700_000_000_000 + self.ms) };
        let reply = batch.apply(records, StoreNow::new(StoreClock::Observed, at));
        let changed: Vec<Row> = records.take_changed();
        let bytes = changed.iter().filter_map(|row| records.text(row)).map(|text| text.len()).sum();
        self.handle(Input::Reply { id, result: Ok(reply) });
        bytes
    }

    /// One heartbeat: the microseconds of the tick, the transaction and the reply, and the bytes that it writes.
    fn heartbeat(&mut self, records: &mut Records) -> (f64, usize) {
        loop {
            self.ms += 50;
            let start = now();
            self.handle(Input::Tick);
            let Some((id, batch)) = self.sent.take() else { continue };
            let beats = matches!(batch.step, SessionStep::Beat(_));
            let bytes = self.run_one(id, &batch, records);
            let spent = micros(start.elapsed());
            self.run(records);
            if beats {
                return (spent, bytes);
            }
        }
    }

    /// The CPU time of all that it does from one heartbeat to the next, in microseconds.
    pub(crate) fn interval(&mut self, records: &mut Records) -> f64 {
        self.heartbeat(records);
        let start = ThreadTime::now();
        self.heartbeat(records);
        micros(start.elapsed())
    }

    /// The shortest of several heartbeats: other programs can only make one longer. The other contexts send theirs in between: if they were
    /// silent for as long, this context would end their sessions.
    pub(crate) fn calm_heartbeat(&mut self, records: &mut Records, others: &mut [Self]) -> (f64, usize) {
        let mut next = || {
            others.iter_mut().for_each(|other| _ = other.heartbeat(records));
            self.heartbeat(records)
        };
        let beats: Vec<_> = (0..9).map(|_| next()).collect();
        let least = beats.iter().map(|beat| beat.0).fold(f64::INFINITY, f64::min);
        (least, beats.iter().map(|beat| beat.1).max().unwrap_or_default())
    }
}

pub(crate) fn turn(id: u64, key: &str) -> Turn {
    Turn::new(TurnId(id), Key::new(key).expect("the name is short"))
}

pub(crate) fn store() -> Records {
    Records::whole(StoreId(1))
}
