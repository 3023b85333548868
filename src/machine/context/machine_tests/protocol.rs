//! Rule by rule of the protocol. The letters and numbers are those of the rules.

use alloc::{vec, vec::Vec};

use super::{
    BELIEF_MS, LEASE_MS, ME, OTHER, Script, block, current, granted, heir, is_granted, looked, named, said, seen, taken,
};
use crate::machine::{
    Action, Body, Command, Entry, Event, Input, Key, LostReason, Message, Operation, Outcome, Output, Promotion, Reply,
    RequestId, SessionId, SessionStep, Sighting, Token, Turn, TurnId,
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
fn s12_a_signalled_grant_is_taken_by_the_session_and_the_request_that_it_names() {
    let mut script = Script::new();
    let request = script.queue(1, 100);
    assert!(!is_granted(script.signal(heir(request, 100))), "it is older than the answer");
    assert!(!is_granted(script.signal(heir(RequestId(request.0 + 1), 200))), "another request");
    let stranger = Body::Granted { holder: OTHER, request, block: block(200), previous: Token(0), contended: false };
    assert!(!is_granted(script.signal(stranger)), "another holder");
    assert!(is_granted(script.signal(heir(request, 101))));
    assert!(!is_granted(script.signal(heir(request, 101))), "a doubled signal grants nothing");
}

#[test]
fn s6_a_signal_and_a_look_add_no_time_and_an_heir_sends_nothing() {
    let mut script = Script::new();
    let request = script.queue(1, 100);
    script.now_ms += 3_000;
    assert!(is_granted(script.signal(heir(request, 101))));
    assert!(!script.is_sent(), "it renews nothing");
    assert_eq!(script.remaining_ms(1), BELIEF_MS - 3_000, "from before the opening was sent");
    // One that is told by its look believes from the heartbeat that went along.
    let mut script = Script::new();
    script.queue(1, 100);
    script.tick(5_000);
    let (id, batch) = script.sent();
    assert_eq!((batch.beat().is_some(), script.actions()), (true, vec![Action::Look]));
    script.now_ms += 1_000;
    let mut found = said([Outcome::Looked { requests: Vec::new(), last_token: Token(164), ahead: Vec::new() }]);
    found.answers[0].promoted.push(Promotion {
        key: script.key.clone(),
        holder: ME,
        request: RequestId(1),
        block: block(101),
        previous: Token(0),
        contended: false,
        told: false,
    });
    assert!(is_granted(script.input(Input::Reply { id, result: Ok(found) })));
    assert_eq!(script.remaining_ms(1), BELIEF_MS - 1_000);
}

#[test]
fn s6_no_guard_is_handed_out_while_belief_is_over_and_a_heartbeat_goes_first() {
    let mut script = Script::new();
    let request = script.queue(1, 100);
    while script.now_ms < 1_000 + BELIEF_MS {
        script.tick(500);
        script.refuse();
    }
    script.tick(1);
    script.refuse();
    assert!(!is_granted(script.signal(heir(request, 101))));
    assert_eq!(script.remaining_ms(1), 0);
    while !script.is_sent() {
        script.tick(100);
    }
    assert_eq!(script.beat().lease_ms, LEASE_MS);
    let mut reply = said([]);
    reply.answers = script.actions().iter().map(|_| current().into()).collect();
    let id = script.sent().0;
    let outputs = script.input(Input::Reply { id, result: Ok(reply) }).to_vec();
    assert!(is_granted(&outputs), "{outputs:?}");
    assert_eq!(script.remaining_ms(1), BELIEF_MS);
}

/// An acquisition adds no time, and what would be granted under a belief that is nearly over is preceded by a heartbeat.
#[test]
fn s5_an_acquisition_and_an_adoption_add_no_time() {
    let mut script = Script::new();
    script.key = Key::new("another").unwrap();
    script.acquire(9, true);
    script.answer([granted(64)]);
    script.key = Key::new("k").unwrap();
    script.now_ms += 4_000;
    script.acquire(1, true);
    let (id, batch) = script.sent();
    assert_eq!(batch.step, SessionStep::Stay);
    let request = RequestId(2);
    script.signal(heir(request, 164));
    assert_eq!(script.remaining_ms(1), BELIEF_MS - 4_000);
    script.now_ms += 500;
    script.reply(id, [granted(164)]);
    assert_eq!(script.remaining_ms(1), BELIEF_MS - 4_500, "the adoption");
    script.key = Key::new("a third").unwrap();
    script.acquire(2, true);
    assert!(is_granted(script.answer([granted(64)])));
    assert_eq!(script.remaining_ms(2), BELIEF_MS - 4_500, "the grant");
    let mut late = Script::new();
    late.queue(9, 100);
    while late.now_ms <= 1_000 + BELIEF_MS / 2 {
        late.tick(500);
        while late.refuse().is_some() {}
    }
    late.key = Key::new("l").unwrap();
    late.acquire(1, true);
    assert!(late.beat().lease_ms == LEASE_MS, "little is left");
}

#[test]
fn s11_after_a_loss_the_request_is_withdrawn_too() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    let slot = script.slot();
    script.input(Input::Verify { query: TurnId(7), turn: TurnId(1), slot, span_ms: 0 });
    let outputs = script.answer([Outcome::NotCurrent { last_token: Token(500), stolen: false }]).to_vec();
    assert!(outputs.contains(&Output::Event(Event::Lost { turn: TurnId(1), reason: LostReason::Evicted })));
    assert_eq!(script.actions(), [Action::Withdraw { request: RequestId(1) }]);
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    script.tick(5_000);
    let id = script.sent().0;
    let robbed = Reply { robbed: Some(vec![(script.key.clone(), Token(64))]), ..said([]) };
    let outputs = script.input(Input::Reply { id, result: Ok(robbed) }).to_vec();
    assert!(outputs.contains(&Output::Event(Event::Lost { turn: TurnId(1), reason: LostReason::Stolen })));
    assert_eq!(script.actions(), [Action::Withdraw { request: RequestId(1) }]);
}

#[test]
fn s11_an_own_grant_under_an_unknown_request_is_released_by_its_token() {
    let mut script = Script::new();
    script.acquire(1, true);
    let own = Sighting { holder: ME, ..seen(1, false) };
    script.answer([Outcome::Waiting { last_token: Token(127), position: 1, ahead: [own].into() }]);
    assert!(matches!(script.actions()[..], [Action::Release { token: Token(64), .. }]));
}

#[test]
fn s11_a_signalled_grant_under_an_unknown_request_is_released() {
    let mut script = Script::new();
    script.queue(1, 100);
    script.signal(heir(RequestId(77), 200));
    assert_eq!(script.actions(), [Action::Release { token: Token(200), request: RequestId(77) }]);
}

#[test]
fn s4_silence_counts_from_after_the_read_and_any_change_starts_it_anew() {
    let mut script = Script::new();
    let request = script.queue(1, 100);
    let mut ended_at = None;
    for _ in 0..40 {
        script.tick(1_000);
        if !script.is_sent() {
            continue;
        }
        if let [Action::End { target: OTHER, beat: 2 }, Action::Look] = script.actions()[..] {
            ended_at = Some(script.now_ms);
            break;
        }
        // Once, after 6 s, the holder is seen to have beaten.
        let beat = if script.now_ms < 6_500 { 1 } else { 2 };
        script.answer([looked(request, 100, beat)]);
    }
    let ended_at = ended_at.expect("a silent holder is ended at last");
    assert!(ended_at >= 6_500 + 22_000, "a whole lease and a margin after the change, not {ended_at}");
}

/// The state of a key with this many readers, of which the first has stalled.
fn readers(first: u128, beat: u64) -> Vec<Sighting> {
    let reader = |n| taken(SessionId(first + n), 64, RequestId(n as u64));
    (0..200).map(|n| Sighting { beat: if n == 0 { 1 } else { beat }, ..reader(n) }).collect()
}

/// There are more of them than a context remembers of those that stand nowhere ahead.
#[test]
fn s4_a_silent_one_is_noticed_however_many_stand_ahead() {
    let mut script = Script::new();
    let keys = [(named("a"), 1_000), (named("b"), 2_000)];
    for (turn, (key, first)) in (1..).zip(&keys) {
        script.ask_for(Turn::new(TurnId(turn), key.clone()));
        script.answer([Outcome::Waiting { last_token: Token(127), position: 200, ahead: readers(*first, 1) }]);
    }
    for beat in 2..20 {
        script.tick(10);
        script.until_sent();
        let operations = script.sent().1.operations;
        if operations.iter().any(|operation| matches!(operation.action, Action::End { .. })) {
            return;
        }
        let look = |operation: &Operation| {
            let at = keys.iter().position(|(key, _)| *key == operation.key).unwrap();
            let requests = [RequestId(1 + at as u64)].into();
            Outcome::Looked { requests, last_token: Token(127), ahead: readers(keys[at].1, beat) }
        };
        script.answer(operations.iter().map(look).collect::<Vec<_>>());
    }
    panic!("after {} ms nobody is ended", script.now_ms);
}

/// Beside those, a context remembers what its tries saw, within bounds.
#[test]
fn s4_what_was_seen_of_others_is_forgotten_in_the_end() {
    let mut script = Script::new();
    for n in 0..1_000_u64 {
        let key = named(&alloc::format!("k{n}"));
        script.ask_for(Turn { wait: false, alone: true, ..Turn::new(TurnId(n), key) });
        script.answer([Outcome::Busy { ahead: [taken(SessionId(1_000 + u128::from(n)), 64, RequestId(n))].into() }]);
    }
    let seen = alloc::format!("{:?}", script.machine).matches("read_at").count();
    assert!((200..300).contains(&seen), "{seen}");
}

#[test]
fn s4_a_beacons_absence_counts_only_when_seen_after_the_very_beat() {
    let mut script = Script::new();
    script.acquire(1, true);
    let ahead = |beat| [seen(beat, true)].into();
    let outputs = script.answer([Outcome::Waiting { last_token: Token(127), position: 1, ahead: ahead(1) }]).to_vec();
    assert!(outputs.contains(&Output::Command(Command::Watch { watch: 1, session: OTHER })));
    script.tick(5_000);
    let found = Outcome::Looked { requests: [RequestId(1)].into(), last_token: Token(127), ahead: ahead(2) };
    let outputs = script.answer([found]).to_vec();
    let watch = Output::Command(Command::Watch { watch: 2, session: OTHER });
    assert!(outputs.contains(&Output::Command(Command::Unwatch { watch: 1 })) && outputs.contains(&watch));
    assert!(script.input(Input::BeaconGone { watch: 1 }).is_empty(), "the old watch proves nothing of the new beat");
    script.input(Input::BeaconGone { watch: 2 });
    assert_eq!(script.actions(), [Action::End { target: OTHER, beat: 2 }, Action::Look]);
}

#[test]
fn s4_no_beacon_is_watched_that_did_not_stand_when_the_row_was_written() {
    let mut script = Script::new();
    script.queue(1, 100);
    assert!(!script.outputs.iter().any(|output| matches!(output, Output::Command(Command::Watch { .. }))));
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
    assert!(outputs.contains(&Output::Event(Event::Granted { turn: TurnId(2), token: Token(65) })), "{outputs:?}");
}

#[test]
fn who_said_that_it_waits_is_not_forgotten_over_an_older_answer() {
    for says in [true, false] {
        let mut script = Script::new();
        script.acquire(1, true);
        script.answer([granted(64)]);
        script.acquire(2, true);
        script.now_ms += 100;
        let slot = script.slot();
        script.input(Input::Verify { query: TurnId(7), turn: TurnId(1), slot, span_ms: 0 });
        let (id, _) = script.sent();
        if says {
            script.signal(Body::Wanted { holder: ME, by: OTHER, tries: false });
        }
        // Applied before the other one queued.
        script.reply(id, [current()]);
        script.input(Input::Release { turn: TurnId(1), slot: script.slot() });
        assert_eq!(is_granted(&script.outputs), !says, "past its tenure it hands on locally if nobody else waits");
    }
}

/// Otherwise each turn in a crowd would cost one more message, which tells its holder nothing new.
#[test]
fn only_the_first_few_of_a_queue_tell_the_holder_that_they_wait() {
    let tells = |waiters: usize| {
        let mut script = Script::new();
        script.acquire(1, true);
        let waiter = |request| Sighting { entry: Entry::Waiter(RequestId(request)), ..seen(1, false) };
        let ahead = [seen(1, false)].into_iter().chain((0..waiters as u64).map(waiter)).collect();
        script.answer([Outcome::Waiting { last_token: Token(100), position: 1 + waiters, ahead }]);
        let is_told = |output: &Output| {
            matches!(output, Output::Command(Command::Send(Message { body: Body::Wanted { holder: OTHER, .. }, .. })))
        };
        script.outputs.iter().filter(|output| is_told(output)).count()
    };
    assert_eq!([0, 1, 2, 3, 8].map(tells), [1, 1, 1, 0, 0]);
}

#[test]
fn who_said_that_it_waits_is_not_forgotten_over_the_grant() {
    let mut script = Script::new();
    script.acquire(1, true);
    let (id, _) = script.sent();
    script.acquire(2, true);
    script.signal(Body::Wanted { holder: ME, by: OTHER, tries: false });
    script.reply(id, [granted(64)]);
    script.now_ms += 100;
    script.input(Input::Release { turn: TurnId(1), slot: script.slot() });
    assert!(!is_granted(&script.outputs), "past its tenure it hands on locally though another context waits");
}
