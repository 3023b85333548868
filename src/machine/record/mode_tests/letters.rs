//! The protocol's rules by their letters, as far as a store keeps them.

use alloc::{vec, vec::Vec};

use super::super::{
    Acquire, Action, Answer, Beat, Granted, Mode, Outcome, Record, RequestId, Unreadable, Way,
    bench::{A, B, Bench, C, D, LEASE_MS, beat, block, key, promoted, upgrade},
    id::SessionId,
    token::{BLOCK, Token, TokenBlock},
};

/// Who removes a grant, and how, by its tokens and its beat.
type Removal = fn(TokenBlock, u64) -> (SessionId, Action);

/// Rule e.
#[test]
fn e_withdrawing_takes_the_place_or_the_grant_and_so_does_releasing() {
    let mut bench = Bench::new(false);
    let held = bench.granted(A, 1, Mode::Exclusive);
    bench.queued(B, 1, Mode::Exclusive);
    bench.queued(C, 1, Mode::Exclusive);
    bench.apply(B, Action::Withdraw { request: RequestId(1) });
    assert_eq!((bench.holders(), bench.waiting()), (vec![A], vec![C]), "only the holder's own request of that number");
    assert_eq!(promoted(&bench.apply(A, Action::Withdraw { request: RequestId(1) })), [C]);
    bench.queued(A, 2, Mode::Exclusive);
    let answer = bench.release(A, 2, held.first);
    assert!(matches!(answer.outcome, Outcome::NotCurrent { stolen: false, .. }));
    assert_eq!((bench.holders(), bench.waiting()), (vec![C], vec![]), "a late release takes its request's place along");
}

/// Rule f.
#[test]
fn f_whatever_frees_the_key_grants_it_to_the_next() {
    let removals: [Removal; 4] = [
        |block, _| (A, Action::Release { token: block.first, request: RequestId(1) }),
        |_, _| (A, Action::Withdraw { request: RequestId(1) }),
        |_, beat| (C, Action::End { target: A, beat }),
        |block, _| (A, Action::Downgrade { token: block.first, request: RequestId(1) }),
    ];
    for removal in removals {
        let mut bench = Bench::new(false);
        let block = bench.granted(A, 1, Mode::Exclusive);
        bench.queued(B, 1, Mode::Shared);
        let (holder, action) = removal(block, bench.row(A).unwrap().beat);
        assert_eq!(promoted(&bench.apply(holder, action.clone())), [B], "{action:?}");
    }
    let mut bench = Bench::new(false);
    bench.granted(A, 1, Mode::Shared);
    bench.queued(B, 1, Mode::Exclusive);
    bench.queued(C, 1, Mode::Shared);
    assert_eq!(promoted(&bench.apply(B, Action::Withdraw { request: RequestId(1) })), [C], "a place that goes, too");
}

/// Rule S3.
#[test]
fn s3_who_ends_a_session_must_have_seen_its_very_beat() {
    let mut bench = Bench::new(false);
    bench.granted(A, 1, Mode::Exclusive);
    bench.queued(B, 1, Mode::Exclusive);
    let seen = bench.row(A).unwrap().beat;
    bench.beat(A, LEASE_MS);
    let (end, before) = (|beat| Action::End { target: A, beat }, bench.records.clone());
    let now = bench.row(A).unwrap().beat;
    for wrong in [seen, now - 1, now + 1, 0] {
        assert_eq!(bench.apply(C, end(wrong)).outcome, Outcome::Moved);
        assert_eq!((bench.record(), bench.row(A)), (before.peek(&key("k")).unwrap(), before.session(A)));
    }
    let answer = bench.apply(C, end(now));
    assert_eq!((&answer.outcome, promoted(&answer)), (&Outcome::Ended, vec![B]));
    assert_eq!((bench.holders(), bench.row(A)), (vec![B], None));
    assert_eq!(bench.apply(C, end(now)).outcome, Outcome::Ended, "once is enough");
}

/// Rule h.
#[test]
fn h_asking_never_voids_another_grant_of_ones_own() {
    let mut bench = Bench::new(true);
    let first = bench.granted(A, 1, Mode::Exclusive);
    bench.now_ms += 5_000;
    bench.queued(A, 2, Mode::Exclusive);
    assert_eq!(bench.record().grants[0].block, first, "even one that ran out");
    let answer = bench.release(A, 1, first.first);
    assert_eq!(answer.outcome, Outcome::Released);
    assert_eq!(answer.promoted[0].request, RequestId(2));
}

fn seen(bench: &mut Bench) -> Vec<(SessionId, u64, bool, u64)> {
    let ask = Acquire { wait: false, ..bench.plain(1, Mode::Exclusive) };
    match bench.apply(C, Action::Acquire(ask)).outcome {
        Outcome::Busy { ahead } => {
            ahead.iter().map(|seen| (seen.holder, seen.beat, seen.beacon, seen.lease_ms)).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// Rule S4.
#[test]
fn s4_an_onlooker_sees_the_row_of_holder_and_waiter_and_an_heir_keeps_its_own() {
    let mut bench = Bench::new(false);
    let held = bench.granted(A, 1, Mode::Exclusive);
    bench.queued(B, 1, Mode::Exclusive);
    let next = |number, beacon, lease_ms| Beat { beat: number, beacon, lease_ms, floor: 0 };
    bench.run(&beat(A, next(50, true, 300)));
    bench.run(&beat(B, next(60, false, 9_000)));
    assert_eq!(seen(&mut bench), [(A, 50, true, 300), (B, 60, false, 9_000)]);
    bench.release(A, 1, held.first);
    assert_eq!(seen(&mut bench), [(B, 60, false, 9_000)], "what was seen of a silent waiter counts when it holds");
    bench.granted(B, 1, Mode::Exclusive);
    assert_eq!(seen(&mut bench), [(B, 60, false, 9_000)], "to adopt the grant is no sign of life");
}

/// Rule S13: an older beat changes nothing, and a newer one may shorten the lease.
#[test]
fn s13_beats_carry_numbers_and_older_ones_are_ignored() {
    let mut bench = Bench::new(true);
    bench.granted(A, 1, Mode::Exclusive);
    let next = |number, beacon, lease_ms| beat(A, Beat { beat: number, beacon, lease_ms, floor: 0 });
    bench.run(&next(50, true, 7_000));
    let before = bench.row(A).cloned();
    bench.now_ms += 100;
    for late in [next(49, false, 90_000), next(50, false, 90_000)] {
        bench.run(&late);
        assert_eq!(bench.row(A), before.as_ref());
    }
    bench.run(&next(51, false, 300));
    assert_eq!(seen(&mut bench), [(A, 51, false, 300)]);
    bench.now_ms += 300;
    bench.granted(B, 1, Mode::Exclusive);
}

/// Rule q.
#[test]
fn q_the_last_token_is_the_end_of_the_block_and_a_refill_reserves_more() {
    let mut bench = Bench::new(false);
    let held = bench.granted(A, 1, Mode::Exclusive);
    assert_eq!(held.last.as_u64() - held.first.as_u64() + 1, BLOCK);
    assert_eq!((bench.record().last_token, bench.record().last_exclusive), (held.last, held.last));
    let Outcome::Current { refill: Some(more), .. } = bench.verify(A, 1, held.first, true) else {
        panic!("more tokens");
    };
    assert!(more.first > held.last && more.last.as_u64() - more.first.as_u64() + 1 == 16 * BLOCK);
    assert_eq!((bench.record().last_token, bench.record().last_exclusive), (more.last, more.last));
    let again = bench.granted(A, 1, Mode::Exclusive);
    assert_eq!((again.first, again.last), (held.first, more.last), "the first token stays its identity");
    let answer = bench.release(A, 1, held.first);
    assert_eq!(answer.outcome, Outcome::Released);
    assert!(bench.granted(B, 1, Mode::Exclusive).first > more.last, "none is granted twice");
}

/// Rule q: an upgrade takes a new block.
#[test]
fn q_an_upgrade_gives_the_old_grant_for_a_new_one() {
    let mut bench = Bench::new(false);
    let shared = bench.granted(A, 1, Mode::Shared);
    bench.queued(B, 1, Mode::Exclusive);
    let exclusive = block(&bench.ask_by(A, 2, Mode::Exclusive, upgrade(shared.first)));
    assert!(exclusive.first > shared.last, "ahead of everybody who queues");
    assert_eq!(bench.holders(), [A]);
    assert_eq!(block(&bench.ask_by(A, 2, Mode::Exclusive, upgrade(shared.first))), exclusive, "asked again");
    assert!(matches!(bench.release(A, 1, shared.first).outcome, Outcome::NotCurrent { .. }));
}

/// Rule r.
#[test]
fn r_the_clocks_part_is_capped_and_the_end_refuses() {
    let mut bench = Bench::new(false);
    assert_eq!(bench.granted(A, 1, Mode::Shared).first.as_u64(), 1_000 << 10);
    bench.now_ms = u64::MAX;
    assert_eq!(bench.granted(B, 1, Mode::Shared).first.as_u64(), 1 << 52);
    bench.now_ms = 0;
    assert_eq!(bench.granted(C, 1, Mode::Shared).first.as_u64(), (1 << 52) + BLOCK, "a clock that went back");
    let token = bench.record().grants[0].block.first;
    bench.record_mut("k").last_token = Token((1 << 53) - BLOCK);
    let before = bench.record().clone();
    for way in [Way::Plain, Way::Steal, upgrade(token)] {
        assert_eq!(bench.ask_by(D, 1, Mode::Exclusive, way).outcome, Outcome::Exhausted);
    }
    assert_eq!(*bench.record(), before, "nobody is robbed in vain");
    let verified = bench.verify(A, 1, token, true);
    assert!(matches!(verified, Outcome::Current { refill: None, .. }), "the lease goes on: {verified:?}");
}

/// Rule s.
#[test]
fn s_a_fence_asks_for_holder_first_token_and_request() {
    let mut bench = Bench::new(false);
    let held = bench.granted(A, 1, Mode::Shared);
    let other = bench.granted(B, 7, Mode::Shared);
    let fence =
        |token, request| Action::Fence { token, request: RequestId(request), upgrade: None, mode: Mode::Shared };
    let before = bench.record().clone();
    assert!(matches!(bench.apply(A, fence(held.first, 1)).outcome, Outcome::Current { .. }));
    for (holder, token, request) in
        [(B, held.first, 1), (A, held.first.next(), 1), (A, held.first, 7), (A, other.first, 1)]
    {
        assert!(matches!(bench.apply(holder, fence(token, request)).outcome, Outcome::NotCurrent { .. }));
    }
    assert_eq!(*bench.record(), before, "and changes nothing");
    bench.release(A, 1, held.first);
    assert!(matches!(bench.apply(A, fence(held.first, 1)).outcome, Outcome::NotCurrent { .. }));
}

/// M6, for those who share.
#[test]
fn m6_shared_leases_run_out_by_a_trusted_clock_each_by_itself() {
    let mut bench = Bench::new(true);
    bench.granted(A, 1, Mode::Shared);
    bench.now_ms += 600;
    bench.granted(B, 1, Mode::Shared);
    bench.now_ms += 400;
    bench.queued(C, 1, Mode::Exclusive);
    assert_eq!(bench.holders(), [B], "one of them is over");
    bench.now_ms += 600;
    bench.granted(C, 1, Mode::Exclusive);
    assert_eq!(bench.holders(), [C]);
}

fn all(bench: &mut Bench, holder: SessionId, asks: &[(&str, u64, Mode)]) -> Answer {
    let asks = asks
        .iter()
        .map(|(name, request, mode)| (key(name), Acquire { wait: false, alone: true, ..bench.plain(*request, *mode) }));
    let asks: Vec<_> = asks.collect();
    bench.apply(holder, Action::AcquireAll(asks))
}

#[test]
fn i14_several_keys_are_taken_together_or_not_at_all() {
    let mut bench = Bench::new(false);
    let wanted = [("k", 1, Mode::Exclusive), ("l", 2, Mode::Shared), ("m", 3, Mode::Exclusive)];
    let blocker = bench.at("m", B, Action::Acquire(Acquire::new(RequestId(1), 1)));
    let before = bench.records.clone();
    let Outcome::BusyAll(ahead) = all(&mut bench, A, &wanted).outcome else { panic!("one of them is taken") };
    assert_eq!(ahead.iter().map(Vec::len).collect::<Vec<_>>(), [0, 0, 1]);
    assert_eq!(before.peek(&key("m")), bench.records.peek(&key("m")));
    assert!(bench.holders().is_empty() && bench.waiting().is_empty());
    let token = block(&blocker).first;
    bench.at("m", B, Action::Release { token, request: RequestId(1) });
    let Outcome::GrantedAll(first) = all(&mut bench, A, &wanted).outcome else { panic!("all are free") };
    let Outcome::GrantedAll(again) = all(&mut bench, A, &wanted).outcome else { panic!("it has them") };
    let blocks = |all: &[Granted]| all.iter().map(|granted| granted.block).collect::<Vec<_>>();
    assert_eq!(blocks(&first), blocks(&again), "asked again, it is the same grants");
}

#[test]
fn i14_a_key_that_cannot_be_granted_gives_the_others_back() {
    let mut bench = Bench::new(false);
    let other = block(&bench.at("l", A, Action::Acquire(Acquire::new(RequestId(9), 1))));
    bench.at("l", A, Action::Release { token: other.first, request: RequestId(9) });
    bench.record_mut("l").last_token = Token((1 << 53) - 1);
    let answer = all(&mut bench, A, &[("k", 1, Mode::Exclusive), ("l", 2, Mode::Exclusive)]);
    assert_eq!((answer.outcome, bench.holders()), (Outcome::Exhausted, vec![]));
}

#[test]
fn i14_beside_a_key_that_cannot_be_read_nobody_is_granted_untold() {
    let mut bench = Bench::new(true);
    bench.granted(A, 1, Mode::Exclusive);
    bench.now_ms += 600;
    bench.queued(B, 1, Mode::Exclusive);
    bench.now_ms += 400;
    bench.records.load(key("l"), Some("{\"format\":2}"));
    let answer = all(&mut bench, C, &[("k", 1, Mode::Exclusive), ("l", 2, Mode::Exclusive)]);
    assert_eq!(answer.outcome, Outcome::UnreadableAt(1, Unreadable::FormatTooNew { found: 2, known: 1 }));
    assert_eq!(promoted(&answer), if bench.holders() == [B] { vec![B] } else { vec![] });
}

/// What is read is input: a record whose last token is smaller than its grants' must not hand one out twice.
#[test]
fn a_refill_never_turns_a_record_into_one_that_cannot_be_read() {
    let mut bench = Bench::new(false);
    let held = bench.granted(A, 1, Mode::Exclusive);
    let text = bench.record().encode();
    let forged = text.replacen(&alloc::format!("\"last_token\":{}", held.last.as_u64()), "\"last_token\":5", 1);
    assert_ne!(text, forged);
    bench.records.load(key("k"), Some(&forged));
    bench.now_ms = 0;
    bench.verify(A, 1, held.first, true);
    let after = bench.record().encode();
    assert!(Record::decode(&after).is_ok(), "{after}");
}

/// Rule s.
#[test]
fn s_a_fence_of_an_exclusive_guard_tells_a_downgrade_from_a_loss() {
    let mut bench = Bench::new(false);
    let token = bench.granted(A, 1, Mode::Exclusive).first;
    let request = RequestId(1);
    let fence = |mode| Action::Fence { token, request, upgrade: None, mode };
    for (downgraded, mode, expected) in [
        (false, Mode::Exclusive, Outcome::Current { contended: false, refill: None }),
        (false, Mode::Shared, Outcome::Current { contended: false, refill: None }),
        (true, Mode::Exclusive, Outcome::Downgraded),
        (true, Mode::Shared, Outcome::Current { contended: false, refill: None }),
    ] {
        if downgraded {
            bench.apply(A, Action::Downgrade { token, request });
        }
        assert_eq!(bench.apply(A, fence(mode)).outcome, expected, "downgraded: {downgraded}, asked as {mode:?}");
    }
}
