//! Rules o and S9 in a context: guards are void first, then one blind delete and one message, and then nothing.

use alloc::{vec, vec::Vec};

use super::{ME, OTHER, STORE, Script, granted, is_granted, looked, seen};
use crate::machine::{
    Action, Body, Command, Ending, Entry, Event, Input, Key, LostReason, Message, Mode, Outcome, Output, Refusal,
    RequestId, SessionId, SessionStep, Sighting, StoreId, Token, Turn, TurnId,
};

const STRANGER: SessionId = SessionId(3);
const SUSPEND: Input = Input::Suspend { abandons: true };
const WAKE: Input = Input::Wake;

fn held() -> Script {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    script
}

fn gone(session: SessionId, key: &Key) -> [Output; 3] {
    let message = Message { store: STORE, key: key.clone(), body: Body::Gone { holder: session } };
    [
        Output::Command(Command::Abandon(session)),
        Output::Command(Command::Send(message)),
        Output::Command(Command::Rest),
    ]
}

fn is_abandon(output: &Output) -> bool {
    matches!(output, Output::Command(Command::Abandon(_)))
}

/// Whether the world hears of it.
fn is_heard(output: &Output) -> bool {
    matches!(
        output,
        Output::Command(Command::Store { .. })
            | Output::Command(Command::Abandon(_))
            | Output::Command(Command::Send(_))
            | Output::Command(Command::Wake { .. })
    )
}

#[test]
fn s9_guards_are_void_before_the_row_is_deleted_and_nothing_comes_after_it() {
    let mut script = held();
    let lost = Output::Event(Event::Lost { turn: TurnId(1), reason: LostReason::Suspended });
    let expected: Vec<_> = [lost].into_iter().chain(gone(ME, &script.key)).collect();
    assert_eq!(script.input(SUSPEND), expected);
    assert_eq!(script.remaining_ms(1), 0);
    for after_ms in [1, 5_000, 60_000] {
        assert_eq!(script.tick(after_ms), []);
    }
    assert_eq!(script.input(SUSPEND), [], "it is gone already");
    for body in
        [Body::Wanted { holder: ME, by: OTHER, tries: false }, Body::Gone { holder: ME }, Body::Gone { holder: OTHER }]
    {
        assert_eq!(script.signal(body), []);
    }
    let slot = script.slot();
    let late = script.input(Input::Release { turn: TurnId(1), slot });
    assert_eq!(late, [Output::Event(Event::Released { turn: TurnId(1), result: Ok(Some(LostReason::Expired)) })]);
    assert!(!script.input(Input::Close).iter().any(is_heard));
}

#[test]
fn s9_what_is_under_way_is_dropped_and_its_answer_says_nothing() {
    let mut script = held();
    let slot = script.slot();
    script.input(Input::Verify { query: TurnId(7), turn: TurnId(1), slot, span_ms: 0 });
    let (id, _) = script.sent();
    let outputs = script.input(SUSPEND);
    let told = outputs
        .iter()
        .position(|output| matches!(output, Output::Event(Event::Verified { query: TurnId(7), result: Err(_) })));
    let written = outputs.iter().position(is_abandon);
    assert!(told.is_some() && told < written, "{outputs:?}");
    assert_eq!(script.reply(id, [super::current()]), []);
    assert_eq!(script.remaining_ms(1), 0);
    assert_eq!(script.wake, None, "and there is nothing to be woken for");
}

#[test]
fn s9_releases_under_way_are_answered() {
    for (after_ms, outcome) in [(0, None), (super::LEASE_MS, Some(LostReason::Expired))] {
        let mut script = held();
        let slot = script.slot();
        // Behind a question, so that it waits; or, where the lease is over by then, behind the doubt.
        script.input(Input::Verify { query: TurnId(7), turn: TurnId(1), slot: slot.clone(), span_ms: 0 });
        script.now_ms += after_ms;
        let told = script.input(Input::Release { turn: TurnId(1), slot });
        assert!(!told.iter().any(|output| matches!(output, Output::Event(Event::Released { .. }))), "{told:?}");
        let outputs = script.input(SUSPEND);
        let released = Output::Event(Event::Released { turn: TurnId(1), result: Ok(outcome) });
        let told = outputs.iter().position(|output| *output == released);
        let written = outputs.iter().position(is_abandon);
        assert!(told.is_some() && told < written, "{outputs:?}");
        assert_eq!(script.input(WAKE), [], "nothing is left to do");
    }
}

#[test]
fn s9_who_has_no_row_deletes_none_and_who_may_have_one_does() {
    assert_eq!(Script::new().input(SUSPEND), []);
    let mut rising = Script::with_beacon();
    rising.acquire(1, true);
    assert_eq!(rising.input(SUSPEND), [Output::Command(Command::Rest)], "it was not sent yet");
    let mut looks = Script::new();
    let key = looks.key.clone();
    looks.input(Input::Inspect { query: TurnId(1), key });
    let outputs = looks.input(SUSPEND);
    assert!(matches!(outputs, [Output::Event(Event::Status { result: Err(_), .. })]), "{outputs:?}");
    let mut released = held();
    let slot = released.slot();
    released.input(Input::Release { turn: TurnId(1), slot });
    released.answer([Outcome::Released]);
    assert_eq!(
        released.input(SUSPEND),
        [Output::Command(Command::Abandon(ME)), Output::Command(Command::Rest)],
        "there is nobody to tell"
    );
    let mut opening = Script::new();
    opening.acquire(1, true);
    assert_eq!(
        opening.input(SUSPEND),
        [Output::Command(Command::Abandon(ME)), Output::Command(Command::Rest)],
        "it is under way"
    );
}

/// It lives for a lease, in a session of its own.
#[test]
fn s15_what_was_taken_out_of_its_guard_is_not_deleted_with_the_context() {
    let mut script = held();
    let slot = script.slot();
    let parcel = script.machine.parcel(TurnId(1), &slot).unwrap();
    assert!(parcel.from != ME && parcel.origin == ME);
    script.input(Input::Detach { turn: TurnId(1), slot, to: parcel.from });
    let detach =
        Action::Detach { token: Token(64), request: parcel.request, to: parcel.from, lease_ms: super::LEASE_MS };
    assert_eq!(script.actions(), [detach]);
    script.answer([Outcome::Detached]);
    assert_eq!(script.input(SUSPEND), [Output::Command(Command::Abandon(ME)), Output::Command(Command::Rest)]);
}

#[test]
fn s9_one_delete_and_one_message_serve_all_keys() {
    let mut script = held();
    let other = Key::new("another").unwrap();
    script.input(Input::Acquire(Turn { mode: Mode::Shared, ..Turn::new(TurnId(2), other) }));
    script.answer([granted(128)]);
    let outputs = script.input(SUSPEND).to_vec();
    let count = |is_it: fn(&Output) -> bool| outputs.iter().filter(|output| is_it(output)).count();
    assert_eq!(count(|output| matches!(output, Output::Event(Event::Lost { .. }))), 2);
    assert_eq!((count(is_abandon), count(|output| matches!(output, Output::Command(Command::Send(_))))), (1, 1));
}

/// Whoever waits behind it is told, although nothing is held here any more.
#[test]
fn s9_a_release_that_is_under_way_is_told_as_the_end_of_its_session() {
    let mut script = held();
    let slot = script.slot();
    script.input(Input::Release { turn: TurnId(1), slot });
    let expected = gone(ME, &script.key);
    assert_eq!(script.input(SUSPEND)[1..], expected);
}

/// A store that cannot delete blindly is asked to do so in a transaction.
#[test]
fn s9_without_a_blind_delete_the_last_transaction_ends_the_session() {
    let mut script = held();
    let outputs = script.input(Input::Suspend { abandons: false }).to_vec();
    assert!(super::is_lost(&outputs[..1]));
    let (_, batch) = script.sent();
    let ends: Vec<_> = batch.ends.iter().map(|ending| (ending.session, ending.beat)).collect();
    assert_eq!((ends, batch.step, batch.operations), (vec![(ME, None)], SessionStep::Stay, vec![]));
    assert_ne!(script.machine.session(), ME);
}

/// An end that failed a moment ago waits for its time, and the suspension does not wait with it.
#[test]
fn s9_a_suspension_is_sent_although_another_end_failed_a_moment_ago() {
    let mut script = held();
    script.input(Input::Release { turn: TurnId(1), slot: script.slot() });
    script.answer([Outcome::Released]);
    script.tick(10_000);
    assert_eq!(script.sent().1.step, SessionStep::Close);
    script.refuse();
    assert!(!script.is_sent());
    script.acquire(2, true);
    script.answer([granted(200)]);
    let ending = Ending { session: script.machine.session(), beat: None };
    script.input(Input::Suspend { abandons: false });
    assert_eq!(script.sent().1.ends, [ending]);
}

#[test]
fn o_requests_queue_again_in_a_new_session_inside_their_deadlines() {
    let mut script = Script::new();
    let first = script.queue(1, 100);
    let hasty = Turn { deadline: Some(script.now().monotonic.plus(2_000)), ..Turn::new(TurnId(2), script.key.clone()) };
    script.input(Input::Acquire(hasty));
    let key = script.key.clone();
    assert_eq!(script.input(SUSPEND), gone(ME, &key));
    let timed_out = Output::Event(Event::Failed { turn: TurnId(2), refusal: Refusal::Timeout });
    assert_eq!(script.tick(2_000), [timed_out]);
    assert_eq!(
        script.input(Input::Acquire(Turn::new(TurnId(3), key.clone()))),
        [],
        "it waits until the context goes on"
    );
    script.input(WAKE);
    let (_, batch) = script.sent();
    let [Action::Acquire(ask)] = &script.actions()[..] else { panic!("{batch:?}") };
    let later = batch.session;
    assert!(later != ME && script.opens() && script.machine.session() == later);
    assert!(ask.request > first && ask.wait);
    assert!(is_granted(script.answer([granted(256)])));
    assert_eq!(script.input(SUSPEND)[1..], gone(later, &key));
}

fn ended(script: &Script) -> Vec<SessionId> {
    script.sent().1.ends.iter().map(|ending| ending.session).collect()
}

/// Frozen as it was sent, a deletion may never run. The next session would wait for a lease behind the one before.
#[test]
fn o_who_wakes_up_ends_the_session_before_whatever_became_of_its_deletion() {
    let mut script = held();
    script.input(Input::Suspend { abandons: false });
    script.tick(1_000);
    script.input(WAKE);
    assert_eq!(ended(&script), [ME], "the store has not said that it did it");
    let (end, _) = script.sent();
    script.acquire(2, true);
    script.reply(end, []);
    assert_eq!((ended(&script), script.opens()), (vec![], true), "once");
}

/// Of a blind deletion the store never says whether it did it. Nothing is written for that alone.
#[test]
fn o_who_wakes_up_ends_what_it_abandoned_with_its_next_request() {
    let mut script = held();
    script.input(SUSPEND);
    assert_eq!(script.input(WAKE), []);
    assert_eq!(script.wake, None);
    script.acquire(2, true);
    assert_eq!((ended(&script), script.opens()), (vec![ME], true));
    script.answer([granted(200)]);
    script.until_sent();
    assert_eq!(ended(&script), [], "once");
}

/// What ends it may fail, too.
#[test]
fn o_the_end_of_the_session_before_is_tried_again() {
    let mut script = held();
    script.input(SUSPEND);
    script.input(WAKE);
    script.acquire(2, true);
    script.refuse();
    script.until_sent();
    assert_eq!(ended(&script), [ME]);
}

/// Nobody knows of two sessions whether they are there: of the one that rests, and of the one that is suspended.
#[test]
fn o_an_end_that_is_in_flight_when_the_context_is_suspended_goes_again() {
    let mut script = held();
    script.input(Input::Release { turn: TurnId(1), slot: script.slot() });
    script.answer([Outcome::Released]);
    script.tick(10_000);
    assert_eq!(script.sent().1.step, SessionStep::Close);
    script.input(SUSPEND);
    script.input(WAKE);
    assert_eq!(ended(&script), [ME]);
}

/// A context that closes does not wait for what it abandoned, nor for an end that is in flight when it is suspended.
#[test]
fn o_who_abandoned_a_session_closes_at_once() {
    let mut script = held();
    script.input(SUSPEND);
    script.input(WAKE);
    assert_eq!(script.input(Input::Close), [Output::Event(Event::Closed)]);
    let mut script = held();
    script.input(Input::Close);
    assert_eq!(script.sent().1.step, SessionStep::Close);
    assert_eq!(script.input(SUSPEND), [Output::Command(Command::Fall), Output::Event(Event::Closed)]);
}

#[test]
fn o_who_was_not_suspended_does_not_wake() {
    let mut script = held();
    assert_eq!(script.input(WAKE), []);
    assert_eq!(script.machine.session(), ME);
    assert!(script.remaining_ms(1) > 0);
}

/// What was to be given back would wait behind what is in flight, and never be sent.
#[test]
fn s9_a_context_that_is_closing_deletes_its_row_too() {
    let mut script = held();
    let slot = script.slot();
    script.input(Input::Verify { query: TurnId(7), turn: TurnId(1), slot, span_ms: 0 });
    script.input(Input::Close);
    let outputs = script.input(SUSPEND).to_vec();
    let told: Vec<_> = outputs.iter().filter(|output| is_heard(output)).collect();
    let [delete, message, _] = gone(ME, &script.key);
    assert_eq!(told, [&delete, &message]);
    assert_eq!(outputs.last(), Some(&Output::Event(Event::Closed)));
    assert_eq!(script.input(SUSPEND), []);
    assert_eq!(script.input(WAKE), [], "it stays closed");
}

fn ahead(entries: &[(SessionId, Entry)]) -> Outcome {
    let sighting = |(holder, entry): &(SessionId, Entry)| Sighting { holder: *holder, entry: *entry, ..seen(1, false) };
    Outcome::Waiting { last_token: Token(100), position: 1, ahead: entries.iter().map(sighting).collect() }
}

fn queue_behind(entries: &[(SessionId, Entry)]) -> Script {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([ahead(entries)]);
    script
}

#[test]
fn s14_only_who_stood_right_behind_the_gone_asks() {
    let grant = |token| Entry::Grant(Token(token));
    let waiter = Entry::Waiter(RequestId(5));
    let mut script = queue_behind(&[(OTHER, grant(64))]);
    assert_eq!(script.signal(Body::Gone { holder: STRANGER }), []);
    script.signal(Body::Gone { holder: OTHER });
    assert_eq!(script.actions(), [Action::Look]);
    let mut script = queue_behind(&[(OTHER, grant(64)), (STRANGER, waiter)]);
    assert_eq!(script.signal(Body::Gone { holder: OTHER }), [], "that is for who stands before it");
    script.signal(Body::Gone { holder: STRANGER });
    assert_eq!(script.actions(), [Action::Look]);
}

/// The answer may come from a transaction that ran before the session was deleted.
#[test]
fn s14_an_answer_that_names_a_session_that_has_left_meanwhile_is_checked() {
    let mut script = Script::new();
    script.acquire(1, true);
    let (id, _) = script.sent();
    assert_eq!(script.signal(Body::Gone { holder: OTHER }), [], "one transaction at a time");
    script.reply(id, [ahead(&[(OTHER, Entry::Grant(Token(64)))])]);
    assert_eq!(script.actions(), [Action::Look]);
}

#[test]
fn s14_an_answer_to_a_look_is_checked_too() {
    let mut script = Script::new();
    let request = script.queue(1, 100);
    script.signal(Body::Gone { holder: OTHER });
    let (id, _) = script.sent();
    script.signal(Body::Gone { holder: STRANGER });
    let ahead = [Sighting { holder: STRANGER, ..seen(1, false) }].into();
    script.reply(id, [Outcome::Looked { requests: [request].into(), last_token: Token(100), ahead }]);
    assert_eq!(script.actions(), [Action::Look]);
}

#[test]
fn s14_a_session_that_left_is_remembered_until_the_next_answer_only() {
    let behind = |session| ahead(&[(session, Entry::Grant(Token(64)))]);
    let mut script = Script::new();
    script.acquire(1, true);
    let (id, _) = script.sent();
    script.signal(Body::Gone { holder: STRANGER });
    script.reply(id, [behind(OTHER)]);
    assert!(!script.is_sent(), "it does not stand ahead");
    script.signal(Body::Gone { holder: OTHER });
    script.answer([behind(STRANGER)]);
    assert!(!script.is_sent(), "this answer was read afterwards");
}

/// Anybody of the origin can say it.
#[test]
fn s14_a_forged_word_that_somebody_is_gone_does_no_harm() {
    let mut script = held();
    assert_eq!(script.signal(Body::Gone { holder: ME }), []);
    assert!(script.remaining_ms(1) > 0);
    let mut script = Script::new();
    let request = script.queue(1, 100);
    for _ in 0..3 {
        script.signal(Body::Gone { holder: OTHER });
        assert_eq!(script.actions(), [Action::Look]);
        let (id, _) = script.sent();
        assert_eq!(script.signal(Body::Gone { holder: OTHER }), [], "one transaction at a time");
        script.reply(id, [looked(request, 100, 1)]);
        assert!(!is_granted(script.answer([looked(request, 100, 1)])), "what was asked meanwhile is asked after it");
    }
    let wrong = Message { store: StoreId(8), key: script.key.clone(), body: Body::Gone { holder: OTHER } };
    assert_eq!(script.input(Input::Message(wrong)), [], "of another store");
}
