//! Rule S9 in a context that the platform ends: what is in use is left to a beacon that others know, and to nothing less.

use alloc::vec::Vec;

use super::{ME, OTHER, Script, granted, taken};
use crate::machine::{
    Action, Body, Command, Event, Input, LostReason, Outcome, Output, RequestId, SessionStep, Sighting, Token, Turn,
    TurnId,
};

const ENDING: Input = Input::Ending { abandons: true };

/// One that holds its key and has a beacon: others know of it if it stood before the row was written.
fn seen(known: bool) -> Script {
    let mut script = Script::with_beacon();
    script.acquire(1, true);
    if known {
        script.input(Input::BeaconStands(ME));
    } else {
        script.tick(250);
    }
    script.answer([granted(64)]);
    script.input(Input::BeaconStands(ME));
    script
}

fn deletes(outputs: &[Output]) -> bool {
    outputs.contains(&Output::Command(Command::Abandon(ME))) && outputs.contains(&Output::Command(Command::Rest))
}

#[test]
fn s9_guards_are_void_and_the_beacon_stays() {
    let mut script = seen(true);
    let lost = Output::Event(Event::Lost { turn: TurnId(1), reason: LostReason::Suspended });
    assert_eq!(script.input(ENDING), [lost]);
    assert_eq!(script.remaining_ms(1), 0);
    for after_ms in [1, 5_000] {
        assert_eq!(script.tick(after_ms), []);
    }
    assert_eq!(script.input(ENDING), [], "it said so already");
}

/// Others would wait for a whole lease of silence.
#[test]
fn s9_a_beacon_that_the_row_does_not_name_is_not_relied_on() {
    let mut script = seen(false);
    let outputs = script.input(ENDING).to_vec();
    assert!(deletes(&outputs), "{outputs:?}");
    // One that fell is known, and shows nothing any more.
    let mut script = seen(true);
    script.input(Input::BeaconLost(ME));
    let outputs = script.input(ENDING).to_vec();
    assert!(deletes(&outputs), "{outputs:?}");
}

/// The beacon fell, and one heartbeat did not name it. Others may have read that one, whatever a later heartbeat names.
#[test]
fn s9_a_row_that_once_named_no_beacon_is_deleted() {
    let mut script = seen(true);
    script.input(Input::BeaconLost(ME));
    script.until_sent();
    let SessionStep::Beat(beat) = script.sent().1.step else { panic!("{:?}", script.sent()) };
    assert!(!beat.beacon);
    let outputs = script.input(ENDING).to_vec();
    assert!(deletes(&outputs), "{outputs:?}");
}

#[test]
fn s9_what_nobody_uses_is_given_up_at_once() {
    let mut script = seen(true);
    let slot = script.slot();
    script.input(Input::Release { turn: TurnId(1), slot });
    let outputs = script.input(ENDING).to_vec();
    assert!(deletes(&outputs), "{outputs:?}");
}

/// It asks the holder. A holder that answers lives. If it does not answer, its beacon shows whether it is dead.
#[test]
fn s9_a_try_waits_a_moment_for_the_end_of_a_beacon() {
    for alone in [false, true] {
        let mut script = Script::with_beacon();
        let ahead = Sighting { beacon: true, ..taken(OTHER, 64, RequestId(1)) };
        script.input(Input::Acquire(Turn { wait: false, alone, ..Turn::new(TurnId(1), script.key.clone()) }));
        script.input(Input::BeaconStands(ME));
        let asked = script.answer([Outcome::Busy { ahead: [ahead].into() }]).to_vec();
        assert!(matches!(asked[..], [Output::Command(Command::Send(_))]), "{asked:?}");
        script.tick(30);
        script.answer([Outcome::Busy { ahead: [ahead].into() }]);
        let [Action::Acquire(ask)] = &script.actions()[..] else { panic!("{:?}", script.actions()) };
        assert!(ask.wait, "a place comes with a watch");
        let waiting = Outcome::Waiting { last_token: Token(64), position: 0, ahead: [ahead].into() };
        let watched = script.answer([waiting]).to_vec();
        assert!(watched.iter().any(|output| matches!(output, Output::Command(Command::Watch { session: OTHER, .. }))));
        assert!(!watched.contains(&Output::Event(Event::Busy { turn: TurnId(1) })), "it is too early");
        assert_eq!(script.tick(249), []);
        assert_eq!(script.tick(1)[0], Output::Event(Event::Busy { turn: TurnId(1) }));
        assert!(matches!(script.actions()[..], [Action::Withdraw { .. }]), "{:?}", script.actions());
    }
}

/// A try that found the key taken by a context with a beacon, and asks that one.
fn found_taken(alone: bool) -> (Script, Sighting) {
    let mut script = Script::with_beacon();
    let ahead = Sighting { beacon: true, ..taken(OTHER, 64, RequestId(1)) };
    script.input(Input::Acquire(Turn { wait: false, alone, ..Turn::new(TurnId(1), script.key.clone()) }));
    script.input(Input::BeaconStands(ME));
    script.answer([Outcome::Busy { ahead: [ahead].into() }]);
    (script, ahead)
}

#[test]
fn s9_a_try_whose_holder_answers_is_refused_at_once() {
    let (mut script, _) = found_taken(true);
    let outputs = script.signal(Body::InUse { asker: ME }).to_vec();
    assert_eq!(outputs, [Output::Event(Event::Busy { turn: TurnId(1) })]);
    assert!(!script.is_sent());
}

/// The holder's answer takes more than 30 ms if the server is far away, or if the holder's event loop is busy.
#[test]
fn s9_a_try_whose_holder_answers_late_is_refused_at_once_and_leaves_the_queue() {
    let (mut script, ahead) = found_taken(false);
    script.tick(30);
    script.answer([Outcome::Busy { ahead: [ahead].into() }]);
    script.answer([Outcome::Waiting { last_token: Token(64), position: 0, ahead: [ahead].into() }]);
    let outputs = script.signal(Body::InUse { asker: ME }).to_vec();
    assert!(outputs.contains(&Output::Event(Event::Busy { turn: TurnId(1) })), "{outputs:?}");
    assert!(matches!(script.actions()[..], [Action::Withdraw { .. }]), "{:?}", script.actions());
}

/// The same, if the second look is under way when the answer comes.
#[test]
fn s9_a_try_whose_holder_answers_during_the_second_look_takes_no_place() {
    let (mut script, ahead) = found_taken(false);
    script.tick(30);
    let (look, _) = script.sent();
    script.signal(Body::InUse { asker: ME });
    let outputs = script.reply(look, [Outcome::Busy { ahead: [ahead].into() }]).to_vec();
    assert_eq!(outputs, [Output::Event(Event::Busy { turn: TurnId(1) })]);
    assert!(!script.is_sent());
}

/// A script may have sent the event. Then only the context itself can end its session.
#[test]
fn s9_who_goes_on_lowers_the_beacon_and_ends_the_session() {
    let mut script = seen(true);
    script.input(ENDING);
    let outputs = script.input(Input::Wake).to_vec();
    assert!(outputs.contains(&Output::Command(Command::Fall)), "{outputs:?}");
    let ends: Vec<_> = script.sent().1.ends.iter().map(|ending| ending.session).collect();
    assert_eq!(ends, [ME]);
}
