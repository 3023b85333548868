//! Modes, priorities, thefts, upgrades and downgrades, as a store does them.

mod letters;

use alloc::{vec, vec::Vec};

use super::{
    Acquire, Action, Answer, Granted, Incarnation, Key, Mode, Monotonic, Operation, Outcome, Record, Records,
    RequestId, StoreNow, Token, TokenBlock, Wall, Way,
};

const A: Incarnation = Incarnation(0xa);
const B: Incarnation = Incarnation(0xb);
const C: Incarnation = Incarnation(0xc);
const D: Incarnation = Incarnation(0xd);

struct Bench {
    records: Records,
    now_ms: u64,
    trusted: bool,
    beat: u64,
}

impl Bench {
    fn new(trusted: bool) -> Self {
        Self { records: Records::new(), now_ms: 1_000, trusted, beat: 0 }
    }

    fn at(&mut self, key: &str, holder: Incarnation, action: Action) -> Answer {
        let trusted = self.trusted.then_some(Monotonic::from_ms(self.now_ms));
        let now = StoreNow { wall: Wall::from_ms(self.now_ms), trusted };
        Operation { key: Key::new(key).unwrap(), holder, action }.apply(&mut self.records, now)
    }

    fn apply(&mut self, holder: Incarnation, action: Action) -> Answer {
        self.at("k", holder, action)
    }

    /// A request for 1000 ms that waits; at first, as an heir, for 400 ms.
    fn plain(&mut self, request: u64, mode: Mode) -> Acquire {
        self.beat += 1;
        Acquire { mode, wait: true, heir_ms: 400, ..Acquire::new(RequestId(request), self.beat, 1_000) }
    }

    fn ask(&mut self, holder: Incarnation, request: u64, mode: Mode) -> Answer {
        let ask = self.plain(request, mode);
        self.apply(holder, Action::Acquire(ask))
    }

    fn ask_by(&mut self, holder: Incarnation, request: u64, mode: Mode, way: Way) -> Answer {
        let ask = Acquire { way, ..self.plain(request, mode) };
        self.apply(holder, Action::Acquire(ask))
    }

    fn granted(&mut self, holder: Incarnation, request: u64, mode: Mode) -> TokenBlock {
        block(&self.ask(holder, request, mode))
    }

    fn queued(&mut self, holder: Incarnation, request: u64, mode: Mode) {
        let answer = self.ask(holder, request, mode);
        assert!(matches!(answer.outcome, Outcome::Waiting { .. }), "{answer:?}");
    }

    fn release(&mut self, holder: Incarnation, request: u64, token: Token) -> Answer {
        self.apply(holder, Action::Release { token, request: RequestId(request) })
    }

    fn renew(&mut self, holder: Incarnation, token: Token, beat: u64, lease_ms: u64, refill: bool) -> Outcome {
        self.apply(holder, Action::Renew { token, beat, beacon: beat, lease_ms, refill }).outcome
    }

    fn record(&self) -> &Record {
        self.records.peek(&Key::new("k").unwrap()).unwrap()
    }

    fn holders(&self) -> Vec<Incarnation> {
        self.record().grants.iter().map(|grant| grant.holder).collect()
    }

    fn waiting(&self) -> Vec<Incarnation> {
        self.record().queue.iter().map(|waiter| waiter.holder).collect()
    }
}

fn block(answer: &Answer) -> TokenBlock {
    match answer.outcome {
        Outcome::Granted(Granted { block, .. }) => block,
        ref other => panic!("{other:?}"),
    }
}

fn promoted(answer: &Answer) -> Vec<Incarnation> {
    answer.promoted.iter().map(|promotion| promotion.holder).collect()
}

#[test]
fn readers_share_and_a_writer_is_alone() {
    let mut bench = Bench::new(false);
    let first = bench.granted(A, 1, Mode::Shared);
    let second = bench.granted(B, 1, Mode::Shared);
    assert!(second.first > first.last);
    bench.queued(C, 1, Mode::Exclusive);
    bench.queued(D, 1, Mode::Shared);
    assert_eq!(bench.waiting(), [C, D], "a reader does not pass a writer who waits");
    assert_eq!(promoted(&bench.release(A, 1, first.first)), []);
    assert_eq!(promoted(&bench.release(B, 1, second.first)), [C]);
    let writer = bench.record().grants[0].block;
    assert!(writer.first > second.last, "I13: a writer's token exceeds every earlier reader's");
    assert_eq!(promoted(&bench.release(C, 1, writer.first)), [D]);
}

#[test]
fn all_leading_readers_are_granted_together() {
    let mut bench = Bench::new(false);
    let writer = bench.granted(A, 1, Mode::Exclusive);
    bench.queued(B, 1, Mode::Shared);
    bench.queued(C, 1, Mode::Shared);
    bench.queued(D, 1, Mode::Exclusive);
    bench.queued(A, 2, Mode::Shared);
    let answer = bench.release(A, 1, writer.first);
    assert_eq!(promoted(&answer), [B, C]);
    assert_eq!((bench.holders(), bench.waiting()), (vec![B, C], vec![D, A]));
    assert!(answer.promoted.iter().all(|promotion| promotion.previous == writer.last));
}

#[test]
fn a_larger_priority_goes_first_and_may_be_raised() {
    let mut bench = Bench::new(false);
    let held = bench.granted(A, 1, Mode::Exclusive);
    for (holder, priority) in [(B, 0), (C, -1), (D, 7)] {
        let ask = Acquire { priority, ..bench.plain(1, Mode::Exclusive) };
        bench.apply(holder, Action::Acquire(ask));
    }
    assert_eq!(bench.waiting(), [D, B, C]);
    let raised = Acquire { priority: 7, ..bench.plain(1, Mode::Exclusive) };
    bench.apply(C, Action::Acquire(raised));
    assert_eq!(bench.waiting(), [C, D, B], "within a priority, who came first");
    assert_eq!(promoted(&bench.release(A, 1, held.first)), [C]);
}

#[test]
fn a_reader_of_higher_priority_passes_a_writer_who_waits() {
    let mut bench = Bench::new(false);
    bench.granted(A, 1, Mode::Shared);
    bench.queued(B, 1, Mode::Exclusive);
    let urgent = Acquire { priority: 1, wait: false, ..bench.plain(1, Mode::Shared) };
    let answer = bench.apply(C, Action::Acquire(urgent));
    assert!(matches!(answer.outcome, Outcome::Granted(Granted { contended: true, .. })), "{answer:?}");
}

#[test]
fn places_are_one_per_holder_and_mode_but_those_that_stand_alone() {
    let mut bench = Bench::new(false);
    bench.granted(A, 1, Mode::Exclusive);
    bench.queued(B, 1, Mode::Exclusive);
    bench.queued(B, 2, Mode::Shared);
    bench.queued(B, 3, Mode::Exclusive);
    for request in [4, 5] {
        let alone = Acquire { alone: true, ..bench.plain(request, Mode::Exclusive) };
        bench.apply(B, Action::Acquire(alone));
    }
    let places: Vec<_> = bench.record().queue.iter().map(|waiter| waiter.request.0).collect();
    assert_eq!(places, [2, 3, 4, 5]);
}

#[test]
fn a_theft_tells_the_robbed_and_leaves_the_queue() {
    let mut bench = Bench::new(false);
    let (first, second) = (bench.granted(A, 1, Mode::Shared), bench.granted(B, 1, Mode::Shared));
    bench.queued(C, 1, Mode::Exclusive);
    let answer = bench.ask_by(D, 1, Mode::Exclusive, Way::Steal);
    let stolen = block(&answer);
    assert_eq!(answer.robbed, [(A, first.first), (B, second.first)]);
    assert!(answer.promoted.is_empty() && stolen.first > second.last);
    assert_eq!((bench.holders(), bench.waiting()), (vec![D], vec![C]), "who waits goes on waiting");
    for (holder, block) in [(A, first), (B, second)] {
        let renewed = bench.renew(holder, block.first, 99, 1_000, false);
        assert!(matches!(renewed, Outcome::NotCurrent { stolen: true, .. }), "{renewed:?}");
    }
    let retried = bench.ask_by(D, 1, Mode::Exclusive, Way::Steal);
    assert_eq!((block(&retried), retried.robbed.len()), (stolen, 0), "asked again, it robs nobody");
}

#[test]
fn the_last_eight_thefts_are_remembered() {
    let mut bench = Bench::new(false);
    let mut tokens = vec![bench.granted(A, 1, Mode::Exclusive).first];
    for request in 2..11 {
        tokens.push(block(&bench.ask_by(A, request, Mode::Exclusive, Way::Steal)).first);
    }
    assert_eq!(bench.record().stolen, tokens[1..9]);
}

/// A request that waits may turn into a theft: other requests of its context joined it.
#[test]
fn a_thief_that_queues_already_gets_what_it_robs() {
    let mut bench = Bench::new(false);
    let held = bench.granted(A, 1, Mode::Exclusive);
    bench.queued(B, 1, Mode::Exclusive);
    bench.queued(C, 1, Mode::Exclusive);
    let answer = bench.ask_by(C, 1, Mode::Exclusive, Way::Steal);
    assert_eq!(answer.robbed, [(A, held.first)]);
    assert_eq!((bench.holders(), bench.waiting()), (vec![C], vec![B]), "{answer:?}");
}

#[test]
fn a_thief_that_does_not_wait_gets_what_it_robs() {
    let mut bench = Bench::new(false);
    bench.granted(A, 1, Mode::Exclusive);
    bench.queued(B, 1, Mode::Exclusive);
    let ask = Acquire { way: Way::Steal, wait: false, ..bench.plain(1, Mode::Exclusive) };
    block(&bench.apply(C, Action::Acquire(ask)));
    assert_eq!((bench.holders(), bench.waiting()), (vec![C], vec![B]));
}

#[test]
fn an_upgrade_waits_for_the_other_readers_ahead_of_all_and_a_second_one_conflicts() {
    let mut bench = Bench::new(false);
    let (first, second) = (bench.granted(A, 1, Mode::Shared), bench.granted(B, 1, Mode::Shared));
    let urgent = Acquire { priority: 9, ..bench.plain(1, Mode::Exclusive) };
    bench.apply(C, Action::Acquire(urgent));
    let waits = bench.ask_by(A, 2, Mode::Exclusive, Way::Upgrade(first.first));
    assert!(matches!(waits.outcome, Outcome::Waiting { .. }), "{waits:?}");
    assert_eq!((bench.holders(), bench.waiting()), (vec![A, B], vec![A, C]), "it goes on sharing meanwhile");
    let before = bench.record().clone();
    let conflict = bench.ask_by(B, 2, Mode::Exclusive, Way::Upgrade(second.first));
    assert_eq!((conflict.outcome, bench.record()), (Outcome::UpgradeConflict, &before));
    assert_eq!(promoted(&bench.release(B, 1, second.first)), [A]);
    assert_eq!((bench.holders(), bench.waiting()), (vec![A], vec![C]));
}

#[test]
fn an_upgrade_goes_with_the_grant_that_it_would_give() {
    let mut bench = Bench::new(false);
    let (first, second) = (bench.granted(A, 1, Mode::Shared), bench.granted(B, 1, Mode::Shared));
    bench.ask_by(A, 2, Mode::Exclusive, Way::Upgrade(first.first));
    bench.release(A, 1, first.first);
    assert_eq!((bench.holders(), bench.waiting()), (vec![B], vec![]));
    let late = bench.ask_by(A, 3, Mode::Exclusive, Way::Upgrade(first.first));
    assert!(matches!(late.outcome, Outcome::NotCurrent { .. }), "{late:?}");
    block(&bench.ask_by(B, 2, Mode::Exclusive, Way::Upgrade(second.first)));
}

#[test]
fn the_upgrade_of_a_holder_that_ran_out_is_no_conflict() {
    let mut bench = Bench::new(true);
    let first = bench.granted(A, 1, Mode::Shared);
    bench.now_ms += 600;
    let second = bench.granted(B, 1, Mode::Shared);
    bench.ask_by(A, 2, Mode::Exclusive, Way::Upgrade(first.first));
    bench.now_ms += 400;
    let upgraded = bench.ask_by(B, 2, Mode::Exclusive, Way::Upgrade(second.first));
    assert!(matches!(upgraded.outcome, Outcome::Granted(_)), "{upgraded:?}");
}

#[test]
fn a_reader_is_not_refused_for_one_who_is_granted_with_it() {
    let mut bench = Bench::new(true);
    bench.granted(A, 1, Mode::Exclusive);
    bench.now_ms += 600;
    bench.queued(B, 1, Mode::Shared);
    bench.now_ms += 400;
    let tries = Acquire { wait: false, ..bench.plain(1, Mode::Shared) };
    let answer = bench.apply(C, Action::Acquire(tries));
    assert!(matches!(answer.outcome, Outcome::Granted(_)), "{answer:?}");
    assert_eq!(promoted(&answer), [B]);
}

#[test]
fn a_downgrade_lets_readers_in_and_keeps_the_token() {
    let mut bench = Bench::new(false);
    let held = bench.granted(A, 1, Mode::Exclusive);
    bench.queued(B, 1, Mode::Shared);
    bench.queued(C, 1, Mode::Exclusive);
    let answer = bench.apply(A, Action::Downgrade { token: held.first });
    assert_eq!((&answer.outcome, promoted(&answer)), (&Outcome::Downgraded, vec![B]));
    assert_eq!((bench.record().grants[0].block, bench.waiting()), (held, vec![C]));
    let before = bench.record().clone();
    assert_eq!(bench.apply(A, Action::Downgrade { token: held.first }).outcome, Outcome::Downgraded);
    assert!(matches!(bench.apply(C, Action::Downgrade { token: held.first }).outcome, Outcome::NotCurrent { .. }));
    assert_eq!(*bench.record(), before, "once is enough, and it is the holder's to do");
}

#[test]
fn a_lease_goes_over_to_another_incarnation_with_its_tokens() {
    let mut bench = Bench::new(false);
    let held = bench.granted(A, 1, Mode::Exclusive);
    bench.queued(C, 1, Mode::Exclusive);
    let way = Way::Resume { from: A, token: held.first, request: RequestId(1) };
    assert_eq!(block(&bench.ask_by(B, 1, Mode::Exclusive, way)), held);
    assert_eq!((bench.holders(), bench.waiting()), (vec![B], vec![C]));
    assert_eq!(block(&bench.ask_by(B, 1, Mode::Exclusive, way)), held, "asked again");
    let late = bench.ask_by(D, 1, Mode::Exclusive, way);
    assert!(matches!(late.outcome, Outcome::NotCurrent { .. }), "it went over once: {late:?}");
    assert!(matches!(bench.release(A, 1, held.first).outcome, Outcome::NotCurrent { .. }));
}
