//! Rule by rule of the protocol. The letters are those of the rules.

use super::{LEASE_MS, ME, OTHER, Script, block, granted, heir, is_granted, seen, waiting};
use crate::machine::{
    Action, Beacon, Body, Entry, Input, LostReason, Outcome, Output, RequestId, Sighting, Token, TurnId,
};

#[test]
fn a_every_enqueue_draws_a_fresh_request() {
    let mut script = Script::new();
    let first = script.queue(1, 100);
    script.input(Input::Cancel { turn: TurnId(1), slot: script.slot() });
    assert_eq!(script.actions(), [Action::Withdraw { request: first }]);
    script.answer([Outcome::Withdrawn]);
    assert!(script.queue(2, 100) > first);
}

#[test]
fn b_a_signalled_grant_is_believed_only_with_a_larger_token() {
    let mut script = Script::new();
    let request = script.queue(1, 100);
    assert!(!is_granted(script.signal(heir(request, 100))), "it is older than the answer");
    assert!(!is_granted(script.signal(heir(RequestId(request.0 + 1), 200))), "another request");
    let stranger = Body::Granted { holder: OTHER, request, block: block(200), lease_ms: 10_000, previous: Token(0) };
    assert!(!is_granted(script.signal(stranger)), "another holder");
    assert!(is_granted(script.signal(heir(request, 101))));
    assert!(!is_granted(script.signal(heir(request, 101))), "a doubled signal grants nothing");
}

#[test]
fn b_a_request_without_an_answer_counts_from_its_first_attempt() {
    let mut script = Script::new();
    script.acquire(1, true);
    let (id, _) = script.sent();
    script.now_ms += 3_000;
    assert!(is_granted(script.signal(heir(RequestId(1), 101))));
    assert_eq!(script.remaining_ms(1), 9_000 - 3_000);
    assert!(!is_granted(script.reply(id, [waiting(64, 1)])), "an answer from before the grant changes nothing");
    assert_eq!(script.remaining_ms(1), 6_000);
}

#[test]
fn d_an_heir_counts_from_its_last_waiting_answer_and_renews_soon() {
    let mut script = Script::new();
    let request = script.queue(1, 100);
    script.tick(5_000);
    script.now_ms += 1_000;
    script.answer([waiting(100, 2)]);
    script.now_ms += 2_000;
    assert!(is_granted(script.signal(heir(request, 101))));
    assert_eq!(script.remaining_ms(1), 9_000 - 3_000, "from the send of the last request that found it waiting");
    script.tick(50);
    assert!(matches!(script.actions()[..], [Action::Renew { token: Token(101), .. }]));
}

#[test]
fn d_an_heir_whose_turn_is_over_in_a_moment_renews_nothing() {
    let mut script = Script::new();
    let request = script.queue(1, 100);
    script.signal(heir(request, 101));
    script.tick(10);
    script.input(Input::Release { turn: TurnId(1), slot: script.slot() });
    assert!(matches!(script.actions()[..], [Action::Release { token: Token(101), .. }]));
}

#[test]
fn d_an_heir_with_little_left_renews_at_once() {
    let mut script = Script::new();
    let request = script.queue(1, 100);
    // The place beat is on its way and not answered: what is left is counted from the one before.
    script.tick(5_000);
    let (beat, _) = script.sent();
    script.now_ms += 1_500;
    assert!(is_granted(script.signal(heir(request, 101))));
    assert_eq!(script.remaining_ms(1), 9_000 - 6_500);
    script.reply(beat, [waiting(100, 1)]);
    assert!(matches!(script.actions()[..], [Action::Renew { token: Token(101), .. }]));
}

#[test]
fn d_an_heir_that_learns_too_late_renews_before_the_first_guard() {
    let mut script = Script::new();
    let request = script.queue(1, 100);
    // The place beat is on its way and not answered.
    script.tick(5_000);
    let (beat, _) = script.sent();
    script.now_ms += 4_500;
    assert!(!is_granted(script.signal(heir(request, 101))), "its first lease is over already");
    script.reply(beat, [waiting(100, 1)]);
    assert!(matches!(script.actions()[..], [Action::Renew { token: Token(101), .. }]));
    let renewed = Outcome::Renewed { lease_ms: LEASE_MS, contended: false, refill: None };
    assert!(is_granted(script.answer([renewed])));
}

#[test]
fn e_after_a_loss_the_request_is_withdrawn_too() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    script.tick(5_000);
    let not_current = Outcome::NotCurrent { last_token: Token(500), stolen: false };
    let outputs = script.answer([not_current]).to_vec();
    assert!(outputs.contains(&Output::Lost { turn: TurnId(1), reason: LostReason::Evicted }));
    assert_eq!(script.actions(), [Action::Withdraw { request: RequestId(1) }]);
}

#[test]
fn h_an_own_grant_under_an_unknown_request_is_released_by_its_token() {
    let mut script = Script::new();
    script.acquire(1, true);
    let own = Sighting { holder: ME, ..seen(1, 0) };
    script.answer([Outcome::Waiting { last_token: Token(127), ahead: [own].into() }]);
    assert!(matches!(script.actions()[..], [Action::Release { token: Token(64), .. }]));
}

#[test]
fn h_a_signalled_grant_under_an_unknown_request_is_released() {
    let mut script = Script::new();
    script.queue(1, 100);
    script.signal(heir(RequestId(77), 200));
    assert_eq!(script.actions(), [Action::Release { token: Token(200), request: RequestId(77) }]);
}

#[test]
fn i_silence_counts_from_after_the_read_and_any_change_starts_it_anew() {
    let mut script = Script::new();
    script.queue(1, 100);
    let mut evicted_at = None;
    for _ in 0..40 {
        script.tick(1_000);
        let Some(Output::Store { id, batch }) = script.outputs.first().cloned() else { continue };
        if batch.0.iter().any(|operation| matches!(operation.action, Action::Evict { .. })) {
            evicted_at = Some(script.now_ms);
            break;
        }
        // Once, after 6 s, the holder is seen to have renewed.
        let beat = if script.now_ms < 6_500 { 1 } else { 2 };
        script.reply(id, [waiting(100, beat)]);
    }
    let evicted_at = evicted_at.expect("a silent holder is evicted in the end");
    assert!(evicted_at >= 6_500 + 22_000, "a whole lease and a margin after the change, not {evicted_at}");
}

#[test]
fn m_a_beacons_absence_counts_only_when_seen_after_the_very_beat() {
    let mut script = Script::new();
    script.acquire(1, true);
    let ahead = |beat| Outcome::Waiting { last_token: Token(127), ahead: [seen(beat, 7)].into() };
    let beacon = Beacon { holder: OTHER, generation: 7 };
    let outputs = script.answer([ahead(1)]).to_vec();
    assert!(outputs.contains(&Output::Watch { watch: 1, beacon }));
    script.tick(5_000);
    let outputs = script.answer([ahead(2)]).to_vec();
    assert!(outputs.contains(&Output::Unwatch { watch: 1 }) && outputs.contains(&Output::Watch { watch: 2, beacon }));
    assert!(script.input(Input::BeaconGone { watch: 1 }).is_empty(), "the old watch proves nothing of the new beat");
    script.input(Input::BeaconGone { watch: 2 });
    let evict = Action::Evict { target: OTHER, entry: Entry::Grant(Token(64)), beat: 2 };
    assert_eq!(script.actions()[0], evict);
}

#[test]
fn n_operations_say_whether_the_beacon_stood_when_they_were_sent() {
    let mut script = Script::with_beacon();
    script.acquire(1, true);
    let Some(Output::Wake { beacon: Some(beacon) }) = script.outputs.first().cloned() else { panic!("it wakes") };
    assert_eq!(script.outputs.len(), 1, "the first grant waits a moment for the beacon");
    script.input(Input::BeaconStands(beacon));
    assert!(matches!(&script.actions()[0], Action::Acquire(acquire) if acquire.beacon == beacon.generation));

    let mut dark = Script::with_beacon();
    dark.acquire(1, true);
    dark.tick(300);
    assert!(matches!(&dark.actions()[0], Action::Acquire(acquire) if acquire.beacon == 0), "but not for long");
    dark.answer([granted(64)]);
    dark.input(Input::BeaconStands(beacon));
    dark.tick(5_000);
    assert!(matches!(dark.actions()[0], Action::Renew { beacon: 1, .. }), "a late beacon is told with the next beat");
}

#[test]
fn n_a_beacon_that_was_taken_away_brings_doubt_and_is_not_told_any_more() {
    let mut script = Script::with_beacon();
    script.acquire(1, true);
    let beacon = Beacon { holder: ME, generation: 1 };
    script.input(Input::BeaconStands(beacon));
    script.answer([granted(64)]);
    let lost = script.input(Input::BeaconLost(beacon)).to_vec();
    assert_eq!(lost[0], Output::Suspect { turn: TurnId(1) });
    assert!(matches!(script.actions()[0], Action::Renew { beacon: 0, .. }));
    script.answer([Outcome::Renewed { lease_ms: LEASE_MS, contended: false, refill: None }]);
    assert!(script.input(Input::BeaconLost(beacon)).is_empty(), "once");
}

#[test]
fn n_a_beacon_rests_only_when_nothing_is_held_awaited_or_unknown_and_never_rises_again() {
    let mut script = Script::with_beacon();
    script.acquire(1, true);
    script.input(Input::BeaconStands(Beacon { holder: ME, generation: 1 }));
    script.answer([granted(64)]);
    for _ in 0..10 {
        script.tick(5_000);
        assert!(!script.outputs.contains(&Output::Rest), "something is held");
        script.answer([Outcome::Renewed { lease_ms: LEASE_MS, contended: false, refill: None }]);
    }
    script.input(Input::Release { turn: TurnId(1), slot: script.slot() });
    script.answer([Outcome::Released]);
    assert_eq!(script.tick(10_000), [Output::Rest]);
    script.acquire(2, true);
    let beacon = Some(Beacon { holder: ME, generation: 2 });
    assert_eq!(script.outputs, [Output::Wake { beacon }]);
}

#[test]
fn q_guards_of_one_tenure_never_share_a_token_whatever_is_answered_twice() {
    let mut script = Script::new();
    script.acquire(1, true);
    let (id, _) = script.sent();
    script.reply(id, [granted(64)]);
    script.acquire(2, true);
    script.reply(id, [granted(64)]);
    let outputs = script.input(Input::Release { turn: TurnId(1), slot: script.slot() }).to_vec();
    assert!(outputs.contains(&Output::Granted { turn: TurnId(2), token: Token(65) }), "{outputs:?}");
}

#[test]
fn who_said_that_it_waits_is_not_forgotten_over_an_older_answer() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    script.acquire(2, true);
    script.tick(5_000);
    let (id, _) = script.sent();
    script.signal(Body::Wanted { holder: OTHER, tries: false });
    // Applied before the other one queued.
    script.reply(id, [Outcome::Renewed { lease_ms: LEASE_MS, contended: false, refill: None }]);
    script.input(Input::Release { turn: TurnId(1), slot: script.slot() });
    assert!(!is_granted(&script.outputs), "past its tenure it hands on locally though another context waits");
}

#[test]
fn who_said_that_it_waits_is_not_forgotten_over_the_grant() {
    let mut script = Script::new();
    script.acquire(1, true);
    let (id, _) = script.sent();
    script.acquire(2, true);
    script.signal(Body::Wanted { holder: OTHER, tries: false });
    script.reply(id, [granted(64)]);
    script.now_ms += 100;
    script.input(Input::Release { turn: TurnId(1), slot: script.slot() });
    assert!(!is_granted(&script.outputs), "past its tenure it hands on locally though another context waits");
}
