//! Rules o and p in a context: guards are void first, then one tombstone and one message, and then nothing.

use alloc::{vec, vec::Vec};

use super::{LEASE_MS, ME, OTHER, STORE, Script, granted, is_granted, seen, waiting};
use crate::machine::{
    Action, Body, Entry, Incarnation, Input, Key, LostReason, Message, Mode, Outcome, Output, Refusal, ReleaseOutcome,
    RequestId, Sighting, StoreId, Token, Tombstone, Turn, TurnId,
};

const STRANGER: Incarnation = Incarnation(3);
const LATER: Incarnation = Incarnation(11);
const SUSPEND: Input = Input::Suspend { entombs: true };
const WAKE: Input = Input::Wake { incarnation: LATER };

fn held() -> Script {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    script
}

fn gone(keys: &[Key]) -> [Output; 3] {
    let message = Message { store: STORE, key: keys[0].clone(), body: Body::Gone { holder: ME } };
    [Output::Entomb(Tombstone { holder: ME, keys: keys.to_vec() }), Output::Send(message), Output::Rest]
}

fn entombed(outputs: &[Output]) -> Option<&Tombstone> {
    outputs.iter().find_map(|output| match output {
        Output::Entomb(tombstone) => Some(tombstone),
        _ => None,
    })
}

/// Whether the world hears of it.
fn is_heard(output: &Output) -> bool {
    matches!(output, Output::Store { .. } | Output::Entomb(_) | Output::Send(_) | Output::Wake { .. })
}

#[test]
fn p_guards_are_void_before_the_tombstone_and_nothing_comes_after_it() {
    let mut script = held();
    let lost = Output::Lost { turn: TurnId(1), reason: LostReason::Suspended };
    let expected: Vec<_> = [lost].into_iter().chain(gone(&[script.key.clone()])).collect();
    assert_eq!(script.input(SUSPEND), expected);
    assert_eq!(script.remaining_ms(1), 0);
    for after_ms in [1, 5_000, 60_000] {
        assert_eq!(script.tick(after_ms), []);
    }
    assert_eq!(script.input(SUSPEND), [], "it is gone already");
    for body in [Body::Wanted { holder: OTHER, tries: false }, Body::Gone { holder: ME }, Body::Gone { holder: OTHER }]
    {
        assert_eq!(script.signal(body), []);
    }
    let slot = script.slot();
    let late = script.input(Input::Release { turn: TurnId(1), slot });
    assert_eq!(late, [Output::Released { turn: TurnId(1), result: Ok(ReleaseOutcome::Lost) }]);
    assert!(!script.input(Input::Close).iter().any(is_heard));
}

#[test]
fn p_what_is_under_way_is_dropped_and_its_answer_says_nothing() {
    let mut script = held();
    let slot = script.slot();
    script.input(Input::Verify { query: TurnId(7), turn: TurnId(1), slot, span_ms: 0 });
    let (id, _) = script.sent();
    let outputs = script.input(SUSPEND);
    let told =
        outputs.iter().position(|output| matches!(output, Output::Verified { query: TurnId(7), result: Err(_) }));
    let written = outputs.iter().position(|output| matches!(output, Output::Entomb(_)));
    assert!(told.is_some() && told < written, "{outputs:?}");
    let renewed = Outcome::Renewed { lease_ms: LEASE_MS, contended: false, refill: None };
    assert_eq!(script.reply(id, [renewed]), []);
    assert_eq!(script.remaining_ms(1), 0);
}

#[test]
fn p_releases_under_way_are_answered() {
    for (after_ms, outcome) in [(0, ReleaseOutcome::Released), (LEASE_MS, ReleaseOutcome::Lost)] {
        let mut script = held();
        let slot = script.slot();
        // Behind a question, so that it waits; or, where the lease is over by then, behind the doubt.
        script.input(Input::Verify { query: TurnId(7), turn: TurnId(1), slot: slot.clone(), span_ms: 0 });
        script.now_ms += after_ms;
        let told = script.input(Input::Release { turn: TurnId(1), slot });
        assert!(!told.iter().any(|output| matches!(output, Output::Released { .. })), "{told:?}");
        let outputs = script.input(SUSPEND);
        let released = Output::Released { turn: TurnId(1), result: Ok(outcome) };
        let told = outputs.iter().position(|output| *output == released);
        let written = outputs.iter().position(|output| matches!(output, Output::Entomb(_)));
        assert!(told.is_some() && told < written, "{outputs:?}");
        assert_eq!(script.input(WAKE), [], "nothing is left to do");
    }
}

#[test]
fn p_who_wrote_nothing_leaves_no_tombstone() {
    assert_eq!(Script::new().input(SUSPEND), []);
    let mut rising = Script::with_beacon();
    rising.acquire(1, true);
    assert_eq!(rising.input(SUSPEND), [Output::Rest], "it was not sent yet");
    let mut released = held();
    let slot = released.slot();
    released.input(Input::Release { turn: TurnId(1), slot });
    released.answer([Outcome::Released]);
    assert_eq!(released.input(SUSPEND), [Output::Rest]);
    let mut looks = Script::new();
    let key = looks.key.clone();
    looks.input(Input::Inspect { query: TurnId(1), key });
    let outputs = looks.input(SUSPEND);
    assert!(matches!(outputs, [Output::Status { result: Err(_), .. }]), "{outputs:?}");
}

#[test]
fn p_a_tombstone_names_what_is_in_flight_and_what_is_overdue() {
    let mut script = Script::new();
    script.acquire(1, true);
    let key = script.key.clone();
    // No store is known yet, to say anything about.
    assert_eq!(script.input(SUSPEND), [gone(core::slice::from_ref(&key))[0].clone(), Output::Rest]);
    let mut script = Script::new();
    script.acquire(1, true);
    script.tick(5_000);
    let slot = script.slot();
    script.input(Input::Cancel { turn: TurnId(1), slot });
    let outputs = script.tick(5_000);
    assert!(matches!(outputs, [Output::Store { .. }]), "the withdrawal: {outputs:?}");
    script.answer([Outcome::Withdrawn]);
    assert_eq!(
        entombed(script.input(SUSPEND)).map(|tombstone| &tombstone.keys[..]),
        Some(&[key][..]),
        "it may come late"
    );
}

#[test]
fn p_a_tombstone_names_what_was_taken_out_of_its_guard() {
    let mut script = held();
    let slot = script.slot();
    script.input(Input::Detach { turn: TurnId(1), slot });
    script.answer([Outcome::Renewed { lease_ms: LEASE_MS, contended: false, refill: None }]);
    let keys = [script.key.clone()];
    assert_eq!(script.input(SUSPEND), gone(&keys));
}

/// Its grant stands under the old name, or the new one, whether or not the store was asked yet.
#[test]
fn p_a_tombstone_names_what_is_being_taken_over() {
    let mut script = held();
    let slot = script.slot();
    let parcel = script.machine.parcel(TurnId(1), &slot).unwrap();
    script.input(Input::Detach { turn: TurnId(1), slot });
    script.answer([Outcome::Renewed { lease_ms: LEASE_MS, contended: false, refill: None }]);
    // Behind a look at another key, which is not answered.
    script.input(Input::Inspect { query: TurnId(9), key: Key::new("another").unwrap() });
    let turn = Turn { alone: true, wait: false, ..Turn::new(TurnId(2), script.key.clone()) };
    assert_eq!(script.input(Input::Resume { turn, parcel }), []);
    let keys = [script.key.clone()];
    assert_eq!(entombed(script.input(SUSPEND)).map(|tombstone| &tombstone.keys[..]), Some(&keys[..]));
}

#[test]
fn p_a_tombstone_names_all_keys_that_were_asked_for_at_once() {
    let keys = ["a", "b"].map(|name| Key::new(name).unwrap());
    let turn = |id, key: &Key| Turn { wait: false, alone: true, ..Turn::new(TurnId(id), key.clone()) };
    let mut script = Script::new();
    script.input(Input::AcquireAll(vec![turn(1, &keys[0]), turn(2, &keys[1])]));
    let outputs = script.input(SUSPEND).to_vec();
    let failed = |id| Output::Failed { turn: TurnId(id), refusal: Refusal::Lost(LostReason::Suspended) };
    assert_eq!(outputs[..2], [failed(1), failed(2)]);
    assert_eq!(entombed(&outputs), Some(&Tombstone { holder: ME, keys: keys.to_vec() }));
}

#[test]
fn p_one_tombstone_and_one_message_serve_all_keys() {
    let mut script = held();
    let other = Key::new("another").unwrap();
    script.input(Input::Acquire(Turn { mode: Mode::Shared, ..Turn::new(TurnId(2), other.clone()) }));
    script.answer([granted(128)]);
    let outputs = script.input(SUSPEND).to_vec();
    let count = |is_it: fn(&Output) -> bool| outputs.iter().filter(|output| is_it(output)).count();
    assert_eq!(count(|output| matches!(output, Output::Lost { .. })), 2);
    assert_eq!(
        (count(|output| matches!(output, Output::Entomb(_))), count(|output| matches!(output, Output::Send(_)))),
        (1, 1)
    );
    assert_eq!(entombed(&outputs).unwrap().keys, [other, script.key.clone()]);
}

#[test]
fn o_requests_queue_again_under_the_new_name_inside_their_deadlines() {
    let mut script = Script::new();
    let first = script.queue(1, 100);
    let hasty = Turn { deadline: Some(script.now().monotonic.plus(2_000)), ..Turn::new(TurnId(2), script.key.clone()) };
    script.input(Input::Acquire(hasty));
    let key = script.key.clone();
    assert_eq!(script.input(SUSPEND), gone(core::slice::from_ref(&key)));
    let timed_out = Output::Failed { turn: TurnId(2), refusal: Refusal::Timeout };
    assert_eq!(script.tick(2_000), [timed_out]);
    assert_eq!(
        script.input(Input::Acquire(Turn::new(TurnId(3), key.clone()))),
        [],
        "it waits until the context goes on"
    );
    script.input(WAKE);
    let (_, batch) = script.sent();
    let [operation] = &batch.0[..] else { panic!("{batch:?}") };
    let Action::Acquire(ask) = &operation.action else { panic!("{batch:?}") };
    assert_eq!(operation.holder, LATER);
    assert!(ask.request > first && ask.wait);
    assert!(is_granted(script.answer([granted(256)])));
    assert_eq!(script.input(SUSPEND)[1], Output::Entomb(Tombstone { holder: LATER, keys: vec![key] }));
}

#[test]
fn o_who_was_not_suspended_does_not_wake() {
    let mut script = held();
    assert_eq!(script.input(WAKE), []);
    assert_eq!(script.machine.incarnation(), ME);
    assert!(script.remaining_ms(1) > 0);
}

/// What was to be given back would wait behind what is in flight, and never be sent.
#[test]
fn p_a_context_that_is_closing_leaves_a_tombstone_too() {
    let mut script = held();
    let slot = script.slot();
    script.input(Input::Verify { query: TurnId(7), turn: TurnId(1), slot, span_ms: 0 });
    script.input(Input::Close);
    let outputs = script.input(SUSPEND).to_vec();
    let told: Vec<_> = outputs.iter().filter(|output| is_heard(output)).collect();
    let [tombstone, message, _] = gone(&[script.key.clone()]);
    assert_eq!(told, [&tombstone, &message]);
    assert_eq!(outputs.last(), Some(&Output::Closed));
    assert_eq!(script.input(SUSPEND), []);
    assert_eq!(script.input(WAKE), [], "it stays closed");
}

fn ahead(entries: &[(Incarnation, Entry)]) -> Outcome {
    let sighting = |(holder, entry): &(Incarnation, Entry)| Sighting { holder: *holder, entry: *entry, ..seen(1, 0) };
    Outcome::Waiting { last_token: Token(100), ahead: entries.iter().map(sighting).collect() }
}

fn queue_behind(entries: &[(Incarnation, Entry)]) -> Script {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([ahead(entries)]);
    script
}

#[test]
fn p_only_who_stood_right_behind_the_gone_asks() {
    let grant = |token| Entry::Grant(Token(token));
    let waiter = Entry::Waiter(RequestId(5));
    let mut script = queue_behind(&[(OTHER, grant(64))]);
    assert_eq!(script.signal(Body::Gone { holder: STRANGER }), []);
    script.signal(Body::Gone { holder: OTHER });
    assert!(matches!(script.actions()[..], [Action::Acquire(_)]));
    let mut script = queue_behind(&[(OTHER, grant(64)), (STRANGER, waiter)]);
    assert_eq!(script.signal(Body::Gone { holder: OTHER }), [], "that is for who stands before it");
    script.signal(Body::Gone { holder: STRANGER });
    assert!(matches!(script.actions()[..], [Action::Acquire(_)]));
}

/// Anybody of the origin can say it.
#[test]
fn p_a_forged_word_that_somebody_is_gone_does_no_harm() {
    let mut script = held();
    assert_eq!(script.signal(Body::Gone { holder: ME }), []);
    assert!(script.remaining_ms(1) > 0);
    let mut script = Script::new();
    let request = script.queue(1, 100);
    for _ in 0..3 {
        script.signal(Body::Gone { holder: OTHER });
        let (id, batch) = script.sent();
        assert!(matches!(&batch.0[0].action, Action::Acquire(ask) if ask.request == request), "{batch:?}");
        assert_eq!(script.signal(Body::Gone { holder: OTHER }), [], "one transaction at a time");
        script.reply(id, [waiting(100, 1)]);
        assert!(!is_granted(script.answer([waiting(100, 1)])), "what was asked meanwhile is asked after it");
    }
    let wrong = Message { store: StoreId(8), key: script.key.clone(), body: Body::Gone { holder: OTHER } };
    assert_eq!(script.input(Input::Message(wrong)), [], "of another store");
}
