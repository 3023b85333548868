//! A machine asks to be woken for what it can do then, and never in the past; whatever a store answers.

use alloc::vec::Vec;

use super::{OTHER, Script, granted, looked, waiting};
use crate::machine::{
    Action, Event, Input, Key, Mode, Outcome, Output, RequestId, SessionStep, StoreError, StoreErrorKind, Turn, TurnId,
};

impl Script {
    /// How often the machine wants to be woken at once, within a thousand milliseconds, while nothing comes in.
    fn rings(&mut self) -> usize {
        let mut rings = 0;
        for _ in 0..1_000 {
            self.tick(1);
            rings += usize::from(self.wake.is_some_and(|wake| wake <= self.now().monotonic));
        }
        rings
    }
}

/// Answers every look, and nothing else, until the machine ends somebody.
fn until_it_ends_somebody(script: &mut Script, answer: impl Fn(&Action) -> Outcome) {
    for _ in 0..400 {
        script.tick(100);
        if !script.is_sent() {
            continue;
        }
        if script.actions().iter().any(|action| matches!(action, Action::End { .. })) {
            return;
        }
        let outcomes: Vec<_> = script.actions().iter().map(&answer).collect();
        script.answer(outcomes);
    }
    panic!("a silent session is ended at last");
}

#[test]
fn a_verdict_that_nobody_wants_any_more_rings_no_alarm() {
    let mut script = Script::new();
    let turn = Turn { mode: Mode::Shared, alone: true, ..Turn::new(TurnId(1), script.key.clone()) };
    let slot = turn.slot();
    script.input(Input::Acquire(turn));
    script.answer([granted(64)]);
    script.input(Input::Upgrade { query: TurnId(9), turn: TurnId(1), slot: slot.clone() });
    script.answer([waiting(200, 1)]);
    until_it_ends_somebody(&mut script, |_| looked(RequestId(2), 200, 1));
    let (id, _) = script.sent();
    script.input(Input::CancelUpgrade { query: TurnId(9), slot });
    // The store takes its time.
    assert_eq!(script.rings(), 0);
    script.reply(id, [Outcome::Ended, looked(RequestId(2), 200, 1)]);
    assert_eq!(script.rings(), 0);
}

/// What was seen of a session at one key counts at every other.
#[test]
fn a_silent_session_that_was_seen_last_at_another_key_is_ended_without_alarm() {
    let mut script = Script::new();
    script.queue(1, 100);
    script.now_ms += 500;
    let other = Turn::new(TurnId(2), Key::new("l").unwrap());
    let slot = other.slot();
    script.input(Input::Acquire(other));
    script.answer([waiting(100, 1)]);
    // From here on the store is silent; the other request is given up just before the verdict.
    while script.now_ms < 22_500 {
        script.tick(250);
        if script.is_sent() {
            let mut requests = [1, 2].iter();
            let outcomes: Vec<_> =
                script.actions().iter().map(|_| looked(RequestId(*requests.next().unwrap()), 100, 1)).collect();
            script.answer(outcomes);
        }
    }
    script.input(Input::Cancel { turn: TurnId(2), slot });
    script.answer([Outcome::Withdrawn]);
    while !script.is_sent() {
        script.tick(100);
    }
    assert!(script.actions().contains(&Action::End { target: OTHER, beat: 1 }), "{:?}", script.actions());
    assert_eq!(script.rings(), 0);
}

#[test]
fn a_session_that_is_opened_late_is_ended_without_alarm() {
    let mut script = Script::new();
    script.acquire(1, true);
    let (late, _) = script.sent();
    script.tick(5_000);
    while !script.is_sent() {
        script.tick(10);
    }
    // Its end is under way with the next attempt, and the answer comes all the same.
    script.reply(late, [granted(64)]);
    assert_eq!(script.rings(), 0);
    let mut script = Script::new();
    script.acquire(1, true);
    let (late, _) = script.sent();
    script.input(Input::Suspend { abandons: true });
    script.reply(late, [granted(64)]);
    assert_eq!(script.rings(), 0, "nothing is sent while it is suspended");
}

/// The store takes its time over the end of an earlier session when the context is to rest.
#[test]
fn a_context_that_rests_while_a_transaction_is_in_flight_waits_for_its_answer_without_alarm() {
    let mut script = Script::new();
    script.acquire(1, true);
    let (late, _) = script.sent();
    script.tick(5_000);
    script.until_sent();
    script.answer([granted(64)]);
    script.input(Input::Release { turn: TurnId(1), slot: script.slot() });
    script.answer([Outcome::Released]);
    script.tick(9_995);
    assert!(!script.is_sent());
    script.reply(late, [granted(900)]);
    let (end, _) = script.sent();
    assert_eq!(script.rings(), 0);
    script.reply(end, []);
    assert_eq!(script.sent().1.step, SessionStep::Close, "it is still to rest");
}

/// The same with a release that the store refused for good, and that goes again for as long as the session lives.
#[test]
fn a_context_that_rests_while_a_refused_release_is_in_flight_waits_for_its_answer_without_alarm() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    script.input(Input::Release { turn: TurnId(1), slot: script.slot() });
    let never = StoreError::permanent(StoreErrorKind::Unavailable, "never");
    script.input(Input::Reply { id: script.sent().0, result: Err(never) });
    while let Some(wake) = script.wake.filter(|wake| wake.as_ms() < 60_000) {
        assert!(wake > script.now().monotonic, "{wake:?}");
        script.now_ms = wake.as_ms();
        script.tick(0);
    }
}

/// Somebody else's store may give too few answers.
#[test]
fn a_reply_with_fewer_answers_than_operations_leaves_nobody_waiting() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([]);
    let mut told = false;
    for _ in 0..3_600 {
        told |= script.outputs.iter().any(|output| matches!(output, Output::Event(Event::Failed { .. })));
        if script.is_sent() {
            script.answer([]);
        } else {
            script.tick(1_000);
        }
    }
    assert!(told, "the request waits for ever");
}
