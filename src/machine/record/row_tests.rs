//! The row of the store: idle records go, and their tokens are remembered in it.

use alloc::{string::String, vec, vec::Vec};

use super::{
    Acquire, Action, Batch, Mode, Outcome, RequestId, Row, Session, Unreadable,
    bench::{A, B, Bench, LEASE_MS, STORE, block, key, operation},
    id::StoreId,
    key::Key,
    records::Records,
    token::{Token, TokenBlock},
};

fn lock() -> Key {
    Key::of_lock("a")
}

fn hold(bench: &mut Bench, key: &Key, request: u64) -> (TokenBlock, Token) {
    let ask = Acquire::new(RequestId(request), bench.next_beat());
    let answer = bench.at(key.as_str(), A, Action::Acquire(ask));
    let Outcome::Granted(granted) = answer.outcome else { panic!("{answer:?}") };
    (granted.block, granted.previous)
}

fn let_go(bench: &mut Bench, key: &Key, request: u64, token: Token) {
    bench.at(key.as_str(), A, Action::Release { token, request: RequestId(request) });
}

fn floor(records: &Records) -> String {
    records.text(&Row::Store).unwrap()
}

fn forget(bench: &mut Bench, key: &Key) {
    bench.run(&Batch { forgets: vec![key.clone()], ..Batch::new(A, vec![]) });
}

#[test]
fn the_tokens_of_a_record_that_is_forgotten_are_remembered() {
    let mut bench = Bench::new(false);
    let (first, _) = hold(&mut bench, &lock(), 1);
    let_go(&mut bench, &lock(), 1, first.first);
    bench.records.take_changed();
    forget(&mut bench, &lock());
    assert!(bench.records.is_empty());
    assert_eq!(bench.records.take_changed(), [Row::Record(lock()), Row::Store]);
    assert_eq!(bench.records.text(&Row::Record(lock())), None, "it is deleted");
    assert!(floor(&bench.records).contains(&alloc::format!("\"floor\":{}", first.last.as_u64())));
    // The wall clock goes back, and nothing but the floor keeps tokens from being granted again.
    bench.now_ms = 0;
    let (second, previous) = hold(&mut bench, &lock(), 2);
    assert!(second.first > first.last && previous == first.last);
    // It is one floor for all keys.
    let other = Key::of_lock("b");
    let (third, previous) = hold(&mut bench, &other, 3);
    assert!(third.first > first.last && previous == first.last, "what is missing counts as changed hands");
}

#[test]
fn the_floor_only_grows() {
    let mut bench = Bench::new(false);
    let (early, late) = (Key::of_lock("early"), Key::of_lock("late"));
    let (old, _) = hold(&mut bench, &early, 1);
    bench.now_ms += 1_000;
    let (new, _) = hold(&mut bench, &late, 2);
    let_go(&mut bench, &late, 2, new.first);
    forget(&mut bench, &late);
    let_go(&mut bench, &early, 1, old.first);
    bench.records.take_changed();
    let before = floor(&bench.records);
    forget(&mut bench, &early);
    assert_eq!(floor(&bench.records), before);
    assert_eq!(bench.records.take_changed(), [Row::Record(early)], "it need not be written again");
}

#[test]
fn idle_records_stay_until_a_batch_forgets_them_and_used_ones_stay_even_then() {
    let mut bench = Bench::new(false);
    let held = bench.granted(A, 1, Mode::Exclusive);
    let forget = Batch { forgets: vec![key("k"), key("never was")], ..Batch::new(A, vec![]) };
    bench.records.take_changed();
    bench.run(&forget);
    assert_eq!((bench.holders(), bench.records.take_changed()), (vec![A], vec![]));
    bench.release(A, 1, held.first);
    assert!(bench.records.peek(&key("k")).is_some(), "whoever remembers the key asks whether it changed hands");
    bench.records.take_changed();
    bench.run(&forget);
    assert_eq!(bench.records.take_changed(), [Row::Record(key("k")), Row::Store]);
    bench.now_ms = 0;
    assert!(bench.granted(A, 2, Mode::Exclusive).first > held.last);
    bench.queued(B, 1, Mode::Exclusive);
    bench.records.take_changed();
    bench.run(&forget);
    assert_eq!((bench.waiting(), bench.records.take_changed()), (vec![B], vec![]));
}

/// The release that makes it idle and the end of it may be one transaction.
#[test]
fn a_record_is_forgotten_after_the_operations() {
    let mut bench = Bench::new(false);
    let held = bench.granted(A, 1, Mode::Exclusive);
    let release = Action::Release { token: held.first, request: RequestId(1) };
    let batch = Batch { forgets: vec![key("k")], ..Batch::new(A, vec![operation("k", release)]) };
    assert_eq!(batch.keys(), [key("k")], "read and locked once");
    bench.run(&batch);
    assert!(bench.records.is_empty());
}

/// What one transaction read, as stores on a disk do it.
#[test]
fn who_only_looks_at_a_key_that_has_no_record_writes_nothing() {
    let mut bench = Bench::new(false);
    bench.open(A, LEASE_MS);
    let mut records = Records::new();
    records.load_store(Some(&floor(&bench.records)), StoreId(77)).unwrap();
    records.load_session(A, Some(&bench.row(A).unwrap().encode(A)));
    records.load(key("k"), None);
    let now = bench.now();
    for action in [Action::Inspect, Action::Look, Action::Withdraw { request: RequestId(1) }] {
        let reply = Batch::new(A, vec![operation("k", action)]).apply(&mut records, now);
        assert_eq!((reply.store, reply.robbed), (STORE, Some(vec![])));
        assert_eq!((records.take_changed(), records.is_empty()), (vec![], true));
    }
    let ask = Acquire::new(RequestId(1), 1);
    let reply = Batch::new(A, vec![operation("k", Action::Acquire(ask))]).apply(&mut records, now);
    block(&reply.answers[0]);
    assert_eq!(records.take_changed(), [Row::Record(key("k"))]);
    assert!(records.text(&Row::Record(key("k"))).is_some());
}

#[test]
fn a_new_store_gets_an_id_and_one_that_cannot_be_read_stops_the_transaction() {
    let mut records = Records::new();
    records.load_store(None, StoreId(77)).unwrap();
    assert_eq!((records.store(), records.take_changed()), (StoreId(77), vec![Row::Store]));
    let text = floor(&records);
    let mut again = Records::new();
    again.load_store(Some(&text), StoreId(78)).unwrap();
    assert_eq!((again.store(), again.take_changed()), (StoreId(77), vec![]));
    let newer = text.replacen("\"format\":1", "\"format\":2", 1);
    let unreadable = Unreadable::FormatTooNew { found: 2, known: 1 };
    assert_eq!(again.load_store(Some(&newer), StoreId(78)), Err(unreadable));
    assert_eq!(again.load_store(Some("of another world"), StoreId(78)), Err(Unreadable::Corrupt));
}

#[test]
fn what_stands_beside_the_records_is_read_at_once() {
    let read = |rows: &[&str]| {
        let rows: Vec<_> = rows.iter().map(|row| String::from(*row)).collect();
        let mut records = Records::new();
        records.load_beside_records(&rows, || StoreId(77)).map(|()| records)
    };
    let session = |id| Session { beat: 5, lease_ms: LEASE_MS, ..Session::default() }.encode(id);
    let (first, second, store) = (session(A), session(B), floor(&read(&[]).unwrap()));
    let newer = |text: &str| text.replacen("\"format\":1", "\"format\":2", 1);
    let found = read(&[&first, &newer(&second), &store]).unwrap();
    assert_eq!(found.store(), StoreId(77));
    assert!(found.session(A).is_some() && found.session(B).is_some(), "one that cannot be read has not ended");
    let mut without = read(&[&first, &second]).unwrap();
    assert_eq!(without.take_changed(), [Row::Store], "it is a new store");
    assert!(without.session(B).is_some());
    let too_new = Unreadable::FormatTooNew { found: 2, known: 1 };
    assert_eq!(read(&[&first, &newer(&store)]).map(|_| ()), Err(too_new));
    for nobodys in ["of another world", "{}"] {
        assert_eq!(read(&[nobodys, &store]).map(|_| ()), Err(Unreadable::Corrupt));
        assert_eq!(read(&[&first, nobodys]).map(|_| ()), Err(Unreadable::Corrupt));
    }
}
