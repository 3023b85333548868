//! A store with a clock of its own, for the tests of what a store does.

use alloc::{vec, vec::Vec};

use super::{
    Acquire, Action, Answer, Batch, Beat, Granted, Mode, Operation, Outcome, Record, Records, Reply, RequestId,
    Session, SessionId, SessionStep, StoreNow, Token, TokenBlock, Way,
    id::StoreId,
    key::Key,
    time::{Monotonic, Wall},
};

pub(super) const A: SessionId = SessionId(0xa);
pub(super) const B: SessionId = SessionId(0xb);
pub(super) const C: SessionId = SessionId(0xc);
pub(super) const D: SessionId = SessionId(0xd);
pub(super) const STORE: StoreId = StoreId(9);
pub(super) const LEASE_MS: u64 = 1_000;

/// One store. Unless a test says otherwise, the key is "k", and whoever asks for the first time opens a session.
#[derive(Clone)]
pub(super) struct Bench {
    pub(super) records: Records,
    pub(super) now_ms: u64,
    trusted: bool,
    beat: u64,
    opened: Vec<SessionId>,
}

pub(super) fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

pub(super) fn block(answer: &Answer) -> TokenBlock {
    match answer.outcome {
        Outcome::Granted(Granted { block, .. }) => block,
        ref other => panic!("{other:?}"),
    }
}

/// A context's first request is given for an exclusive grant.
pub(super) fn upgrade(token: Token) -> Way {
    Way::Upgrade { token, request: RequestId(1) }
}

pub(super) fn promoted(answer: &Answer) -> Vec<SessionId> {
    answer.promoted.iter().map(|promotion| promotion.holder).collect()
}

pub(super) fn open(session: SessionId, beat: Beat) -> Batch {
    Batch { step: SessionStep::Open { beat, instance: "".into() }, ..Batch::new(session, vec![]) }
}

pub(super) fn beat(session: SessionId, beat: Beat) -> Batch {
    Batch { step: SessionStep::Beat(beat), ..Batch::new(session, vec![]) }
}

pub(super) fn close(session: SessionId) -> Batch {
    Batch { step: SessionStep::Close, ..Batch::new(session, vec![]) }
}

pub(super) fn operation(name: &str, action: Action) -> Operation {
    Operation { key: key(name), action }
}

impl Bench {
    pub(super) fn new(trusted: bool) -> Self {
        Self { records: Records::whole(STORE), now_ms: 1_000, trusted, beat: 0, opened: Vec::new() }
    }

    pub(super) fn now(&self) -> StoreNow {
        let trusted = self.trusted.then_some(Monotonic::from_ms(self.now_ms));
        StoreNow { wall: Wall::from_ms(self.now_ms), trusted }
    }

    /// Applies a batch as it is: nobody opens a session unasked.
    pub(super) fn run(&mut self, batch: &Batch) -> Reply {
        let now = self.now();
        batch.apply(&mut self.records, now)
    }

    pub(super) fn next_beat(&mut self) -> u64 {
        self.beat += 1;
        self.beat
    }

    pub(super) fn open(&mut self, session: SessionId, lease_ms: u64) {
        self.opened.push(session);
        let beat = Beat { beat: self.next_beat(), lease_ms, ..Beat::default() };
        self.run(&open(session, beat));
    }

    pub(super) fn beat(&mut self, session: SessionId, lease_ms: u64) {
        let next = Beat { beat: self.next_beat(), lease_ms, ..Beat::default() };
        self.run(&beat(session, next));
    }

    pub(super) fn at(&mut self, name: &str, session: SessionId, action: Action) -> Answer {
        if !self.opened.contains(&session) {
            self.open(session, LEASE_MS);
        }
        self.run(&Batch::new(session, vec![operation(name, action)])).answers.remove(0)
    }

    pub(super) fn apply(&mut self, session: SessionId, action: Action) -> Answer {
        self.at("k", session, action)
    }

    /// A request that waits.
    pub(super) fn plain(&mut self, request: u64, mode: Mode) -> Acquire {
        Acquire { mode, wait: true, ..Acquire::new(RequestId(request), self.next_beat()) }
    }

    pub(super) fn ask(&mut self, session: SessionId, request: u64, mode: Mode) -> Answer {
        self.ask_by(session, request, mode, Way::Plain)
    }

    pub(super) fn ask_by(&mut self, session: SessionId, request: u64, mode: Mode, way: Way) -> Answer {
        let ask = Acquire { way, ..self.plain(request, mode) };
        self.apply(session, Action::Acquire(ask))
    }

    pub(super) fn granted(&mut self, session: SessionId, request: u64, mode: Mode) -> TokenBlock {
        block(&self.ask(session, request, mode))
    }

    pub(super) fn queued(&mut self, session: SessionId, request: u64, mode: Mode) {
        let answer = self.ask(session, request, mode);
        assert!(matches!(answer.outcome, Outcome::Waiting { .. }), "{answer:?}");
    }

    /// A try, exclusive: whether it was refused.
    pub(super) fn refused(&mut self, session: SessionId, request: u64) -> bool {
        let ask = Acquire { wait: false, ..self.plain(request, Mode::Exclusive) };
        matches!(self.apply(session, Action::Acquire(ask)).outcome, Outcome::Busy { .. })
    }

    pub(super) fn release(&mut self, session: SessionId, request: u64, token: Token) -> Answer {
        self.apply(session, Action::Release { token, request: RequestId(request) })
    }

    pub(super) fn verify(&mut self, session: SessionId, request: u64, token: Token, refill: bool) -> Outcome {
        self.apply(session, Action::Verify { token, request: RequestId(request), refill }).outcome
    }

    pub(super) fn record_mut(&mut self, name: &str) -> &mut Record {
        self.records.open(&key(name)).unwrap().0
    }

    pub(super) fn record(&self) -> &Record {
        self.records.peek(&key("k")).unwrap()
    }

    pub(super) fn row(&self, session: SessionId) -> Option<&Session> {
        self.records.session(session)
    }

    pub(super) fn holders(&self) -> Vec<SessionId> {
        let record = self.records.peek(&key("k"));
        record.into_iter().flat_map(|record| &record.grants).map(|grant| grant.holder).collect()
    }

    pub(super) fn waiting(&self) -> Vec<SessionId> {
        let record = self.records.peek(&key("k"));
        record.into_iter().flat_map(|record| &record.queue).map(|waiter| waiter.holder).collect()
    }
}
