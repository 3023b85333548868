//! Sessions at the store: who is absent has ended for ever, and what it left does not count.

use alloc::{vec, vec::Vec};

use super::{
    Acquire, Action, Batch, Beat, Ending, Entry, Mode, Outcome, RequestId, Row, Session, Unreadable, Way,
    bench::{A, B, Bench, C, D, LEASE_MS, STORE, beat, close, key, open, operation, promoted},
    id::SessionId,
    records::Records,
    token::Token,
};

const E: SessionId = SessionId(0xe);

/// A holds the key, and B waits for it.
fn contended() -> (Bench, Token) {
    let mut bench = Bench::new(false);
    let held = bench.granted(A, 1, Mode::Exclusive);
    bench.queued(B, 1, Mode::Exclusive);
    bench.open(C, LEASE_MS);
    (bench, held.first)
}

fn first(number: u64) -> Beat {
    Beat { beat: number, lease_ms: LEASE_MS, ..Beat::default() }
}

fn ask(request: u64, wait: bool) -> Acquire {
    Acquire { wait, ..Acquire::new(RequestId(request), 100) }
}

/// All that somebody may do at a key and that may change it.
fn deeds() -> Vec<Action> {
    let (token, request) = (Token(9), RequestId(7));
    vec![
        Action::Acquire(ask(7, true)),
        Action::Acquire(ask(7, false)),
        Action::AcquireAll(vec![(key("k"), ask(7, false)), (key("l"), ask(8, false))]),
        Action::Verify { token, request, refill: false },
        Action::Downgrade { token, request },
        Action::Detach { token, request, to: SessionId(0xdd), lease_ms: 1 },
        Action::Release { token, request },
        Action::Withdraw { request },
        Action::End { target: A, beat: 9 },
        Action::Look,
    ]
}

/// Rule S2.
#[test]
fn s2_only_an_opening_brings_a_session_into_being() {
    let mut bench = Bench::new(false);
    let steal = Acquire { way: Way::Steal, ..ask(1, true) };
    for acquire in [ask(1, true), ask(1, false), steal] {
        let reply = bench.run(&Batch::new(A, vec![operation("k", Action::Acquire(acquire))]));
        assert_eq!((reply.robbed, &reply.answers[0].outcome), (None, &Outcome::NoSession));
    }
    let late = Batch { operations: vec![operation("k", Action::Acquire(ask(1, true)))], ..beat(A, first(9)) };
    let reply = bench.run(&late);
    assert_eq!((reply.robbed, &reply.answers[0].outcome), (None, &Outcome::NoSession), "nor does a heartbeat");
    assert_eq!((bench.row(A), bench.records.is_empty()), (None, true));
    assert_eq!(bench.records.take_changed(), []);
    let opens = Batch { operations: vec![operation("k", Action::Acquire(ask(1, true)))], ..open(A, first(1)) };
    let reply = bench.run(&opens);
    assert_eq!((reply.robbed, bench.holders()), (Some(vec![]), vec![A]), "in the transaction of its first request");
}

/// Rule S1: the next attempt names the earlier ids, whatever their beats are.
#[test]
fn s1_an_opening_ends_the_earlier_sessions_of_its_context_first() {
    let (mut bench, _) = contended();
    let ends = vec![Ending { session: A, beat: None }, Ending { session: SessionId(0xee), beat: None }];
    let operations = vec![operation("k", Action::Acquire(ask(1, true)))];
    let reply = bench.run(&Batch { ends, operations, ..open(D, first(1)) });
    assert_eq!((bench.row(A), bench.holders(), bench.waiting()), (None, vec![B], vec![D]));
    assert_eq!(promoted(&reply.answers[0]), [B], "who waited is granted, and told");
    assert!(bench.row(D).is_some());
}

/// Rule S3, for those who stood there when a session opened and have not beaten since.
#[test]
fn s3_a_silent_peer_ends_only_at_the_beat_that_was_seen() {
    let mut bench = Bench::new(false);
    bench.run(&open(A, first(5)));
    let reply = bench.run(&open(B, first(1)));
    let [peer] = reply.peers[..] else { panic!("{reply:?}") };
    assert_eq!((peer.session, peer.beat, peer.lease_ms), (A, 5, LEASE_MS));
    let end = |beat| Batch { ends: vec![Ending { session: A, beat: Some(beat) }], ..Batch::new(B, vec![]) };
    for wrong in [4, 6] {
        bench.run(&end(wrong));
        assert!(bench.row(A).is_some());
    }
    bench.run(&end(5));
    assert!(bench.row(A).is_none());
    assert_eq!(bench.run(&beat(B, first(2))).peers, [], "only an opening is told of the others");
}

/// Rule S5.
#[test]
fn s5_neither_an_acquisition_nor_an_adoption_is_a_sign_of_life() {
    let mut bench = Bench::new(true);
    bench.granted(A, 1, Mode::Exclusive);
    let row = bench.row(A).cloned();
    bench.now_ms += 900;
    bench.granted(A, 1, Mode::Exclusive);
    bench.at("l", A, Action::Acquire(ask(2, true)));
    assert_eq!(bench.row(A), row.as_ref());
    bench.now_ms += 100;
    bench.granted(B, 1, Mode::Exclusive);
    assert_eq!(bench.row(A), None);
}

/// Rule S11.
#[test]
fn s11_an_attempt_below_the_floor_is_refused() {
    let mut bench = Bench::new(false);
    bench.run(&open(A, first(1)));
    let raise = |floor, number| beat(A, Beat { floor, ..first(number) });
    bench.run(&raise(7, 7));
    bench.run(&raise(5, 3));
    bench.run(&raise(0, 8));
    assert_eq!(bench.row(A).unwrap().floor, 7, "it only grows");
    let attempt = |bench: &mut Bench, attempt| {
        let ask = Acquire { attempt, ..ask(1, true) };
        bench.run(&Batch::new(A, vec![operation("k", Action::Acquire(ask))])).answers.remove(0).outcome
    };
    assert_eq!((attempt(&mut bench, 6), bench.records.is_empty()), (Outcome::TooLate, true));
    assert!(matches!(attempt(&mut bench, 7), Outcome::Granted(_)));
    assert_eq!(attempt(&mut bench, 6), Outcome::TooLate, "not even if the grant is there");
    // A floor that comes with a late heartbeat counts all the same.
    bench.run(&raise(9, 2));
    assert_eq!(attempt(&mut bench, 8), Outcome::TooLate);
}

/// Rule S14.
#[test]
fn s14_whatever_is_done_at_a_key_drops_what_the_absent_held_and_grants_to_the_next() {
    for deed in deeds() {
        let (mut bench, _) = contended();
        bench.records.abandon(A);
        assert_eq!((bench.holders(), bench.waiting()), (vec![A], vec![B]), "a blind delete promotes nobody");
        let answer = bench.apply(C, deed.clone());
        assert_eq!(bench.holders(), [B], "{deed:?}");
        let [heir] = &answer.promoted[..] else { panic!("{deed:?}: {answer:?}") };
        assert_eq!((heir.holder, heir.request, &heir.key), (B, RequestId(1), &key("k")), "{deed:?}");
    }
}

#[test]
fn s14_an_absent_head_is_passed_over_and_one_right_before_a_waiter_does_not_count() {
    let (mut bench, token) = contended();
    bench.queued(C, 1, Mode::Exclusive);
    bench.records.abandon(B);
    let Outcome::Waiting { position, ahead, .. } = bench.ask(C, 1, Mode::Exclusive).outcome else { panic!("it waits") };
    assert_eq!((position, ahead.iter().map(|seen| seen.holder).collect::<Vec<_>>()), (1, vec![A]));
    bench.queued(D, 1, Mode::Exclusive);
    bench.queued(E, 1, Mode::Exclusive);
    bench.records.abandon(D);
    let Outcome::Waiting { position, ahead, .. } = bench.ask(E, 1, Mode::Exclusive).outcome else { panic!("it waits") };
    assert_eq!((position, ahead.iter().map(|seen| seen.holder).collect::<Vec<_>>()), (2, vec![A, C]));
    assert_eq!(bench.waiting(), [C, E]);
    let (mut bench, late) = contended();
    bench.queued(C, 1, Mode::Exclusive);
    bench.records.abandon(B);
    assert_eq!(promoted(&bench.release(A, 1, late)), [C]);
    assert_eq!((bench.holders(), bench.waiting(), token), (vec![C], vec![], late));
}

#[test]
fn s14_who_only_looks_on_changes_nothing_and_does_not_see_the_absent() {
    let (mut bench, token) = contended();
    bench.queued(C, 1, Mode::Exclusive);
    bench.records.abandon(A);
    bench.records.abandon(B);
    let before = bench.record().clone();
    bench.records.take_changed();
    let answer = bench.apply(D, Action::Inspect);
    let Outcome::Status { grants, queue, sessions, .. } = answer.outcome else { panic!("{answer:?}") };
    assert_eq!((grants.len(), queue.iter().map(|waiter| waiter.holder).collect::<Vec<_>>()), (0, vec![C]));
    assert_eq!(sessions.iter().map(|(session, _)| *session).collect::<Vec<_>>(), [C]);
    // Rule S7: a fence reads the record alone.
    let fence = Action::Fence { token, request: RequestId(1), upgrade: None, mode: Mode::Exclusive };
    assert!(matches!(bench.apply(A, fence).outcome, Outcome::Current { .. }));
    assert_eq!((bench.record(), answer.promoted), (&before, Vec::new()));
    assert!(!bench.records.take_changed().contains(&Row::Record(key("k"))));
}

/// Rule S16.
#[test]
fn s16_the_absent_get_nothing_any_more() {
    let steal = Acquire { way: Way::Steal, ..ask(2, true) };
    for late in [ask(1, true), ask(1, false), ask(2, true), steal] {
        let (mut bench, _) = contended();
        bench.records.abandon(A);
        bench.apply(C, Action::Look);
        let both = Action::AcquireAll(vec![(key("m"), late.clone()), (key("n"), ask(3, false))]);
        let before = bench.records.clone();
        for (name, action) in [("k", Action::Acquire(late.clone())), ("m", Action::Acquire(late.clone())), ("m", both)]
        {
            assert_eq!(bench.at(name, A, action).outcome, Outcome::NoSession, "{late:?}");
        }
        assert_eq!(bench.records, before, "{late:?}");
    }
}

#[test]
fn s16_what_the_absent_do_late_does_no_harm() {
    let (mut bench, token) = contended();
    bench.records.abandon(A);
    bench.apply(C, Action::Look);
    let request = RequestId(1);
    let late = [
        Action::Verify { token, request, refill: true },
        Action::Downgrade { token, request },
        Action::Detach { token, request, to: SessionId(0xdd), lease_ms: 1_000 },
        Action::Release { token, request },
        Action::Withdraw { request },
        Action::Fence { token, request, upgrade: None, mode: Mode::Exclusive },
    ];
    let before = bench.records.clone();
    for action in late {
        let answer = bench.apply(A, action.clone());
        let is_stale = matches!(answer.outcome, Outcome::NotCurrent { .. } | Outcome::Withdrawn);
        assert!(is_stale && answer.promoted.is_empty(), "{action:?}: {answer:?}");
    }
    bench.run(&beat(A, first(99)));
    bench.run(&close(A));
    assert_eq!(bench.records, before);
    // What it does late at a key of its own is the end of it there, and lets the next one in.
    let (mut bench, token) = contended();
    bench.records.abandon(A);
    let answer = bench.apply(A, Action::Verify { token, request, refill: true });
    assert!(matches!(answer.outcome, Outcome::NotCurrent { .. }), "{answer:?}");
    assert_eq!((bench.holders(), promoted(&answer)), (vec![B], vec![B]));
}

#[test]
fn a_row_is_deleted_after_the_operations_of_its_last_transaction() {
    let (mut bench, token) = contended();
    let release = Action::Release { token, request: RequestId(1) };
    let reply = bench.run(&Batch { operations: vec![operation("k", release)], ..close(A) });
    assert_eq!((&reply.answers[0].outcome, promoted(&reply.answers[0])), (&Outcome::Released, vec![B]));
    assert_eq!((reply.robbed, bench.row(A)), (Some(vec![]), None), "it was there until then");
}

/// What a transaction did not read, it does not judge.
#[test]
fn s16_nobody_is_taken_for_absent_whose_row_was_not_looked_for() {
    let (bench, _) = contended();
    let (record, own) = (bench.record().encode(), bench.row(C).unwrap().encode(C));
    let now = bench.now();
    let read = |others: &[(SessionId, Option<&Session>)]| {
        let mut records = Records::new();
        records.load_store(None, STORE).unwrap();
        records.load(key("k"), Some(&record));
        records.load_session(C, Some(&own));
        others.iter().for_each(|(id, row)| records.load_session(*id, row.map(|row| row.encode(*id)).as_deref()));
        let batch = Batch::new(C, vec![operation("k", Action::Look)]);
        let named = records.sessions_of(&batch);
        batch.apply(&mut records, now);
        (named, records.peek(&key("k")).unwrap().grants[0].holder)
    };
    assert_eq!(read(&[]), (vec![A, B, C], A), "all of them are to be read");
    assert_eq!(read(&[(A, bench.row(A)), (B, bench.row(B))]).1, A);
    assert_eq!(read(&[(A, None), (B, bench.row(B))]).1, B);
    let mut all = Records::new();
    all.load(key("k"), Some(&record));
    let text = [bench.row(B).unwrap().encode(B), own.clone()];
    all.load_all_sessions(text.iter().map(|text| &**text)).unwrap();
    Batch::new(C, vec![operation("k", Action::Look)]).apply(&mut all, now);
    assert_eq!(all.peek(&key("k")).unwrap().grants[0].holder, B, "who is not among all has ended");
}

/// Its format is newer: it is watched like any other, and never written.
#[test]
fn a_row_that_cannot_be_read_blocks_is_not_written_and_can_be_ended() {
    let (mut bench, token) = contended();
    let newer = bench.row(A).unwrap().encode(A).replacen("\"format\":1", "\"format\":2", 1);
    bench.records.load_session(A, Some(&newer));
    let steal = Acquire { way: Way::Steal, ..ask(9, true) };
    let refused = bench.apply(C, Action::Acquire(steal));
    let unreadable = Unreadable::FormatTooNew { found: 2, known: 1 };
    assert_eq!(
        (refused.outcome, refused.robbed),
        (Outcome::Unreadable(unreadable), vec![]),
        "it would never learn of it"
    );
    assert_eq!((bench.holders(), bench.record().grants[0].block.first), (vec![A], token));
    assert_eq!(bench.run(&beat(A, first(99))).robbed, None, "nor by whoever has its id");
    let Outcome::Waiting { ahead, .. } = bench.ask(C, 1, Mode::Exclusive).outcome else { panic!("it blocks") };
    let seen = ahead.iter().find(|seen| matches!(seen.entry, Entry::Grant(_))).unwrap();
    let end = Action::End { target: A, beat: seen.beat };
    assert_eq!((bench.apply(C, end).outcome, bench.holders()), (Outcome::Ended, vec![B]));
}

/// The outcome `TooLate` does not tell the asker that its waiting request was granted, so the answer lists that grant.
#[test]
fn a_late_attempt_tells_whom_it_granted_even_if_that_is_itself() {
    let mut bench = Bench::new(false);
    bench.granted(B, 1, Mode::Exclusive);
    bench.queued(A, 1, Mode::Exclusive);
    bench.run(&beat(A, Beat { floor: 100, ..first(100) }));
    // A blind delete promotes nobody.
    bench.records.abandon(B);
    let late = Acquire { attempt: 99, ..ask(1, true) };
    let answer = bench.run(&Batch::new(A, vec![operation("k", Action::Acquire(late))])).answers.remove(0);
    assert_eq!((&answer.outcome, bench.holders()), (&Outcome::TooLate, vec![A]), "it is granted");
    assert_eq!(promoted(&answer), [A], "and somebody is to tell it");
}
