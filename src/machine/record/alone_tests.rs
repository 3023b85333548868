//! S17: what is done on the records alone is what is done on all rows.

use alloc::vec;

use super::{
    Acquire, Action, Batch, Beat, Ending, Mode, Outcome, RequestId, SessionId, SessionStep, Way,
    bench::{A, B, Bench, STORE, key, operation},
    records::{Records, Row},
    token::Token,
};

/// What a store reads that goes by the records alone.
fn records(bench: &Bench, names: &[&str]) -> Records {
    let mut records = Records::new();
    for name in names {
        let text = bench.records.text(&Row::Record(key(name)));
        records.load(key(name), text.as_deref());
    }
    records
}

fn batch(session: SessionId, action: Action) -> Batch {
    Batch { sure_ms: 1_000, ..Batch::new(session, vec![operation("k", action)]) }
}

fn release(token: Token) -> Action {
    Action::Release { token, request: RequestId(1) }
}

/// Whether the record alone is enough; then it comes to the same.
fn is_enough(bench: &mut Bench, batch: &Batch) -> bool {
    let mut alone = records(bench, &["k"]);
    let Some(reply) = batch.apply_alone(&mut alone, STORE, bench.now()) else { return false };
    assert_eq!(reply, bench.run(batch));
    let row = Row::Record(key("k"));
    assert_eq!(alone.take_changed(), core::slice::from_ref(&row), "no other row is written");
    assert_eq!(alone.text(&row), bench.records.text(&row));
    true
}

#[test]
fn one_who_is_alone_takes_turns_by_the_record() {
    let mut bench = Bench::new(false);
    let held = bench.granted(A, 1, Mode::Exclusive);
    assert!(is_enough(&mut bench, &batch(A, release(held.first))));
    let ask = bench.plain(2, Mode::Shared);
    assert!(is_enough(&mut bench, &batch(A, Action::Acquire(ask))));
    let ask = bench.plain(3, Mode::Shared);
    assert!(is_enough(&mut bench, &batch(A, Action::Acquire(ask))), "it shares the key with itself");
    assert!(is_enough(&mut bench, &batch(A, Action::Withdraw { request: RequestId(2) })));
    assert_eq!(bench.holders(), [A]);
}

#[test]
fn whoever_else_stands_there_may_have_ended() {
    let mut bench = Bench::new(false);
    let held = bench.granted(A, 1, Mode::Exclusive);
    bench.queued(B, 1, Mode::Exclusive);
    assert!(!is_enough(&mut bench, &batch(A, release(held.first))), "another one waits");
    bench.release(A, 1, held.first);
    let ask = bench.plain(2, Mode::Exclusive);
    assert!(!is_enough(&mut bench, &batch(A, Action::Acquire(ask))), "another one holds it");
    let heir = bench.granted(B, 1, Mode::Exclusive);
    bench.apply(B, Action::Downgrade { token: heir.first, request: RequestId(1) });
    let ask = bench.plain(3, Mode::Shared);
    assert!(!is_enough(&mut bench, &batch(A, Action::Acquire(ask))), "another one shares it");
}

#[test]
fn a_key_without_a_record_begins_where_the_stores_row_says() {
    let mut bench = Bench::new(false);
    bench.granted(A, 1, Mode::Exclusive);
    let ask = Acquire::new(RequestId(2), 2);
    let batch = Batch { sure_ms: 1_000, ..Batch::new(A, vec![operation("new", Action::Acquire(ask))]) };
    assert_eq!(batch.apply_alone(&mut records(&bench, &["new"]), STORE, bench.now()), None);
}

#[test]
fn who_misses_its_grant_must_read_whether_it_was_stolen() {
    let mut bench = Bench::new(false);
    let held = bench.granted(A, 1, Mode::Exclusive);
    let stolen = bench.ask_by(B, 1, Mode::Exclusive, Way::Steal);
    let Outcome::Granted(thief) = stolen.outcome else { panic!("{stolen:?}") };
    bench.release(B, 1, thief.block.first);
    assert!(!is_enough(&mut bench, &batch(A, release(held.first))));
}

#[test]
fn who_waits_for_itself_is_told_what_its_row_says() {
    let mut bench = Bench::new(false);
    bench.granted(A, 1, Mode::Shared);
    let ask = bench.plain(2, Mode::Exclusive);
    assert!(!is_enough(&mut bench, &batch(A, Action::Acquire(ask))));
}

#[test]
fn what_concerns_sessions_or_the_store_is_not_decided_by_a_record() {
    let mut bench = Bench::new(false);
    let held = bench.granted(A, 1, Mode::Exclusive);
    let plain = batch(A, release(held.first));
    let beat = Beat { beat: 99, lease_ms: 1_000, ..Beat::default() };
    let steals = Acquire { way: Way::Steal, ..Acquire::new(RequestId(2), 2) };
    let ends = vec![Ending { session: B, beat: None }];
    for odd in [
        Batch { step: SessionStep::Beat(beat), ..plain.clone() },
        Batch { step: SessionStep::Open { beat, instance: "".into() }, ..plain.clone() },
        Batch { step: SessionStep::Close, ..plain.clone() },
        Batch { ends, ..plain.clone() },
        Batch { forgets: vec![key("k")], ..plain.clone() },
        batch(A, Action::Acquire(steals)),
        batch(A, Action::Detach { token: held.first, request: RequestId(1), to: B, lease_ms: 9 }),
        batch(A, Action::End { target: A, beat: 1 }),
    ] {
        assert!(!is_enough(&mut bench, &odd), "{odd:?}");
    }
    let mut whole = bench.records.clone();
    assert_eq!(plain.apply_alone(&mut whole, STORE, bench.now()), None, "what knows the sessions has no need of it");
    assert_eq!(whole, bench.records);
}

#[test]
fn a_record_that_cannot_be_read_is_not_enough() {
    let bench = Bench::new(false);
    let mut alone = Records::new();
    alone.load(key("k"), Some("nonsense"));
    let ask = batch(A, Action::Acquire(Acquire::new(RequestId(1), 1)));
    assert_eq!(ask.apply_alone(&mut alone, STORE, bench.now()), None);
}

mod clocks {
    use alloc::vec::Vec;

    use super::{A, Batch};
    use crate::machine::{Monotonic, Now, Wall};

    fn at(monotonic_ms: u64, wall_ms: u64) -> Now {
        Now { monotonic: Monotonic::from_ms(monotonic_ms), wall: Wall::from_ms(wall_ms) }
    }

    #[test]
    fn it_is_sure_while_both_clocks_say_so() {
        let batch = Batch { sure_ms: 1_000, ..Batch::new(A, Vec::new()) };
        let sent = at(5_000, 70_000);
        assert!(batch.is_sure(sent, at(5_999, 70_999)));
        assert!(!batch.is_sure(sent, at(6_000, 70_999)), "by the monotonic clock it is over");
        assert!(!batch.is_sure(sent, at(5_001, 71_000)), "the monotonic clock stood still, the machine slept");
        assert!(batch.is_sure(sent, at(5_999, 10)), "a wall clock that was set back says nothing");
        assert!(!Batch::new(A, Vec::new()).is_sure(sent, sent), "nobody is sure of anything");
    }
}
