//! What a store does, step by step.

use alloc::vec::Vec;

use super::{
    Acquire, Action, Batch, Granted, Mode, Outcome, RequestId, Way,
    bench::{A, B, Bench, C, LEASE_MS, block, key, open, operation, promoted},
    id::{SessionId, StoreId},
    records::Records,
    session::Beat,
    token::Token,
};

/// M6: `test_lease_locks`.
#[test]
fn m6_leases_run_out_by_a_trusted_clock_and_generations_grow() {
    let mut bench = Bench::new(true);
    bench.open(A, 300);
    let first = bench.granted(A, 1, Mode::Exclusive);
    bench.beat(A, 300);
    assert_eq!(bench.granted(A, 1, Mode::Exclusive), first, "the same holder extends, and its generation stays");
    assert!(bench.refused(B, 1) && bench.refused(B, 2));
    bench.now_ms += 299;
    assert!(bench.refused(B, 3), "the lease is not over yet");
    bench.now_ms += 1;
    let second = bench.granted(B, 4, Mode::Exclusive);
    assert!(second.first > first.last && bench.row(A).is_none(), "who takes over ends the session");
    let mut last = second;
    bench.now_ms += LEASE_MS;
    for turn in 0..4 {
        bench.now_ms += 1;
        let session = SessionId(100 + turn);
        bench.open(session, 0);
        let next = bench.granted(session, 1, Mode::Exclusive);
        assert!(next.first > last.last, "leases of 0 ms take turns");
        last = next;
    }
    bench.now_ms += 1;
    bench.open(C, 10_000);
    let long = bench.granted(C, 20, Mode::Exclusive);
    for round in 0..3 {
        bench.now_ms += 9_000;
        bench.open(B, LEASE_MS);
        assert!(bench.refused(B, 30 + round), "a long lease blocks");
        bench.beat(C, 10_000);
        assert_eq!(bench.granted(C, 20, Mode::Exclusive), long, "and its holder keeps extending");
    }
}

#[test]
fn a_wall_clock_never_ends_a_lease() {
    let mut bench = Bench::new(false);
    bench.granted(A, 1, Mode::Exclusive);
    bench.now_ms += 1_000_000;
    assert!(bench.refused(B, 1));
}

#[test]
fn who_releases_grants_to_the_next_in_line() {
    let mut bench = Bench::new(false);
    let held = bench.granted(A, 1, Mode::Exclusive);
    bench.queued(B, 1, Mode::Exclusive);
    bench.queued(C, 1, Mode::Exclusive);
    let answer = bench.release(A, 1, held.first);
    assert_eq!(answer.outcome, Outcome::Released);
    let [heir] = &answer.promoted[..] else { panic!("{answer:?}") };
    assert_eq!((heir.holder, heir.request, &heir.key), (B, RequestId(1), &key("k")));
    assert!(heir.block.first > held.last);
    let Outcome::Granted(Granted { block: adopted, contended, .. }) = bench.ask(B, 1, Mode::Exclusive).outcome else {
        panic!("adopting is asking again");
    };
    assert_eq!((adopted, contended), (heir.block, true));
}

#[test]
fn a_stale_release_question_or_withdrawal_changes_nothing() {
    let mut bench = Bench::new(false);
    let old = bench.granted(A, 1, Mode::Exclusive);
    bench.release(A, 1, old.first);
    bench.granted(B, 1, Mode::Exclusive);
    let before = bench.record().clone();
    assert!(matches!(bench.release(A, 1, old.first).outcome, Outcome::NotCurrent { .. }));
    assert!(matches!(bench.verify(A, 1, old.first, true), Outcome::NotCurrent { .. }));
    bench.apply(A, Action::Withdraw { request: RequestId(1) });
    assert_eq!(*bench.record(), before);
}

#[test]
fn a_grant_is_current_for_its_session_its_token_and_its_request() {
    let mut bench = Bench::new(false);
    let held = bench.granted(A, 1, Mode::Exclusive);
    assert!(matches!(bench.verify(A, 1, held.first, false), Outcome::Current { .. }));
    for (session, request, token) in [(B, 1, held.first), (A, 2, held.first), (A, 1, held.first.next())] {
        let verified = bench.verify(session, request, token, true);
        assert!(matches!(verified, Outcome::NotCurrent { stolen: false, .. }), "{verified:?}");
        let fenced = bench
            .apply(session, Action::Fence { token, request: RequestId(request), upgrade: None, mode: Mode::Exclusive })
            .outcome;
        assert!(matches!(fenced, Outcome::NotCurrent { stolen: false, .. }), "{fenced:?}");
    }
    let fence = Action::Fence { token: held.first, request: RequestId(1), upgrade: None, mode: Mode::Exclusive };
    assert!(matches!(bench.apply(A, fence).outcome, Outcome::Current { .. }));
}

#[test]
fn e_a_release_takes_the_place_of_its_own_request_along_and_nobody_elses() {
    let mut bench = Bench::new(false);
    let held = bench.granted(A, 1, Mode::Exclusive);
    bench.queued(B, 1, Mode::Exclusive);
    bench.queued(C, 1, Mode::Exclusive);
    // It crossed the grant that it gives back, which another one got.
    let late = bench.release(B, 1, held.first.next());
    assert!(matches!(late.outcome, Outcome::NotCurrent { .. }), "{late:?}");
    let order: Vec<_> = bench.record().queue.iter().map(|waiter| waiter.holder).collect();
    assert_eq!(order, [C]);
}

/// A pair that no context of ours sends.
#[test]
fn e_a_release_takes_the_grant_of_its_request_along_and_leaves_that_of_its_token() {
    let mut bench = Bench::new(false);
    let tokens = [1, 2].map(|request| bench.granted(A, request, Mode::Shared).first);
    bench.granted(B, 1, Mode::Shared);
    assert!(matches!(bench.release(A, 1, tokens[1]).outcome, Outcome::NotCurrent { .. }));
    assert_eq!(bench.record().grants.iter().map(|grant| grant.holder).collect::<Vec<_>>(), [A, B]);
    assert_eq!(bench.record().grants[0].block.first, tokens[1]);
}

#[test]
fn a_request_names_its_attempt_and_a_later_one_replaces_it() {
    let mut bench = Bench::new(false);
    let held = bench.granted(A, 1, Mode::Exclusive);
    bench.queued(B, 1, Mode::Exclusive);
    bench.queued(C, 1, Mode::Exclusive);
    bench.queued(B, 2, Mode::Exclusive);
    assert_eq!(bench.ask(B, 1, Mode::Exclusive).outcome, Outcome::Superseded, "a late duplicate");
    let order: Vec<_> = bench.record().queue.iter().map(|waiter| (waiter.holder, waiter.request.0)).collect();
    assert_eq!(order, [(C, 1), (B, 2)], "an abandoned place is lost");
    bench.apply(C, Action::Withdraw { request: RequestId(1) });
    let answer = bench.release(A, 1, held.first);
    assert_eq!((answer.promoted[0].holder, answer.promoted[0].request.0), (B, 2));
}

#[test]
fn one_look_finds_the_grants_and_the_places_of_a_session_and_who_is_ahead_of_the_foremost() {
    let mut bench = Bench::new(false);
    let held = bench.granted(A, 1, Mode::Exclusive);
    bench.queued(B, 1, Mode::Exclusive);
    bench.queued(C, 1, Mode::Exclusive);
    let alone = Acquire { alone: true, ..bench.plain(2, Mode::Exclusive) };
    bench.apply(C, Action::Acquire(alone));
    let Outcome::Looked { requests, ahead, .. } = bench.apply(C, Action::Look).outcome else { panic!("it looks") };
    assert_eq!(requests, [RequestId(1), RequestId(2)]);
    assert_eq!(ahead.iter().map(|seen| seen.holder).collect::<Vec<_>>(), [A, B]);
    bench.release(A, 1, held.first);
    let before = bench.record().clone();
    let answer = bench.apply(B, Action::Look);
    let Outcome::Looked { requests, .. } = &answer.outcome else { panic!("{answer:?}") };
    assert_eq!((requests.len(), promoted(&answer)), (0, [B].into()), "who missed the signal is told by a look");
    assert_eq!(*bench.record(), before);
}

/// Rule S2, for several keys; and nothing is left of keys that were only looked at.
#[test]
fn s2_several_keys_need_a_session_too() {
    let mut bench = Bench::new(false);
    let both = Action::AcquireAll(
        [(key("k"), Acquire::new(RequestId(1), 1)), (key("l"), Acquire::new(RequestId(2), 1))].into(),
    );
    let reply = bench.run(&Batch::new(A, [operation("k", both)].into()));
    assert_eq!((reply.robbed, &reply.answers[0].outcome), (None, &Outcome::NoSession));
    assert!(bench.records.is_empty() && bench.row(A).is_none());
}

/// One of the keys was stolen meanwhile.
#[test]
fn s11_an_older_attempt_at_several_keys_gets_nothing_and_leaves_what_a_newer_one_got() {
    let both = |attempt| {
        let ask = |name, request| (key(name), Acquire::new(RequestId(request), attempt));
        Action::AcquireAll([ask("k", 1), ask("l", 2)].into())
    };
    let mut bench = Bench::new(false);
    bench.run(&open(A, Beat { beat: 1, lease_ms: LEASE_MS, ..Beat::default() }));
    let run = |bench: &mut Bench, action| bench.run(&Batch::new(A, [operation("k", action)].into())).answers.remove(0);
    assert!(matches!(run(&mut bench, both(13)).outcome, Outcome::GrantedAll(_)));
    let steal = Acquire { way: Way::Steal, ..Acquire::new(RequestId(1), 1) };
    bench.at("l", B, Action::Acquire(steal));
    let raise = Beat { beat: 14, lease_ms: LEASE_MS, floor: 14, ..Beat::default() };
    bench.run(&super::bench::beat(A, raise));
    let before = bench.record().clone();
    assert_eq!(run(&mut bench, both(13)).outcome, Outcome::TooLate);
    assert_eq!(*bench.record(), before, "it comes late");
    assert!(matches!(run(&mut bench, both(14)).outcome, Outcome::BusyAll(_)));
    assert_eq!(bench.holders(), [A]);
}

#[test]
fn tokens_grow_over_a_wiped_store_and_refuse_at_the_end() {
    let mut bench = Bench::new(false);
    let before = bench.granted(A, 1, Mode::Exclusive);
    let wipe = |bench: &mut Bench| {
        bench.records = Records::whole(StoreId(10));
        bench.open(A, LEASE_MS);
    };
    wipe(&mut bench);
    bench.now_ms += 1;
    assert!(bench.granted(A, 2, Mode::Exclusive).first > before.last);
    wipe(&mut bench);
    bench.now_ms = u64::MAX;
    let capped = block(&bench.ask(A, 3, Mode::Exclusive));
    assert_eq!(capped.first.as_u64(), 1 << 52, "one wrong clock cannot use up a key");
    bench.release(A, 3, capped.first);
    bench.record_mut("k").last_token = Token((1 << 53) - 64);
    assert_eq!(bench.ask(A, 4, Mode::Exclusive).outcome, Outcome::Exhausted);
    assert!(bench.record().queue.is_empty());
}

/// A context leaves a lease, takes it over again under the same token, and only then what it sent before comes.
#[test]
fn i9_what_comes_late_does_nothing_to_a_lease_that_was_taken_over_since() {
    let mut bench = Bench::new(false);
    let held = bench.granted(A, 1, Mode::Exclusive);
    let (token, request, to) = (held.first, RequestId(1), SessionId(0xdd));
    bench.apply(A, Action::Detach { token, request, to, lease_ms: 1_000 });
    bench.ask_by(A, 2, Mode::Exclusive, Way::Resume { from: to, origin: A, token, request });
    let before = bench.record().clone();
    for late in [Action::Downgrade { token, request }, Action::Release { token, request }] {
        let answer = bench.apply(A, late);
        assert!(matches!(answer.outcome, Outcome::NotCurrent { .. }), "{answer:?}");
        assert_eq!(bench.record(), &before);
    }
    assert_eq!(bench.release(A, 2, token).outcome, Outcome::Released);
}

#[test]
fn i9_an_upgrade_that_comes_late_exchanges_nothing_that_was_taken_over_since() {
    let mut bench = Bench::new(false);
    let (token, request, to) = (bench.granted(A, 1, Mode::Shared).first, RequestId(1), SessionId(0xdd));
    bench.apply(A, Action::Detach { token, request, to, lease_ms: 1_000 });
    bench.ask_by(A, 2, Mode::Shared, Way::Resume { from: to, origin: A, token, request });
    let before = bench.record().clone();
    let late = bench.ask_by(A, 3, Mode::Exclusive, Way::Upgrade { token, request });
    assert!(matches!(late.outcome, Outcome::NotCurrent { .. }), "{late:?}");
    assert_eq!(bench.record(), &before);
    let request = RequestId(2);
    block(&bench.ask_by(A, 4, Mode::Exclusive, Way::Upgrade { token, request }));
}
