//! Many keys: one search of the queue serves all of them.

use alloc::{collections::BTreeSet, vec::Vec};

use super::{OTHER, Script, block, granted, looked, named, seen, served::Served};
use crate::machine::{
    Action, Entry, Granted, Input, Key, Mode, Operation, Outcome, RequestId, SessionId, Sighting, StoreError, Token,
    Turn, TurnId,
};

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

/// The store is already being asked to end its session, because it was silent, when its beacon is seen gone, too. That is no reason to ask
/// twice, whether the first attempt is under way or has failed.
#[test]
fn s4_a_holder_of_many_keys_is_not_ended_twice_because_it_was_silent_before_its_beacon_was_gone() {
    for fails in [false, true] {
        let mut script = waiting_for_many(Script::new(), true);
        while !script.is_sent() || keys_of(&script, ends) == 0 {
            match script.is_sent() {
                true => _ = script.answer(all_ended(&script)),
                false => _ = script.tick(1_000),
            }
        }
        let (id, said) = (script.sent().0, all_ended(&script));
        if fails {
            script.input(Input::Reply { id, result: Err(StoreError::transient("the server is down")) });
            script.input(Input::BeaconGone { watch: 1 });
        } else {
            script.input(Input::BeaconGone { watch: 1 });
            script.reply(id, said);
        }
        let mut asked = 0;
        for _ in 0..10 {
            while script.is_sent() {
                asked += keys_of(&script, ends);
                script.answer(all_ended(&script));
            }
            script.tick(1_000);
        }
        assert_eq!(asked, if fails { 100 } else { 0 });
    }
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

/// The key of the first request is locked, and thousands of others wait. What is given up among them is not sent.
fn given_up_behind_a_locked_key(waiting: impl IntoIterator<Item = Turn>, given_up: Turn) {
    let mut served = Served::new();
    served.ask(ask(1));
    let (first, _) = served.script.sent();
    waiting.into_iter().for_each(|turn| served.ask(turn));
    served.input(Input::Cancel { turn: given_up.id, slot: given_up.slot() });
    served.input(Input::Reply { id: first, result: Err(StoreError::locked("kept locked")) });
    // Requests are numbered as their turns.
    let is_for_it = |action: &Action| matches!(action, Action::Acquire(ask) if ask.request.0 == given_up.id.0);
    while !served.is_granted(3_000) {
        let (id, batch) = served.until_sent();
        assert!(batch.operations.iter().all(|operation| !is_for_it(&operation.action)));
        let reply = served.apply(&batch);
        served.input(Input::Reply { id, result: Ok(reply) });
    }
}

fn share(turn: u64) -> Turn {
    share_key(turn, 1)
}

fn share_key(turn: u64, number: u64) -> Turn {
    Turn { mode: Mode::Shared, ..Turn::new(TurnId(turn), key(number)) }
}

/// What goes apart leaves room in the next transaction, into which more of the queue fits.
#[test]
fn a_request_that_was_given_up_does_not_take_the_room_of_one_that_goes_apart() {
    let others = (3..=3_000).map(ask);
    given_up_behind_a_locked_key([share(2)].into_iter().chain(others), ask(1_026));
}

#[test]
fn a_request_that_was_given_up_at_a_locked_key_is_not_sent_however_far_behind_it_waits() {
    given_up_behind_a_locked_key((2..=3_000).map(ask).chain([share(3_001)]), share(3_001));
}

/// What a store answers where a writer of its own queues at each key, behind readers.
fn behind_writers(operation: &Operation) -> Outcome {
    match operation.action {
        Action::Acquire(_) => Outcome::Granted(Granted { block: block(64), previous: Token(0), contended: true }),
        Action::Verify { .. } => Outcome::Current { contended: true, refill: None },
        Action::Look => {
            let number: u64 = operation.key.as_str()[1..].parse().unwrap();
            let holder = SessionId(u128::from(1_000 + number));
            let writer = Sighting { holder, entry: Entry::Waiter(RequestId(99)), ..seen(1, false) };
            Outcome::Looked { requests: Vec::new(), last_token: Token(127), ahead: [writer].into() }
        }
        _ => Outcome::Ended,
    }
}

/// Each writer has a session of its own, and no other context waits behind it.
#[test]
fn a_reader_notices_each_of_many_dead_writers() {
    const WRITERS: u64 = 300;
    let mut script = Script::new();
    let mut ended = BTreeSet::new();
    let mut serve = |script: &mut Script| {
        while script.is_sent() {
            let operations = script.sent().1.operations;
            ended.extend(operations.iter().filter_map(|operation| match operation.action {
                Action::End { target, .. } => Some(target),
                _ => None,
            }));
            script.answer(operations.iter().map(behind_writers));
        }
        ended.len() as u64
    };
    for number in 0..WRITERS {
        script.ask_for(share_key(number, number));
        serve(&mut script);
    }
    // Now the readers' context may hand the leases on no longer.
    script.tick(100);
    for number in 0..WRITERS {
        script.ask_for(share_key(WRITERS + number, number));
        serve(&mut script);
    }
    let all = (0..350).any(|_| {
        script.tick(100);
        serve(&mut script) == WRITERS
    });
    assert!(all, "{} of {WRITERS} writers are ended after a lease, a margin and two heartbeats", ended.len());
}
