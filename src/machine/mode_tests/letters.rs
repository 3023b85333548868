//! The protocol's rules by their letters, as far as a store keeps them.

use alloc::{vec, vec::Vec};

use super::super::{
    Acquire, Action, Answer, BLOCK, Entry, Granted, Incarnation, Key, Mode, Outcome, Record, RequestId, Token,
    TokenBlock, Unreadable, Way,
};
use super::{A, B, Bench, C, D, block, promoted};

/// Who removes a grant, and how, by its tokens and its beat.
type Removal = fn(TokenBlock, u64) -> (Incarnation, Action);

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
        |block, beat| (C, Action::Evict { target: A, entry: Entry::Grant(block.first), beat }),
        |block, _| (A, Action::Downgrade { token: block.first }),
    ];
    for removal in removals {
        let mut bench = Bench::new(false);
        let block = bench.granted(A, 1, Mode::Exclusive);
        bench.queued(B, 1, Mode::Shared);
        let (holder, action) = removal(block, bench.record().grants[0].beat);
        assert_eq!(promoted(&bench.apply(holder, action.clone())), [B], "{action:?}");
    }
    let mut bench = Bench::new(false);
    bench.granted(A, 1, Mode::Shared);
    bench.queued(B, 1, Mode::Exclusive);
    bench.queued(C, 1, Mode::Shared);
    assert_eq!(promoted(&bench.apply(B, Action::Withdraw { request: RequestId(1) })), [C], "a place that goes, too");
}

/// Rule g.
#[test]
fn g_evicting_a_waiter_needs_its_holder_request_and_beat() {
    let mut bench = Bench::new(false);
    bench.granted(A, 1, Mode::Exclusive);
    bench.queued(B, 1, Mode::Exclusive);
    let beat = bench.record().queue[0].beat;
    let evict = |target, request, beat| Action::Evict { target, entry: Entry::Waiter(RequestId(request)), beat };
    let before = bench.record().clone();
    for wrong in [evict(C, 1, beat), evict(B, 2, beat), evict(B, 1, beat - 1)] {
        assert_eq!(bench.apply(C, wrong).outcome, Outcome::Moved);
    }
    assert_eq!(*bench.record(), before);
    assert_eq!(bench.apply(C, evict(B, 1, beat)).outcome, Outcome::Evicted);
    assert_eq!(bench.waiting(), []);
}

/// Rule h.
#[test]
fn h_asking_never_voids_another_grant_of_ones_own() {
    let mut bench = Bench::new(true);
    let first = bench.granted(A, 1, Mode::Exclusive);
    bench.now_ms += 5_000;
    bench.queued(A, 2, Mode::Exclusive);
    assert_eq!(bench.record().grants[0].block, first, "even one that ran out");
    let answer = bench.release(A, 99, first.first);
    assert_eq!(answer.outcome, Outcome::Released, "its token alone gives it back");
    assert_eq!(answer.promoted[0].request, RequestId(2));
}

/// Rule i.
#[test]
fn i_an_onlooker_sees_the_recorded_lease_of_heir_and_holder() {
    let mut bench = Bench::new(false);
    let held = bench.granted(A, 1, Mode::Exclusive);
    bench.queued(B, 1, Mode::Exclusive);
    let seen = |bench: &mut Bench| match bench.ask(C, 1, Mode::Exclusive).outcome {
        Outcome::Waiting { ahead, .. } => ahead.iter().map(|seen| (seen.holder, seen.lease_ms)).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(seen(&mut bench), [(A, 1_000), (B, 1_000)]);
    bench.release(A, 1, held.first);
    assert_eq!(seen(&mut bench), [(B, 400)], "an heir may be dead");
    let heir = bench.granted(B, 1, Mode::Exclusive);
    assert_eq!(seen(&mut bench), [(B, 1_000)], "its adoption is a renewal");
    let beat = bench.beat + 1;
    bench.renew(B, heir.first, beat, 9_000, false);
    assert_eq!(seen(&mut bench), [(B, 9_000)]);
}

/// Rules c and j.
#[test]
fn c_j_adopting_renews_but_never_shortens_and_an_older_beat_is_ignored() {
    let mut bench = Bench::new(false);
    let ask = |beat, beacon, lease_ms| Acquire { beacon, ..Acquire::new(RequestId(1), beat, lease_ms) };
    let told = |answer: Answer| match answer.outcome {
        Outcome::Granted(granted) => granted.lease_ms,
        other => panic!("{other:?}"),
    };
    assert_eq!(told(bench.apply(A, Action::Acquire(ask(5, 0, 1_000)))), 1_000);
    let written = |bench: &Bench| {
        let grant = &bench.record().grants[0];
        (grant.beat, grant.beacon, grant.lease_ms, grant.renewed_at.as_ms())
    };
    bench.now_ms += 10;
    assert_eq!(told(bench.apply(A, Action::Acquire(ask(6, 3, 400)))), 1_000);
    assert_eq!(written(&bench), (6, 3, 1_000, 1_010));
    bench.now_ms += 10;
    assert_eq!(told(bench.apply(A, Action::Acquire(ask(6, 9, 7_000)))), 1_000, "a duplicate");
    assert_eq!(written(&bench), (6, 3, 1_000, 1_010));
    assert_eq!(told(bench.apply(A, Action::Acquire(ask(7, 4, 7_000)))), 7_000);
    let token = bench.record().grants[0].block.first;
    assert!(matches!(bench.renew(A, token, 8, 300, false), Outcome::Renewed { lease_ms: 300, .. }), "a renewal may");
    assert!(matches!(bench.renew(A, token, 8, 900, false), Outcome::Renewed { lease_ms: 300, .. }), "a duplicate");
}

/// Rule m: the flag is the generation that stood when it was written, 0 for none.
#[test]
fn m_sightings_carry_the_beacon_of_the_very_beat() {
    let mut bench = Bench::new(false);
    let lit = Acquire { beacon: 2, ..bench.plain(1, Mode::Exclusive) };
    let token = block(&bench.apply(A, Action::Acquire(lit))).first;
    let lit = Acquire { beacon: 5, ..bench.plain(1, Mode::Exclusive) };
    bench.apply(B, Action::Acquire(lit));
    let seen = |bench: &mut Bench| {
        let ask = Acquire { wait: false, ..bench.plain(1, Mode::Exclusive) };
        match bench.apply(C, Action::Acquire(ask)).outcome {
            Outcome::Busy { ahead } => ahead.iter().map(|seen| (seen.beat, seen.beacon)).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(seen(&mut bench), [(1, 2), (2, 5)]);
    bench.apply(A, Action::Renew { token, beat: 40, beacon: 0, lease_ms: 1_000, refill: false });
    bench.apply(A, Action::Release { token, request: RequestId(1) });
    assert_eq!(seen(&mut bench), [(2, 5)], "an heir's beat and beacon are those of its place");
}

/// Rule q.
#[test]
fn q_the_last_token_is_the_end_of_the_block_and_a_refill_reserves_more() {
    let mut bench = Bench::new(false);
    let held = bench.granted(A, 1, Mode::Exclusive);
    assert_eq!(held.last.as_u64() - held.first.as_u64() + 1, BLOCK);
    assert_eq!((bench.record().last_token, bench.record().last_exclusive), (held.last, held.last));
    let Outcome::Renewed { refill: Some(more), .. } = bench.renew(A, held.first, 2, 1_000, true) else {
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
    let exclusive = block(&bench.ask_by(A, 2, Mode::Exclusive, Way::Upgrade(shared.first)));
    assert!(exclusive.first > shared.last, "ahead of everybody who queues");
    assert_eq!(bench.holders(), [A]);
    assert_eq!(block(&bench.ask_by(A, 2, Mode::Exclusive, Way::Upgrade(shared.first))), exclusive, "asked again");
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
    bench.records.record(&Key::new("k").unwrap()).unwrap().last_token = Token((1 << 53) - BLOCK);
    let before = bench.record().clone();
    for way in [Way::Plain, Way::Steal, Way::Upgrade(token)] {
        assert_eq!(bench.ask_by(D, 1, Mode::Exclusive, way).outcome, Outcome::Exhausted);
    }
    assert_eq!(*bench.record(), before, "nobody is robbed in vain");
    let renewed = bench.renew(A, token, 99, 1_000, true);
    assert!(matches!(renewed, Outcome::Renewed { refill: None, .. }), "the lease goes on: {renewed:?}");
}

/// Rule s.
#[test]
fn s_a_fence_asks_for_holder_first_token_and_request() {
    let mut bench = Bench::new(false);
    let held = bench.granted(A, 1, Mode::Shared);
    let other = bench.granted(B, 7, Mode::Shared);
    let fence = |token, request| Action::Fence { token, request: RequestId(request) };
    let before = bench.record().clone();
    assert_eq!(bench.apply(A, fence(held.first, 1)).outcome, Outcome::Current);
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

fn all(bench: &mut Bench, holder: Incarnation, asks: &[(&str, u64, Mode)]) -> Answer {
    let asks = asks.iter().map(|(key, request, mode)| {
        (Key::new(key).unwrap(), Acquire { wait: false, alone: true, ..bench.plain(*request, *mode) })
    });
    let asks: Vec<_> = asks.collect();
    bench.apply(holder, Action::AcquireAll(asks))
}

#[test]
fn i14_several_keys_are_taken_together_or_not_at_all() {
    let mut bench = Bench::new(false);
    let wanted = [("k", 1, Mode::Exclusive), ("l", 2, Mode::Shared), ("m", 3, Mode::Exclusive)];
    let blocker = bench.at("m", B, Action::Acquire(Acquire::new(RequestId(1), 1, 1_000)));
    let before = bench.records.clone();
    let Outcome::BusyAll(ahead) = all(&mut bench, A, &wanted).outcome else { panic!("one of them is taken") };
    assert_eq!(ahead.iter().map(Vec::len).collect::<Vec<_>>(), [0, 0, 1]);
    assert_eq!(before.peek(&Key::new("m").unwrap()), bench.records.peek(&Key::new("m").unwrap()));
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
    bench.records.record(&Key::new("l").unwrap()).unwrap().last_token = Token((1 << 53) - 1);
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
    bench.records.load(Key::new("l").unwrap(), Some("{\"format\":2}"));
    let answer = all(&mut bench, C, &[("k", 1, Mode::Exclusive), ("l", 2, Mode::Exclusive)]);
    assert_eq!(answer.outcome, Outcome::Unreadable(Unreadable::FormatTooNew { found: 2, known: 1 }));
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
    bench.records.load(Key::new("k").unwrap(), Some(&forged));
    bench.now_ms = 0;
    bench.renew(A, held.first, 99, 1_000, true);
    let after = bench.record().encode();
    assert!(Record::decode(&after).is_ok(), "{after}");
}
