//! A context over a store that does what it is asked; the test decides when, and who hears of it.

use alloc::vec::Vec;

use super::{STORE, Script, events, named};
use crate::machine::{
    Batch, Event, Input, Mode, Records, Reply, RequestId, SessionId, Slot, StoreClock, StoreError, StoreErrorKind,
    StoreNow, Ticket, Turn, TurnId,
};

/// A machine, and a store that does what it is asked.
pub(super) struct Served {
    pub(super) script: Script,
    pub(super) records: Records,
    pub(super) told: Vec<Event>,
}

impl Served {
    pub(super) fn new() -> Self {
        Self { script: Script::new(), records: Records::whole(STORE), told: Vec::new() }
    }

    pub(super) fn apply(&mut self, batch: &Batch) -> Reply {
        let now = StoreNow::new(StoreClock::Observed, self.script.now());
        batch.apply(&mut self.records, now)
    }

    pub(super) fn hear(&mut self) {
        self.told.extend(events(&self.script.outputs));
    }

    pub(super) fn input(&mut self, input: Input) {
        self.script.input(input);
        self.hear();
    }

    pub(super) fn ask(&mut self, turn: Turn) {
        self.input(Input::Acquire(turn));
    }

    /// Answers what is sent until nothing more is.
    pub(super) fn serve(&mut self) {
        while self.script.is_sent() {
            let (id, batch) = self.script.sent();
            let reply = self.apply(&batch);
            self.input(Input::Reply { id, result: Ok(reply) });
        }
    }

    pub(super) fn pass(&mut self, ms: u64) {
        for _ in 0..ms / 10 {
            self.script.tick(10);
            self.hear();
            self.serve();
        }
    }

    pub(super) fn until_sent(&mut self) -> (u64, Batch) {
        for _ in 0..1_000 {
            if self.script.is_sent() {
                return self.script.sent();
            }
            self.script.tick(10);
            self.hear();
        }
        panic!("nothing was sent");
    }

    /// What was just sent is applied, and its answer is lost.
    pub(super) fn lose_reply(&mut self) {
        let (id, batch) = self.script.sent();
        self.apply(&batch);
        self.input(Input::Reply { id, result: Err(StoreError::unknown("no answer")) });
    }

    /// A fenced write that renews, from a transaction of the user's that was opened before.
    pub(super) fn fence_and_renew(&mut self, turn: u64, slot: &Slot) {
        let ticket: Ticket = self.script.machine.ticket(TurnId(turn), slot, true, self.script.now()).unwrap();
        self.input(Input::Tick);
        let reply = self.apply(&ticket.batch);
        self.input(Input::Fenced { slot: slot.clone(), ticket: ticket.into(), reply });
    }

    pub(super) fn grants(&self, key: &str) -> Vec<(SessionId, RequestId)> {
        let record = self.records.peek(&named(key));
        record.into_iter().flat_map(|record| &record.grants).map(|grant| (grant.holder, grant.request)).collect()
    }

    pub(super) fn is_granted(&self, turn: u64) -> bool {
        self.told.iter().any(|event| matches!(event, Event::Granted { turn: told, .. } if *told == TurnId(turn)))
    }
}

pub(super) fn slot(key: &str, mode: Mode) -> Slot {
    Slot { key: named(key), mode, own: None }
}

pub(super) fn permanent() -> StoreError {
    StoreError::permanent(StoreErrorKind::Unavailable, "never")
}

impl Served {
    pub(super) fn refuse_for_good(&mut self) {
        let id = self.script.sent().0;
        self.input(Input::Reply { id, result: Err(permanent()) });
    }
}
