//! Requests that stand alone, as those of locks do.

use super::*;
use crate::machine::LostReason;

fn alone(script: &Script, turn: u64, wait: bool) -> Turn {
    Turn { wait, alone: true, ..Turn::new(TurnId(turn), script.key.clone()) }
}

#[test]
fn a_try_that_stands_alone_is_told_what_stands_there_at_that_moment() {
    let mut script = Script::new();
    let turn = alone(&script, 1, false);
    script.input(Input::Acquire(turn));
    let told = script.answer([Outcome::Busy { ahead: [seen(1, false)].into() }]);
    assert_eq!(told, [Output::Event(Event::Busy { turn: TurnId(1) })], "it neither asks the holder nor looks again");
}

#[test]
fn several_requests_of_a_context_that_stand_alone_have_places_of_their_own() {
    let mut script = Script::new();
    for turn in 1..=3 {
        let turn = alone(&script, turn, true);
        script.input(Input::Acquire(turn));
    }
    // The first one is in flight; what came meanwhile goes together, in its order.
    assert!(is_granted(script.reply(1, [granted(64)])));
    let asked: Vec<_> = script.actions();
    let requests = asked.iter().map(|action| match action {
        Action::Acquire(ask) => (ask.request, ask.alone, ask.wait),
        other => panic!("{other:?}"),
    });
    assert_eq!(requests.collect::<Vec<_>>(), [(RequestId(2), true, true), (RequestId(3), true, true)]);
}

#[test]
fn several_keys_are_looked_at_in_one_transaction() {
    let mut script = Script::new();
    let looks = ["a", "b", "c"].map(|key| Key::new(key).unwrap());
    script.input(Input::InspectAll(looks.into_iter().enumerate().map(|(at, key)| (TurnId(at as u64), key)).collect()));
    assert_eq!(script.actions(), [Action::Inspect, Action::Inspect, Action::Inspect]);
}

#[test]
fn a_key_of_a_lock_has_any_name_also_when_it_is_read() {
    for name in ["", "\0", &"x".repeat(5_000), "~d800"] {
        let key = Key::of_lock(name);
        assert!(key.is_of_lock());
        assert_eq!(Key::new(key.as_str()), Ok(key.clone()));
        let message = Message { store: STORE, key, body: Body::Freed { asker: ME } };
        assert_eq!(Message::decode(&message.encode()), Some(message));
    }
    assert!(!Key::new("\0lock").unwrap().is_of_lock());
}

fn holds_a_lock() -> Script {
    let mut script = Script::new();
    script.key = Key::of_lock("a");
    let turn = alone(&script, 1, true);
    script.input(Input::Acquire(turn));
    script.answer([granted(64)]);
    script
}

const RAN_OUT: Output = Output::Event(Event::Lost { turn: TurnId(1), reason: LostReason::Expired });

/// Its holder has no way to ask.
#[test]
fn a_lock_that_ran_out_while_the_store_was_silent_is_lost() {
    let mut script = holds_a_lock();
    for _ in 0..3 {
        assert!(!script.tick(5_000).contains(&RAN_OUT), "it is believed for 18.2 s");
        script.refuse();
    }
    assert!(script.tick(3_500).contains(&RAN_OUT));
}

/// Who slept through it asks first: nobody may have taken it.
#[test]
fn a_lock_that_was_slept_through_is_asked_for_first_and_lost_if_that_fails() {
    let mut script = holds_a_lock();
    let outputs = script.tick(60_000);
    assert!(
        outputs.contains(&Output::Event(Event::Suspect { turn: TurnId(1) })) && !outputs.contains(&RAN_OUT),
        "{outputs:?}"
    );
    script.refuse();
    assert!(script.outputs.contains(&RAN_OUT), "{:?}", script.outputs);
    let mut script = holds_a_lock();
    script.tick(60_000);
    let outputs = script.answer([]);
    assert!(outputs.contains(&Output::Event(Event::Certain { turn: TurnId(1) })), "{outputs:?}");
}

#[test]
fn requests_that_stand_alone_queue_again_in_their_order_whatever_their_modes() {
    let mut script = Script::new();
    script.input(Input::Suspend { abandons: true });
    let modes = [Mode::Shared, Mode::Exclusive, Mode::Shared];
    for (turn, mode) in (1..).zip(modes) {
        let turn = Turn { mode, ..alone(&script, turn, true) };
        script.input(Input::Acquire(turn));
    }
    script.input(Input::Wake);
    let asked = script.actions();
    let modes_of = |action: &Action| match action {
        Action::Acquire(ask) => ask.mode,
        other => panic!("{other:?}"),
    };
    assert_eq!(asked.iter().map(modes_of).collect::<Vec<_>>(), modes);
}
