//! A store that does not answer, answers too late, or is kept busy. A request without a time limit fails after one lease, whatever it
//! waited for before.

use alloc::{vec, vec::Vec};
use core::time::Duration;

use super::{
    ME, OTHER, Script, named,
    served::{Served, slot},
};
use crate::machine::{
    Batch, Config, Event, Input, Key, Machine, Mode, Options, Reply, SessionId, StoreError, Turn, TurnId,
};

const LEASE_MS: u64 = 3_000;
const STORE_TIMEOUT_MS: u64 = 750;

/// What goes wrong with each transaction.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Silence,
    /// The transaction is applied, and its answer comes after the time-out.
    Lateness,
    Busyness {
        after_ms: u64,
    },
    LostAnswer,
}

const TROUBLES: [Trouble; 5] = [
    Trouble::Silence,
    Trouble::Lateness,
    Trouble::Busyness { after_ms: 10 },
    Trouble::Busyness { after_ms: 600 },
    Trouble::LostAnswer,
];

impl Trouble {
    fn answers_after_ms(self) -> Option<u64> {
        match self {
            Self::Silence => None,
            Self::Lateness => Some(STORE_TIMEOUT_MS + 50),
            Self::Busyness { after_ms } => Some(after_ms),
            Self::LostAnswer => Some(10),
        }
    }

    fn answer(self, served: &mut Served, batch: &Batch) -> Result<Reply, StoreError> {
        match self {
            Self::Busyness { .. } => Err(StoreError::busy("others keep it")),
            Self::LostAnswer => Err(StoreError::unknown("no answer")),
            Self::Silence | Self::Lateness => Ok(served.apply(batch)),
        }
    }
}

fn machine(session: SessionId) -> Machine {
    let lease = Duration::from_millis(LEASE_MS);
    let options = Options { beacon: false, linger: Duration::ZERO, lease, ..Options::default() };
    Machine::new(Config::parse(&options).unwrap(), session)
}

impl Served {
    fn with_short_lease() -> Self {
        let mut served = Self::new();
        served.script.machine = machine(ME);
        served
    }

    /// Its first turn is granted a lease.
    fn granted(turn: Turn) -> Self {
        let mut served = Self::with_short_lease();
        served.ask(turn);
        served.serve();
        served
    }

    /// Another context holds the key.
    fn beside(mode: Mode) -> Self {
        let (mut served, mut other) = (Self::with_short_lease(), Script::new());
        other.machine = machine(OTHER);
        other.ask_for(Turn { mode, ..first() });
        served.apply(&other.sent().1);
        served
    }

    /// The context makes its second request after this time. Nothing that it sends from then on is answered.
    fn asks_after(mut self, ms: u64, turn: Turn) -> Self {
        self.pass(ms);
        self.ask(turn);
        self
    }

    /// The context makes its second request, which waits. After this time nothing is answered any more.
    fn waits_for(mut self, ms: u64, turn: Turn) -> Self {
        self.ask(turn);
        self.serve();
        self.pass(ms);
        self
    }

    /// Lets the trouble last until the second request fails, and returns how long that took.
    fn fails_after_ms(&mut self, trouble: Trouble) -> u64 {
        let (since, mut sent) = (self.script.now_ms, Vec::new());
        self.note_sent(trouble, &mut sent);
        while self.script.now_ms < since + 3 * LEASE_MS {
            let now = self.script.now_ms;
            match sent.iter().position(|(at, ..)| *at <= now) {
                Some(at) => {
                    let (_, id, batch) = sent.remove(at);
                    let result = trouble.answer(self, &batch);
                    self.input(Input::Reply { id, result });
                }
                None => {
                    self.script.tick(10);
                    self.hear();
                }
            }
            self.note_sent(trouble, &mut sent);
            if self.told.iter().any(|event| matches!(event, Event::Failed { turn: TurnId(2), .. })) {
                break;
            }
        }
        self.script.now_ms - since
    }

    fn note_sent(&self, trouble: Trouble, sent: &mut Vec<(u64, u64, Batch)>) {
        if let Some(after_ms) = trouble.answers_after_ms().filter(|_| self.script.is_sent()) {
            let (id, batch) = self.script.sent();
            sent.push((self.script.now_ms + after_ms, id, batch));
        }
    }
}

fn first() -> Turn {
    Turn::new(TurnId(1), named("k"))
}

fn second() -> Turn {
    Turn::new(TurnId(2), named("k"))
}

/// The sessions, leases and places in the queue that a context may have when the trouble begins, after so many ms.
fn situations(ms: u64) -> Vec<(&'static str, Served)> {
    let holds_another = || Served::granted(Turn::new(TurnId(1), named("another")));
    let of_lock = |turn| Turn { alone: true, ..Turn::new(TurnId(turn), Key::of_lock("k")) };
    let mut several = holds_another();
    several.pass(ms);
    let alone = |turn, key| Turn { alone: true, ..Turn::new(TurnId(turn), named(key)) };
    several.input(Input::AcquireAll(vec![alone(2, "a"), alone(3, "b")]));
    let mut upgrade = Served::beside(Mode::Shared);
    upgrade.ask(Turn { mode: Mode::Shared, ..first() });
    upgrade.serve();
    upgrade.input(Input::Upgrade { query: TurnId(2), turn: TurnId(1), slot: slot("k", Mode::Shared) });
    upgrade.serve();
    upgrade.pass(ms);
    vec![
        ("without a session", Served::with_short_lease().asks_after(ms, second())),
        ("with a session", holds_another().asks_after(ms, second())),
        ("queued", Served::beside(Mode::Exclusive).waits_for(ms, second())),
        ("behind its own guard", Served::granted(first()).waits_for(ms, second())),
        (
            "behind a guard that does not renew",
            Served::granted(Turn { renews: false, ..first() }).asks_after(ms, second()),
        ),
        (
            "behind a guard that ends",
            Served::granted(Turn { max_hold_ms: Some(2_600), ..first() }).asks_after(ms, second()),
        ),
        ("behind its own lock", Served::granted(of_lock(1)).waits_for(ms, of_lock(2))),
        ("for several keys", several),
        ("for an upgrade", upgrade),
    ]
}

#[test]
fn a_request_without_a_time_limit_fails_after_one_lease() {
    for trouble in TROUBLES {
        for ms in (0..2_000).step_by(250) {
            for (what, mut served) in situations(ms) {
                let failed_ms = served.fails_after_ms(trouble);
                // The last attempt may begin just before the lease is over, and then takes a whole time-out.
                let longest_ms = LEASE_MS + STORE_TIMEOUT_MS + 100;
                assert!(failed_ms <= longest_ms, "{what}, {trouble:?} after {ms} ms: {failed_ms} ms");
            }
        }
    }
}

/// Once the store answers again, nothing of a request that failed stands there.
#[test]
fn a_request_that_failed_leaves_nothing_behind() {
    for trouble in TROUBLES {
        for ms in (0..2_000).step_by(250) {
            for (what, mut served) in situations(ms) {
                served.fails_after_ms(trouble);
                served.pass(4 * LEASE_MS);
                let holds = |turn| {
                    let ended =
                        |event: &Event| matches!(event, Event::Lost { turn: told, .. } if *told == TurnId(turn));
                    served.is_granted(turn) && !served.told.iter().any(ended)
                };
                let held = [1, 2, 3].into_iter().filter(|turn| holds(*turn)).count();
                let keys = [named("k"), named("a"), named("b"), named("another"), Key::of_lock("k")];
                let records = || keys.iter().filter_map(|key| served.records.peek(key));
                let counts = |holder| holder != OTHER && served.records.session(holder).is_some();
                let granted = records().flat_map(|record| &record.grants).filter(|grant| counts(grant.holder)).count();
                let queued = records().flat_map(|record| &record.queue).filter(|place| counts(place.holder)).count();
                assert_eq!((granted, queued), (held, 0), "{what}, {trouble:?} after {ms} ms: {:?}", served.told);
            }
        }
    }
}
