//! What the dead leave behind goes, although nobody asks for it any more.

use alloc::{collections::BTreeSet, vec, vec::Vec};

use super::{
    Acquire, Action, Batch, Beat, Ending, Mode, Row,
    bench::{A, B, Bench, C, D, LEASE_MS, STORE, beat, key, open},
    id::SessionId,
    records::Records,
};

fn first(number: u64) -> Beat {
    Beat { beat: number, lease_ms: LEASE_MS, ..Beat::default() }
}

/// Whom an opening names, in the order of their ids from its own on.
fn named(bench: &mut Bench, id: u128) -> Vec<u128> {
    bench.run(&open(SessionId(id), first(1))).peers.iter().map(|peer| peer.session.0).collect()
}

#[test]
fn every_session_is_named_to_some_that_open() {
    let mut bench = Bench::new(false);
    for id in 0..100 {
        bench.open(SessionId(id * 1_000), LEASE_MS);
    }
    assert_eq!(named(&mut bench, 50_500), (51..55).map(|at| at * 1_000).collect::<Vec<_>>());
    let around = named(&mut bench, 97_500);
    assert_eq!(around, [98_000, 99_000, 0, 1_000], "and from the beginning again");
    let mut seen = BTreeSet::new();
    for id in 0..200 {
        seen.extend(named(&mut bench, id * 500 + 7));
    }
    assert!((0..100).all(|id| seen.contains(&(id * 1_000))), "{seen:?}");
}

#[test]
fn a_row_that_cannot_be_read_is_named_to_nobody() {
    let mut bench = Bench::new(false);
    bench.records.load_session(A, Some("{}"));
    bench.open(B, LEASE_MS);
    assert_eq!(named(&mut bench, C.0), [B.0]);
}

/// If the row names no beacon, the beacon may be missing only because it has not been raised yet.
#[test]
fn only_a_peer_that_has_shown_a_beacon_is_dead_without_one() {
    let mut bench = Bench::new(false);
    bench.run(&open(A, Beat { beacon: true, ..first(7) }));
    bench.run(&open(B, Beat { beacon: true, ..first(1) }));
    bench.open(C, LEASE_MS);
    let opening = open(D, first(1));
    let dead = bench.records.dead_peers(&opening, |session| session != B);
    assert_eq!(dead, [Ending { session: A, beat: Some(7) }]);
    let heartbeat = beat(B, first(2));
    assert_eq!(bench.records.dead_peers(&heartbeat, |_| true), [], "only a batch that opens a session looks at others");
}

/// A key of a job that nobody runs again.
#[test]
fn a_record_that_only_the_dead_use_is_forgotten() {
    let mut bench = Bench::new(false);
    let held = bench.granted(A, 1, Mode::Exclusive);
    bench.queued(B, 1, Mode::Exclusive);
    bench.open(C, LEASE_MS);
    let forget = Batch { forgets: vec![key("k")], ..Batch::new(C, vec![]) };
    bench.records.abandon(A);
    bench.run(&forget);
    assert_eq!(bench.records.len(), 1, "somebody waits");
    bench.records.abandon(B);
    bench.run(&forget);
    assert!(bench.records.is_empty());
    bench.now_ms = 0;
    assert!(bench.granted(C, 1, Mode::Exclusive).first > held.last, "its tokens are remembered");
}

/// One record says of itself that it is nearly at the end of its tokens: that is its own affair.
#[test]
fn a_record_at_the_end_of_its_tokens_leaves_the_others_theirs() {
    let mut records = Records::new();
    records.load_store(None, STORE).unwrap();
    let text = r#"{"format":1,"last_token":9007199254740990,"revision":4,"grants":[],"queue":[],"last_exclusive":5}"#;
    records.load(key("k"), Some(text));
    records.load_all_sessions([]).unwrap();
    let now = Bench::new(false).now();
    Batch { forgets: vec![key("k")], ..Batch::new(A, vec![]) }.apply(&mut records, now);
    assert!(records.peek(&key("k")).is_some() && records.text(&Row::Store).unwrap().contains("\"floor\":0"));
}

/// One request gets one grant, although nobody heard of it: a theft whose answer was lost does not rob twice.
#[test]
fn i8_what_was_robbed_before_its_answer_came_is_not_granted_again() {
    use super::{Outcome, RequestId, Way};
    for way in [Way::Steal, Way::Plain] {
        let mut bench = Bench::new(false);
        let lost = Acquire { way, wait: true, ..bench.plain(7, Mode::Exclusive) };
        bench.apply(A, Action::Acquire(lost.clone()));
        let thief = bench.ask_by(B, 1, Mode::Exclusive, Way::Steal);
        assert_eq!(thief.robbed.len(), 1);
        let retried = bench.apply(A, Action::Acquire(lost.clone()));
        assert!(matches!(retried.outcome, Outcome::NotCurrent { stolen: true, .. }), "{retried:?}");
        assert_eq!((bench.holders(), bench.waiting()), (vec![B], vec![]), "{way:?}");
        let all = Action::AcquireAll(vec![(key("m"), Acquire::new(RequestId(8), 99)), (key("k"), lost)]);
        bench.release(B, 1, bench.record().grants[0].block.first);
        assert!(matches!(bench.apply(A, all).outcome, Outcome::NotCurrent { .. }));
        assert!(bench.records.peek(&key("m")).is_none_or(|record| record.grants.is_empty()), "all or nothing");
    }
}
