//! The beacon: a beat names the one that stands, and no other.

use super::{ME, OTHER, STORE, Script, block, granted, is_granted, said};
use crate::machine::{
    Command, Event, Input, Outcome, Output, Promotion, RequestId, SessionStep, StoreError, StoreId, Token, TurnId,
};

#[test]
fn s4_a_first_beat_waits_for_its_beacon_and_names_it() {
    let mut script = Script::with_beacon();
    script.acquire(1, true);
    assert_eq!(
        script.outputs,
        [Output::Command(Command::Wake { session: ME, beacon: true })],
        "the opening waits for the beacon"
    );
    script.input(Input::BeaconStands(ME));
    assert!(script.opens() && script.beat().beacon);
    assert!(is_granted(script.answer([granted(64)])));
}

#[test]
fn s4_a_beacon_that_comes_late_is_not_waited_for_and_named_by_the_next_beat() {
    let mut script = Script::with_beacon();
    script.acquire(1, true);
    script.tick(250);
    assert!(script.opens() && !script.beat().beacon, "nobody sees a beacon yet");
    script.answer([granted(64)]);
    script.input(Input::BeaconStands(ME));
    script.tick(5_000);
    assert!(script.beat().beacon);
}

#[test]
fn s4_a_beacon_that_was_taken_away_brings_doubt_and_is_not_named_any_more() {
    let mut script = Script::with_beacon();
    script.acquire(1, true);
    script.input(Input::BeaconStands(ME));
    script.answer([granted(64)]);
    let lost = script.input(Input::BeaconLost(ME)).to_vec();
    assert!(lost.contains(&Output::Event(Event::Suspect { turn: TurnId(1) })), "{lost:?}");
    assert!(!script.beat().beacon, "who looked for it would not find it");
    script.answer([]);
    assert!(script.input(Input::BeaconLost(ME)).is_empty(), "once");
}

#[test]
fn s10_a_beacon_rests_with_its_row_when_nothing_is_held() {
    let mut script = Script::with_beacon();
    script.acquire(1, true);
    script.input(Input::BeaconStands(ME));
    script.answer([granted(64)]);
    for _ in 0..10 {
        script.tick(5_000);
        assert!(script.is_sent() && !script.outputs.contains(&Output::Command(Command::Rest)), "something is held");
        script.answer([]);
    }
    script.input(Input::Release { turn: TurnId(1), slot: script.slot() });
    script.answer([Outcome::Released]);
    assert!(!script.outputs.contains(&Output::Command(Command::Rest)), "another request may come");
    for _ in 0..100 {
        script.tick(100);
        let closes = script.is_sent() && script.sent().1.step == SessionStep::Close;
        assert!(!script.outputs.contains(&Output::Command(Command::Rest)), "its row is still there");
        if script.is_sent() {
            script.answer([]);
        }
        if closes {
            assert!(script.outputs.contains(&Output::Command(Command::Rest)));
            return;
        }
    }
    panic!("the beacon stands for ever");
}

/// Whoever finds the row must see at once that its session has ended.
#[test]
fn s10_a_beacon_falls_if_the_end_of_its_session_failed_or_is_not_known() {
    let (lost, locked) = (StoreError::unknown("cut"), StoreError::transient("locked"));
    for (result, expected) in
        [(Ok(said([Outcome::Released])), Command::Rest), (Err(lost), Command::Fall), (Err(locked), Command::Fall)]
    {
        let mut script = Script::holding();
        script.input(Input::Close);
        let (id, batch) = script.sent();
        assert_eq!(batch.step, SessionStep::Close);
        script.input(Input::Reply { id, result });
        let shown = |command: &Command| script.outputs.contains(&Output::Command(command.clone()));
        assert!([Command::Rest, Command::Fall].iter().all(|command| shown(command) == (*command == expected)));
    }
}

/// Without a beacon, only this message tells the next holder of the grant.
#[test]
fn s10_a_context_that_closes_is_heard_until_it_has_told_of_the_grant() {
    for answered in [true, false] {
        let mut script = Script::holding();
        script.input(Input::Close);
        assert_eq!(script.sent().1.step, SessionStep::Close);
        assert!(!script.outputs.contains(&Output::Command(Command::Rest)), "{:?}", script.outputs);
        if answered {
            let (id, mut reply) = (script.sent().0, said([Outcome::Released]));
            let (key, block) = (script.key.clone(), block(128));
            let request = RequestId(7);
            let promoted =
                Promotion { key, holder: OTHER, request, block, previous: Token(64), contended: false, told: false };
            reply.answers[0].promoted.push(promoted);
            script.input(Input::Reply { id, result: Ok(reply) });
        } else {
            script.tick(5_000);
        }
        let order = script.outputs.iter().filter_map(|output| match output {
            Output::Command(Command::Send(_)) => Some("tells"),
            Output::Command(Command::Rest) => Some("rests"),
            Output::Command(Command::Fall) => Some("falls"),
            Output::Event(Event::Closed) => Some("closed"),
            _ => None,
        });
        let expected: &[_] = if answered { &["tells", "rests", "closed"] } else { &["falls"] };
        assert_eq!(order.collect::<Vec<_>>(), expected);
    }
}

/// The same holds if the answer also says that the context's own session has ended: the context still has to tell of the grant.
#[test]
fn s10_a_context_whose_session_has_ended_is_heard_until_it_has_told_of_the_grant() {
    for wiped in [false, true] {
        let mut script = Script::holding();
        script.input(Input::Release { turn: TurnId(1), slot: script.slot() });
        let (id, mut reply) = (script.sent().0, said([Outcome::Released]));
        let (key, block, request) = (script.key.clone(), block(128), RequestId(7));
        let promoted =
            Promotion { key, holder: OTHER, request, block, previous: Token(64), contended: false, told: false };
        reply.answers[0].promoted.push(promoted);
        if wiped {
            reply.store = StoreId(10);
        } else {
            reply.robbed = None;
        }
        script.input(Input::Reply { id, result: Ok(reply) });
        let order = script.outputs.iter().filter_map(|output| match output {
            Output::Command(Command::Send(message)) => {
                Some(if message.store == STORE { "tells" } else { "tells anew" })
            }
            Output::Command(Command::Rest) => Some("rests"),
            _ => None,
        });
        let expected = if wiped { ["tells anew", "rests"] } else { ["tells", "rests"] };
        assert_eq!(order.collect::<Vec<_>>(), expected);
    }
}
