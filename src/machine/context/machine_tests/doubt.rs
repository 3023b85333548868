//! What ran out, was slept through, came late or failed: believed never, told always, left behind nowhere.

use alloc::{format, vec::Vec};

use super::{ME, STORE, Script, current, granted, heir, is_granted, is_lost, looked, said, waiting};
use crate::machine::{
    Action, Body, Command, Config, Event, Input, Key, LostReason, Machine, Message, Now, Options, Outcome, Output,
    Refusal, Reply, RequestId, Slot, StoreError, StoreErrorKind, StoreId, Token, Turn, TurnId, Unreadable,
};

#[test]
fn k_what_ran_out_is_in_doubt_and_a_late_renewal_that_succeeds_dispels_it() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    script.tick(5_000);
    let (id, _) = script.sent();
    script.now_ms += 13_500;
    let outputs = script.tick(0).to_vec();
    assert!(outputs.contains(&Output::Event(Event::Suspect { turn: TurnId(1) })));
    assert!(!outputs.iter().any(|output| matches!(output, Output::Event(Event::Lost { .. }))));
    assert_eq!(script.remaining_ms(1), 0);
    // The answer to what was sent long ago came after its time limit; the next one counts.
    script.reply(id, []);
    assert_eq!(script.remaining_ms(1), 0);
}

#[test]
fn k_after_lost_a_late_success_revives_nothing() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    script.tick(5_000);
    let (late, _) = script.sent();
    script.tick(5_000);
    script.tick(100);
    let (id, _) = script.sent();
    let outputs = script.input(Input::Reply { id, result: Ok(Reply { robbed: None, ..said([]) }) });
    assert!(is_lost(outputs));
    assert_eq!(script.remaining_ms(1), 0);
    script.reply(late, []);
    assert_eq!(script.remaining_ms(1), 0);
}

#[test]
fn a_context_that_slept_believes_nothing_until_the_store_has_answered() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    assert!(script.remaining_ms(1) > 0);
    let asleep = script.asleep();
    assert_eq!(script.machine.remaining_ms(TurnId(1), &script.slot(), asleep), 0);
    script.machine.handle(Input::Tick, asleep);
    assert_eq!(script.machine.poll_output(), Output::Event(Event::Suspect { turn: TurnId(1) }));
    assert!(matches!(script.machine.poll_output(), Output::Command(Command::Store { .. })));
}

/// It counts from before the sleep.
#[test]
fn a_grant_in_flight_over_a_sleep_is_in_doubt() {
    let mut script = Script::new();
    script.acquire(1, true);
    let (id, _) = script.sent();
    let asleep = script.asleep();
    script.machine.handle(Input::Reply { id, result: Ok(said([granted(64)])) }, asleep);
    assert_eq!(script.machine.remaining_ms(TurnId(1), &script.slot(), asleep), 0);
}

#[test]
fn an_heir_that_slept_is_in_doubt() {
    let mut script = Script::new();
    let request = script.queue(1, 100);
    let asleep = script.asleep();
    script
        .machine
        .handle(Input::Message(Message { store: STORE, key: script.key.clone(), body: heir(request, 101) }), asleep);
    assert_eq!(script.machine.remaining_ms(TurnId(1), &script.slot(), asleep), 0);
}

/// Not even what was sent in the very millisecond in which the monotonic clock stopped.
#[test]
fn what_was_sent_before_the_sleep_dispels_no_doubt() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    script.tick(5_000);
    let (id, _) = script.sent();
    let asleep = script.asleep();
    script.machine.handle(Input::Tick, asleep);
    script.machine.handle(Input::Reply { id, result: Ok(said([])) }, asleep);
    assert_eq!(script.machine.remaining_ms(TurnId(1), &script.slot(), asleep), 0);
}

/// Each is shorter than the margin.
#[test]
fn short_sleeps_add_up() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    // 12 s by the monotonic clock, 32.4 s by the wall clock and by everybody else's: no renewal is answered.
    let mut now = script.now();
    for _ in 0..12 {
        now = Now { monotonic: now.monotonic.plus(1_000), wall: now.wall.plus(2_700) };
        script.machine.handle(Input::Tick, now);
        while !matches!(script.machine.poll_output(), Output::Timeout(_)) {}
    }
    assert_eq!(script.machine.remaining_ms(TurnId(1), &script.slot(), now), 0);
}

#[test]
fn doubts_during_an_outage_do_not_pile_up() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    let mut largest = 0;
    for _ in 0..2_000 {
        script.signal(Body::Ended { holder: ME });
        while let Some(operations) = script.refuse() {
            largest = largest.max(operations);
        }
        script.tick(10);
        largest = largest.max(script.refuse().unwrap_or(0));
    }
    assert_eq!(largest, 0, "one heartbeat is all there is to send");
}

#[test]
fn an_heir_in_doubt_whose_store_is_dead_is_told() {
    let mut script = Script::new();
    let request = script.queue(1, 100);
    script.signal(Body::Ended { holder: ME });
    assert!(!is_granted(script.signal(heir(request, 101))), "nothing is believed");
    // Ten minutes without a store.
    let told = (0..6_000).any(|_| {
        script.tick(100);
        let is_told =
            |script: &Script| script.outputs.iter().any(|output| matches!(output, Output::Event(Event::Failed { .. })));
        is_told(&script) || (script.refuse().is_some() && is_told(&script))
    });
    assert!(told, "the request still waits");
}

#[test]
fn a_permanent_failure_of_renewal_is_told() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    script.tick(5_000);
    let (id, _) = script.sent();
    let error = StoreError::permanent(StoreErrorKind::Unavailable, "gone");
    let outputs = script.input(Input::Reply { id, result: Err(error) });
    assert!(outputs.contains(&Output::Event(Event::Lost { turn: TurnId(1), reason: LostReason::StoreFailed })));
}

/// The next session raises a beacon of its own. It ends the old one, and so need not give back what that one held.
#[test]
fn a_session_whose_heartbeats_are_refused_for_good_ends_with_its_beacon_and_with_what_it_was_to_send() {
    let mut script = Script::with_beacon();
    script.acquire(1, true);
    script.input(Input::BeaconStands(ME));
    script.answer([granted(64)]);
    script.tick(5_000);
    let (heartbeat, slot) = (script.sent().0, script.slot());
    script.input(Input::Release { turn: TurnId(1), slot });
    let error = StoreError::permanent(StoreErrorKind::Unavailable, "gone");
    let outputs = script.input(Input::Reply { id: heartbeat, result: Err(error) });
    assert!(outputs.contains(&Output::Command(Command::Fall)), "{outputs:?}");
    script.acquire(2, true);
    script.until_sent();
    let (_, batch) = script.sent();
    assert!(script.opens() && batch.session != ME && batch.ends.iter().any(|ending| ending.session == ME), "{batch:?}");
    assert!(matches!(script.actions()[..], [Action::Acquire(_)]), "{batch:?}");
}

/// It holds "another", so its session is open, and asks for "k".
fn asks_beside_another_lease() -> Script {
    let mut script = Script::new();
    script.key = Key::new("another").unwrap();
    script.acquire(9, true);
    script.answer([granted(64)]);
    script.key = Key::new("k").unwrap();
    script.acquire(1, true);
    script
}

/// In a session that is open: what it left there goes; of one that may be open by that, the session goes.
#[test]
fn an_answer_that_comes_after_its_time_limit_leaves_nothing_behind() {
    for (answer, grant) in [(granted(128), Some(128)), (waiting(100, 1), None)] {
        let mut script = asks_beside_another_lease();
        let (late, _) = script.sent();
        script.input(Input::Cancel { turn: TurnId(1), slot: script.slot() });
        script.tick(5_000);
        let request = RequestId(2);
        assert_eq!(script.actions(), [Action::Withdraw { request }]);
        script.answer([Outcome::Withdrawn]);
        script.reply(late, [answer]);
        let release = grant.map(|token| Action::Release { token: Token(token), request });
        assert_eq!(script.actions(), [release.unwrap_or(Action::Withdraw { request })]);
    }
}

#[test]
fn a_wiped_store_is_told_and_nothing_from_before_holds() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    script.tick(5_000);
    let (id, _) = script.sent();
    let wiped = Reply { store: StoreId(10), robbed: None, ..said([]) };
    let outputs = script.input(Input::Reply { id, result: Ok(wiped) });
    assert!(outputs.contains(&Output::Event(Event::Lost { turn: TurnId(1), reason: LostReason::StoreCleared })));
}

#[test]
fn who_releases_while_the_context_finds_out_that_the_store_was_wiped_is_told_so() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    script.signal(Body::Ended { holder: ME });
    let (id, _) = script.sent();
    script.input(Input::Release { turn: TurnId(1), slot: script.slot() });
    let wiped = Reply { store: StoreId(10), robbed: None, ..said([]) };
    let outputs = script.input(Input::Reply { id, result: Ok(wiped) });
    let told = Event::Released { turn: TurnId(1), result: Ok(Some(LostReason::StoreCleared)) };
    assert!(outputs.contains(&Output::Event(told)), "{outputs:?}");
}

/// The store made after the wipe may have granted the key meanwhile, with larger tokens.
#[test]
fn a_release_that_finds_the_store_wiped_reports_it() {
    for last_token in [0, 10_000] {
        let mut script = asks_beside_another_lease();
        script.answer([granted(64)]);
        script.input(Input::Release { turn: TurnId(1), slot: script.slot() });
        script.until_sent();
        let (id, _) = script.sent();
        assert!(matches!(script.actions()[..], [Action::Release { .. }]), "{:?}", script.actions());
        let gone = Outcome::NotCurrent { last_token: Token(last_token), stolen: false };
        let wiped = Reply { store: StoreId(10), robbed: None, ..said([gone]) };
        let outputs = script.input(Input::Reply { id, result: Ok(wiped) });
        let told = Event::Released { turn: TurnId(1), result: Ok(Some(LostReason::StoreCleared)) };
        assert!(outputs.contains(&Output::Event(told)), "{last_token}: {outputs:?}");
    }
}

/// Whether a heartbeat or the repeated release finds the wiped store first does not matter.
#[test]
fn a_release_that_may_have_been_applied_before_the_wipe_is_told_no_loss() {
    for by_heartbeat in [false, true] {
        let mut script = asks_beside_another_lease();
        script.answer([granted(64)]);
        script.input(Input::Release { turn: TurnId(1), slot: script.slot() });
        script.until_sent();
        assert!(matches!(script.actions()[..], [Action::Release { .. }]), "{:?}", script.actions());
        script.lose_reply();
        if by_heartbeat {
            script.signal(Body::Ended { holder: ME });
        }
        script.until_sent();
        let (id, batch) = script.sent();
        let releases = batch.operations.iter().any(|operation| matches!(operation.action, Action::Release { .. }));
        assert_ne!(releases, by_heartbeat);
        let gone = Outcome::NotCurrent { last_token: Token(0), stolen: false };
        let answers = batch.operations.iter().map(|_| gone.clone()).collect::<Vec<_>>();
        let wiped = Reply { store: StoreId(10), robbed: None, ..said(answers) };
        let outputs = script.input(Input::Reply { id, result: Ok(wiped) });
        let told = Event::Released { turn: TurnId(1), result: Ok(None) };
        assert!(outputs.contains(&Output::Event(told)), "{outputs:?}");
    }
}

#[test]
fn who_asks_a_wiped_store_asks_again_in_a_new_session_and_so_does_who_waited_in_the_old_one() {
    let mut script = Script::new();
    let request = script.queue(1, 100);
    let turn = Turn { wait: false, ..Turn::new(TurnId(2), Key::new("other").unwrap()) };
    script.input(Input::Acquire(turn));
    let (id, _) = script.sent();
    let wiped = Reply { store: StoreId(10), robbed: None, ..said([Outcome::NoSession]) };
    script.input(Input::Reply { id, result: Ok(wiped) });
    let (id, batch) = script.sent();
    assert!(script.opens() && batch.session != ME);
    assert_eq!(batch.operations.len(), 2);
    let asked = |action: &Action| matches!(action, Action::Acquire(ask) if ask.request > request);
    assert!(script.actions().iter().all(asked), "with fresh requests");
    let opened = Reply { store: StoreId(10), ..said([granted(64), granted(64)]) };
    let outputs = script.input(Input::Reply { id, result: Ok(opened) }).to_vec();
    for turn in [1, 2] {
        assert!(
            outputs.contains(&Output::Event(Event::Granted { turn: TurnId(turn), token: Token(64) })),
            "{outputs:?}"
        );
    }
}

#[test]
fn a_newer_format_is_told_to_who_holds_and_who_asks() {
    let newer = Unreadable::FormatTooNew { found: 2, known: 1 };
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    let verify = Input::Verify { query: TurnId(7), turn: TurnId(1), slot: script.slot(), span_ms: 0 };
    script.input(verify);
    let outputs = script.answer([Outcome::Unreadable(newer)]);
    assert!(outputs.contains(&Output::Event(Event::Lost { turn: TurnId(1), reason: LostReason::FormatTooNew })));
    let mut script = Script::new();
    script.acquire(1, true);
    let refusal = Refusal::Unreadable(newer);
    assert!(
        script
            .answer([Outcome::Unreadable(newer)])
            .contains(&Output::Event(Event::Failed { turn: TurnId(1), refusal }))
    );
}

#[test]
fn a_store_that_may_have_lost_its_latest_writes_is_asked_about_each_grant_and_a_lost_one_is_told() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    script.input(Input::Recheck);
    assert!(matches!(script.actions()[..], [Action::Verify { token: Token(64), .. }]), "{:?}", script.actions());
    assert!(script.remaining_ms(1) > 0, "nothing speaks against the grant yet");
    script.answer([current()]);
    assert!(script.remaining_ms(1) > 0);
    script.input(Input::Recheck);
    let outputs = script.answer([Outcome::NotCurrent { last_token: Token(200), stolen: false }]);
    assert!(is_lost(outputs));
}

/// The message of its grant may have been lost.
#[test]
fn a_waiter_reads_the_store_once_it_has_reconnected() {
    let mut script = Script::new();
    let request = script.queue(1, 100);
    script.input(Input::Recheck);
    assert_eq!(script.actions(), [Action::Look]);
    script.answer([looked(request, 100, 1)]);
    assert!(!script.is_sent(), "it goes on waiting");
}

/// A context whose store may lose its latest writes. It holds the script's key.
fn over_a_store_that_fails_over() -> Script {
    let mut script = Script::new();
    let config = Config::parse(&Options { beacon: false, ..Options::default() }).unwrap();
    script.machine = Machine::new(config.without_linger().for_failovers(), ME);
    script.acquire(1, true);
    script.answer([granted(64)]);
    script
}

/// Acquires and releases a key. The request that did.
fn take_turn(script: &mut Script, turn: u64, key: &str) -> RequestId {
    let slot = Slot { key: Key::new(key).unwrap(), ..script.slot() };
    script.input(Input::Acquire(Turn { wait: true, ..Turn::new(TurnId(turn), slot.key.clone()) }));
    script.answer([granted(64)]);
    script.input(Input::Release { turn: TurnId(turn), slot });
    let [Action::Release { request, .. }] = script.actions()[..] else { panic!("{:?}", script.actions()) };
    script.answer([Outcome::Released]);
    request
}

#[test]
fn a_store_that_may_have_lost_its_latest_writes_is_told_again_of_the_latest_releases() {
    let mut script = over_a_store_that_fails_over();
    let request = take_turn(&mut script, 2, "other");
    // Twice: the next server may lack what this one was told.
    for _ in 0..2 {
        script.input(Input::Recheck);
        let actions = script.actions();
        assert!(
            matches!(actions[..], [Action::Verify { .. }, Action::Withdraw { request: again }] if again == request)
        );
        script.answer([current(), Outcome::Withdrawn]);
    }
    assert!(script.remaining_ms(1) > 0);
}

#[test]
fn of_many_releases_the_latest_64_are_repeated() {
    let mut script = over_a_store_that_fails_over();
    let all: Vec<_> = (0..70).map(|turn| take_turn(&mut script, 2 + turn, &format!("key {turn}"))).collect();
    script.input(Input::Recheck);
    let mut repeated = Vec::new();
    while script.is_sent() {
        let actions = script.actions();
        let withdrawn = |action: &Action| match action {
            Action::Withdraw { request } => Some(*request),
            _ => None,
        };
        repeated.extend(actions.iter().filter_map(withdrawn));
        script.answer(actions.iter().map(|action| withdrawn(action).map_or_else(current, |_| Outcome::Withdrawn)));
    }
    repeated.sort_unstable();
    assert_eq!(repeated, all[6..]);
}

#[test]
fn a_store_that_keeps_what_it_confirmed_is_told_nothing_twice() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    take_turn(&mut script, 2, "other");
    script.input(Input::Recheck);
    assert!(matches!(script.actions()[..], [Action::Verify { .. }]), "{:?}", script.actions());
}
