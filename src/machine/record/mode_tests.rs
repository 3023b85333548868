//! Modes, priorities, thefts, upgrades and downgrades, as a store does them.

mod letters;

use alloc::{vec, vec::Vec};

use super::{
    Acquire, Action, Batch, Granted, Mode, Outcome, RequestId, Way,
    bench::{A, B, Bench, C, D, block, key, operation, promoted, upgrade},
    id::SessionId,
};

/// The session of its own that a lease is moved to.
const PART: SessionId = SessionId(0xaa);

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
        let verified = bench.verify(holder, 1, block.first, false);
        assert!(matches!(verified, Outcome::NotCurrent { stolen: true, .. }), "{verified:?}");
    }
    let retried = bench.ask_by(D, 1, Mode::Exclusive, Way::Steal);
    assert_eq!((block(&retried), retried.robbed.len()), (stolen, 0), "asked again, it robs nobody");
}

/// Rule S8.
#[test]
fn s8_a_theft_stands_in_the_row_of_the_victim_and_is_never_forgotten() {
    let mut bench = Bench::new(false);
    let mut tokens = vec![bench.granted(A, 1, Mode::Exclusive).first];
    for request in 2..30 {
        tokens.push(block(&bench.ask_by(A, request, Mode::Exclusive, Way::Steal)).first);
    }
    let current = tokens.pop().unwrap();
    let robbed: Vec<_> = tokens.iter().map(|token| (key("k"), *token)).collect();
    assert_eq!(bench.row(A).unwrap().robbed(), robbed);
    let reply = bench.run(&Batch::new(A, vec![]));
    assert_eq!(reply.robbed, Some(robbed), "every reply says so");
    assert!(matches!(bench.verify(A, 1, tokens[0], false), Outcome::NotCurrent { stolen: true, .. }));
    assert!(matches!(bench.verify(A, 29, current, false), Outcome::Current { .. }));
    assert_eq!(bench.row(B), None, "nobody else's row came into being");
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
    let waits = bench.ask_by(A, 2, Mode::Exclusive, upgrade(first.first));
    assert!(matches!(waits.outcome, Outcome::Waiting { .. }), "{waits:?}");
    assert_eq!((bench.holders(), bench.waiting()), (vec![A, B], vec![A, C]), "it goes on sharing meanwhile");
    let before = bench.record().clone();
    let conflict = bench.ask_by(B, 2, Mode::Exclusive, upgrade(second.first));
    let Outcome::UpgradeConflict { ahead } = conflict.outcome else { panic!("{conflict:?}") };
    let seen: Vec<_> = ahead.iter().map(|seen| (seen.holder, seen.request.0)).collect();
    assert_eq!((seen, bench.record()), (vec![(A, 1), (A, 2)], &before), "who is in the way is seen");
    assert_eq!(promoted(&bench.release(B, 1, second.first)), [A]);
    assert_eq!((bench.holders(), bench.waiting()), (vec![A], vec![C]));
}

#[test]
fn an_upgrade_goes_with_the_grant_that_it_would_give() {
    let mut bench = Bench::new(false);
    let (first, second) = (bench.granted(A, 1, Mode::Shared), bench.granted(B, 1, Mode::Shared));
    bench.ask_by(A, 2, Mode::Exclusive, upgrade(first.first));
    bench.release(A, 1, first.first);
    assert_eq!((bench.holders(), bench.waiting()), (vec![B], vec![]));
    let late = bench.ask_by(A, 3, Mode::Exclusive, upgrade(first.first));
    assert!(matches!(late.outcome, Outcome::NotCurrent { .. }), "{late:?}");
    block(&bench.ask_by(B, 2, Mode::Exclusive, upgrade(second.first)));
}

#[test]
fn the_upgrade_of_a_holder_that_ran_out_is_no_conflict() {
    let mut bench = Bench::new(true);
    let first = bench.granted(A, 1, Mode::Shared);
    bench.now_ms += 600;
    let second = bench.granted(B, 1, Mode::Shared);
    bench.ask_by(A, 2, Mode::Exclusive, upgrade(first.first));
    bench.now_ms += 400;
    let upgraded = bench.ask_by(B, 2, Mode::Exclusive, upgrade(second.first));
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
    let downgrade = Action::Downgrade { token: held.first, request: RequestId(1) };
    let answer = bench.apply(A, downgrade.clone());
    assert_eq!((&answer.outcome, promoted(&answer)), (&Outcome::Downgraded, vec![B]));
    assert_eq!((bench.record().grants[0].block, bench.waiting()), (held, vec![C]));
    let before = bench.record().clone();
    assert_eq!(bench.apply(A, downgrade.clone()).outcome, Outcome::Downgraded);
    assert!(matches!(bench.apply(C, downgrade.clone()).outcome, Outcome::NotCurrent { .. }));
    assert_eq!(*bench.record(), before, "once is enough, and it is the holder's to do");
}

/// Rule S15: the move may not be written yet.
#[test]
fn s15_a_lease_goes_over_to_another_session_with_its_tokens() {
    for detached in [true, false] {
        let mut bench = Bench::new(false);
        let held = bench.granted(A, 1, Mode::Exclusive);
        bench.queued(C, 1, Mode::Exclusive);
        let detach = Action::Detach { token: held.first, request: RequestId(1), to: PART, lease_ms: 500 };
        if detached {
            assert_eq!(bench.apply(A, detach.clone()).outcome, Outcome::Detached);
            assert_eq!(bench.apply(A, detach.clone()).outcome, Outcome::Detached, "asked again");
            assert_eq!((bench.holders(), bench.row(PART).unwrap().lease_ms), (vec![PART], 500));
        }
        let way = Way::Resume { from: PART, origin: A, token: held.first, request: RequestId(1) };
        assert_eq!(block(&bench.ask_by(B, 5, Mode::Exclusive, way)), held);
        assert_eq!((bench.holders(), bench.waiting()), (vec![B], vec![C]));
        assert_eq!(bench.record().grants[0].request, RequestId(5));
        assert!(bench.row(PART).is_none(), "the session that it was moved to is over");
        assert!(bench.row(A).is_some(), "who gave it goes on");
        assert_eq!(block(&bench.ask_by(B, 5, Mode::Exclusive, way)), held, "asked again");
        let late = bench.ask_by(D, 1, Mode::Exclusive, way);
        assert!(matches!(late.outcome, Outcome::NotCurrent { .. }), "it went over once: {late:?}");
        assert!(matches!(bench.release(A, 1, held.first).outcome, Outcome::NotCurrent { .. }));
        assert!(matches!(bench.apply(A, detach).outcome, Outcome::NotCurrent { .. }), "a move that comes late");
        assert_eq!((bench.holders(), bench.row(PART)), (vec![B], None));
    }
}

/// Whoever keeps parts may alter their text.
#[test]
fn s15_what_was_shared_is_taken_over_as_shared() {
    let mut bench = Bench::new(false);
    let reads = bench.granted(A, 1, Mode::Shared);
    bench.apply(A, Action::Detach { token: reads.first, request: RequestId(1), to: PART, lease_ms: 500 });
    let way = Way::Resume { from: PART, origin: A, token: reads.first, request: RequestId(1) };
    assert!(matches!(bench.ask_by(B, 5, Mode::Exclusive, way).outcome, Outcome::NotCurrent { .. }));
    assert!(matches!(bench.ask_by(B, 6, Mode::Shared, way).outcome, Outcome::Granted(_)));
}

/// The downgrade may not have been sent before the guard went.
#[test]
fn s15_i9_what_its_guard_had_downgraded_is_taken_over_as_shared_and_readers_join_it() {
    let mut bench = Bench::new(false);
    let held = bench.granted(A, 1, Mode::Exclusive);
    bench.queued(C, 1, Mode::Shared);
    bench.apply(A, Action::Detach { token: held.first, request: RequestId(1), to: PART, lease_ms: 500 });
    let way = Way::Resume { from: PART, origin: A, token: held.first, request: RequestId(1) };
    assert_eq!(block(&bench.ask_by(B, 5, Mode::Shared, way)), held);
    let modes: Vec<_> = bench.record().grants.iter().map(|grant| (grant.holder, grant.mode)).collect();
    assert_eq!(modes, [(B, Mode::Shared), (C, Mode::Shared)]);
}

#[test]
fn s15_what_is_taken_over_is_named_by_its_session_its_request_and_its_token() {
    let mut bench = Bench::new(false);
    let held = bench.granted(A, 1, Mode::Exclusive);
    bench.apply(A, Action::Detach { token: held.first, request: RequestId(1), to: PART, lease_ms: 500 });
    let before = bench.record().clone();
    for (from, token, request) in [(D, held.first, 1), (PART, held.first.next(), 1), (PART, held.first, 2)] {
        let way = Way::Resume { from, origin: D, token, request: RequestId(request) };
        assert!(matches!(bench.ask_by(B, 5, Mode::Exclusive, way).outcome, Outcome::NotCurrent { .. }));
        assert_eq!(*bench.record(), before);
    }
    let way = Way::Resume { from: PART, origin: D, token: held.first, request: RequestId(1) };
    let resume = Action::Acquire(Acquire { way, ..bench.plain(5, Mode::Exclusive) });
    let batch = Batch::new(B, vec![operation("k", resume)]);
    assert_eq!(bench.records.sessions_of(&batch), [B, D, PART], "both givers' rows are read");
    // Nobody came in time.
    bench.apply(C, Action::End { target: PART, beat: 1 });
    let way = Way::Resume { from: PART, origin: A, token: held.first, request: RequestId(1) };
    assert!(matches!(bench.ask_by(B, 5, Mode::Exclusive, way).outcome, Outcome::NotCurrent { .. }));
}
