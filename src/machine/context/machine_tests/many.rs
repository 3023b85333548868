//! Many keys: one search of the queue serves all of them.

use alloc::{collections::BTreeSet, vec::Vec};

use super::{OTHER, Script, granted, looked, named, seen};
use crate::machine::{Action, Input, Key, Operation, Outcome, RequestId, Token, Turn, TurnId};

const KEYS: u64 = 100;

fn key(number: u64) -> Key {
    named(&alloc::format!("k{number}"))
}

fn ask(number: u64) -> Turn {
    Turn::new(TurnId(number), key(number))
}

/// Waits for many keys that another context holds. A request has the number of its key.
fn waiting_for_many(mut script: Script, beacon: bool) -> Script {
    let waits = || Outcome::Waiting { last_token: Token(127), position: 1, ahead: [seen(1, beacon)].into() };
    script.ask_for(ask(1));
    let (first, _) = script.sent();
    (2..=KEYS).for_each(|number| _ = script.ask_for(ask(number)));
    script.reply(first, [waits()]);
    script.answer((2..=KEYS).map(|_| waits()));
    script
}

/// At how many keys such an operation was just sent. No key may occur twice.
fn keys_of(script: &Script, is_it: impl Fn(&Action) -> bool) -> usize {
    let operations = script.sent().1.operations;
    let keys: Vec<_> = operations.iter().filter(|operation| is_it(&operation.action)).map(|found| &found.key).collect();
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len(), "one key was found twice");
    keys.len()
}

fn ends(action: &Action) -> bool {
    *action == Action::End { target: OTHER, beat: 1 }
}

fn looks(action: &Action) -> bool {
    *action == Action::Look
}

/// What the store answers to operations that end the holder or look.
fn all_ended(script: &Script) -> Vec<Outcome> {
    let said = |operation: &Operation| match operation.action {
        Action::Look => {
            let request = operation.key.as_str()[1..].parse().unwrap();
            looked(RequestId(request), 127, 1)
        }
        _ => Outcome::Ended,
    };
    script.sent().1.operations.iter().map(said).collect()
}

#[test]
fn s4_a_silent_holder_of_many_keys_is_ended_at_each_of_them_once() {
    let mut script = waiting_for_many(Script::new(), false);
    for _ in 0..60 {
        script.tick(1_000);
        if !script.is_sent() {
            continue;
        }
        if keys_of(&script, ends) == 0 {
            let said = all_ended(&script);
            script.answer(said);
            continue;
        }
        assert_eq!((keys_of(&script, ends), keys_of(&script, looks)), (100, 100));
        // While that transaction is under way, nothing more is sent.
        let (id, said) = (script.sent().0, all_ended(&script));
        for _ in 0..20 {
            script.tick(100);
            assert!(!script.is_sent());
        }
        script.reply(id, said);
        assert!(!script.is_sent() || keys_of(&script, ends) == 0, "{:?}", script.outputs);
        return;
    }
    panic!("a silent holder is ended at last");
}

#[test]
fn s4_a_holder_of_many_keys_whose_beacon_is_gone_is_ended_at_each_of_them_once() {
    let mut script = waiting_for_many(Script::new(), true);
    script.input(Input::BeaconGone { watch: 1 });
    assert_eq!((keys_of(&script, ends), keys_of(&script, looks)), (100, 100));
}

/// A service gives up requests by the thousand while its store hangs.
#[test]
fn requests_that_were_given_up_are_neither_sent_nor_piled_up() {
    let mut script = Script::new();
    script.ask_for(ask(1));
    let (first, _) = script.sent();
    let cancel = |number| Input::Cancel { turn: TurnId(number), slot: ask(number).slot() };
    (2..=200).for_each(|number| _ = script.ask_for(ask(number)));
    for number in 201..3_000 {
        script.ask_for(ask(number));
        script.input(cancel(number));
    }
    (KEYS + 1..=200).for_each(|number| _ = script.input(cancel(number)));
    let waiting = alloc::format!("{:?}", script.machine).matches("PendingOperation").count();
    assert!(waiting < 450, "{waiting} operations are kept for 100 requests");
    script.reply(first, [granted(64)]);
    let asked: Vec<_> = script.sent().1.operations.into_iter().map(|operation| operation.key).collect();
    assert_eq!(asked, (2..=KEYS).map(key).collect::<Vec<_>>());
}
