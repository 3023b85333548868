//! One release that a store refuses for good, and all else that the context does meanwhile.

use alloc::vec::Vec;

use super::{LEASE_MS, ME, Script, current, events, granted, named, said, served::permanent};
use crate::machine::{
    Action, Ending, Event, Input, LostReason, Outcome, RequestId, SessionStep, Slot, StoreError, StoreErrorKind, Token,
    Turn, TurnId,
};

fn poison() -> Action {
    Action::Release { token: Token(64), request: RequestId(1) }
}

/// One lease whose release never works, and another one.
fn with_a_release_that_never_works() -> Script {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    script.ask_for(Turn::new(TurnId(2), named("j")));
    script.answer([granted(1_000)]);
    script.input(Input::Release { turn: TurnId(1), slot: script.slot() });
    assert_eq!(script.actions(), [poison()]);
    let id = script.sent().0;
    script.result(id, Err(permanent()));
    script
}

/// A store of which only this release does not work. Silent at first, if the test says so.
fn serve(script: &mut Script, ms: u64) -> Vec<Event> {
    let mut told = Vec::new();
    for _ in 0..ms / 10 {
        script.tick(10);
        told.extend(events(&script.outputs));
        while script.is_sent() {
            let (id, batch) = script.sent();
            let fails = batch.operations.iter().any(|operation| operation.action == poison());
            let said = said(batch.operations.iter().map(|operation| match operation.action {
                Action::Acquire(_) => granted(2_000),
                Action::Inspect => Outcome::Moved,
                _ => current(),
            }));
            told.extend(events(&script.result(id, if fails { Err(permanent()) } else { Ok(said) })));
        }
    }
    told
}

/// "What fails for good is given back all the same", for ever, and takes all else of the context with it: its retry goes with
/// a heartbeat, and a heartbeat that fails for good ends the session.
#[test]
fn a_release_that_fails_for_good_costs_no_other_lease() {
    let mut script = with_a_release_that_never_works();
    // A question that gets no answer in time: from now on the next transaction carries a heartbeat.
    script.input(Input::Inspect { query: TurnId(50), key: named("m") });
    assert_eq!(script.actions(), [Action::Inspect]);
    let mut told = Vec::new();
    for _ in 0..600 {
        script.tick(10);
        told.extend(events(&script.outputs));
        if script.is_sent() {
            break;
        }
    }
    let (id, batch) = script.sent();
    let actions = script.actions();
    let fails = actions.contains(&poison());
    told.extend(events(&script.result(id, if fails { Err(permanent()) } else { Ok(said([])) })));
    told.extend(serve(&mut script, 5_000));
    let lost: Vec<_> = told.iter().filter(|event| matches!(event, Event::Lost { .. })).collect();
    assert!(lost.is_empty(), "{lost:?}, by {:?} with {actions:?}", batch.step);
}

/// A request that was refused for a moment is tried again with the release that never works, and fails for good.
#[test]
fn a_release_that_fails_for_good_fails_no_request_for_another_key() {
    let mut script = with_a_release_that_never_works();
    script.ask_for(Turn::new(TurnId(5), named("m")));
    script.refuse();
    let told = serve(&mut script, 10_000);
    let failed: Vec<_> = told.iter().filter(|event| matches!(event, Event::Failed { turn: TurnId(5), .. })).collect();
    assert!(failed.is_empty(), "the store works for \"m\": {failed:?}");
    assert!(told.iter().any(|event| matches!(event, Event::Granted { turn: TurnId(5), .. })));
}

/// An upgrade that was given up came to pass all the same, and is taken back by a downgrade that nobody asked for. If the
/// store refuses that once for good, nobody is told, and readers elsewhere wait as long as the guard lives.
#[test]
fn a_downgrade_that_nobody_asked_for_goes_on_after_it_failed_for_good() {
    let mut script = Script::new();
    let slot = script.shares();
    script.input(Input::Upgrade { query: TurnId(10), turn: TurnId(1), slot: slot.clone() });
    let (id, _) = script.sent();
    script.input(Input::CancelUpgrade { query: TurnId(10), slot });
    script.reply(id, [granted(200)]);
    let downgrade = Action::Downgrade { token: Token(200), request: RequestId(2) };
    let mut fails = 0;
    let mut again = false;
    for _ in 0..6_000 {
        if script.is_sent() {
            let (id, batch) = script.sent();
            let has_downgrade = batch.operations.iter().any(|operation| operation.action == downgrade);
            again |= has_downgrade && fails > 0;
            fails += usize::from(has_downgrade);
            let said = said(batch.operations.iter().map(|operation| match operation.action {
                Action::Acquire(_) => granted(200),
                _ => current(),
            }));
            script.result(id, if has_downgrade { Err(permanent()) } else { Ok(said) });
        } else {
            script.tick(10);
        }
    }
    assert!(fails > 0, "it was downgraded at all");
    assert!(again, "for a minute the store has it exclusively, and the guard shares");
}

/// A holder whose heartbeat was sent, and got no answer yet.
fn with_a_heartbeat_under_way() -> Script {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    while !script.is_sent() {
        script.tick(10);
    }
    script
}

/// The holder can do something about it: make room.
#[test]
fn a_holder_is_told_that_the_store_is_full() {
    let mut script = with_a_heartbeat_under_way();
    let told = script.result(script.sent().0, Err(StoreError::permanent(StoreErrorKind::Quota, "it is full")));
    assert!(events(&told).contains(&Event::Lost { turn: TurnId(1), reason: LostReason::StoreFull }));
}

/// The store may have upgraded the lease at the first attempt, and refuses the second one for good.
#[test]
fn an_upgrade_that_finds_the_store_full_says_so() {
    let mut script = Script::new();
    let slot = script.shares();
    script.input(Input::Upgrade { query: TurnId(10), turn: TurnId(1), slot });
    script.lose_reply();
    script.until_sent();
    let told = script.result(script.sent().0, Err(StoreError::permanent(StoreErrorKind::Quota, "it is full")));
    assert!(events(&told).contains(&Event::Lost { turn: TurnId(1), reason: LostReason::StoreFull }), "{told:?}");
}

/// Its guards are void, so nothing protects them: the next session could end the one before, instead of waiting for a lease
/// behind itself.
#[test]
fn a_session_that_a_failed_heartbeat_ended_is_ended_in_the_store() {
    let mut script = with_a_heartbeat_under_way();
    let id = script.sent().0;
    let told = script.result(id, Err(permanent()));
    let lost = Event::Lost { turn: TurnId(1), reason: LostReason::StoreFailed };
    assert!(events(&told).contains(&lost));
    let (_, batch) = script.sent();
    assert_eq!(batch.ends, [Ending { session: ME, beat: None }], "at once: nobody believes in it any more");
    assert_ne!(batch.session, ME);
}

/// A context that holds nothing and waits for nothing ends its session after 10 s, and with it all that stands under it: a
/// release that never works need not keep the session, the key, and a transaction each two seconds, for ever.
#[test]
fn an_idle_context_ends_its_session_although_a_release_never_works() {
    let mut script = with_a_release_that_never_works();
    let slot = Slot::of_key(named("j"));
    script.input(Input::Release { turn: TurnId(2), slot });
    let (mut sent, mut closed) = (0, false);
    for _ in 0..60_000 {
        if script.is_sent() {
            sent += 1;
            let (id, batch) = script.sent();
            closed |= batch.step == SessionStep::Close;
            let fails = batch.operations.iter().any(|operation| operation.action == poison());
            let said = said(batch.operations.iter().map(|_| Outcome::Released));
            script.result(id, if fails { Err(permanent()) } else { Ok(said) });
        } else {
            script.tick(10);
        }
    }
    assert!(closed, "{sent} transactions in ten minutes, none of which ends the session");
}

/// Every release that a store refuses for good is a transaction of its own, and all of them follow each other at once.
#[test]
fn many_refused_releases_do_not_hammer_the_store() {
    let mut script = Script::new();
    let keys = 50;
    for turn in 1..=keys {
        script.ask_for(Turn::new(TurnId(turn), named(&alloc::format!("k{turn}"))));
        script.answer([granted(64 * turn)]);
    }
    script.ask_for(Turn::new(TurnId(1_000), named("kept")));
    script.answer([granted(10_000)]);
    for turn in 1..=keys {
        script.input(Input::Release { turn: TurnId(turn), slot: Slot::of_key(named(&alloc::format!("k{turn}"))) });
        if script.is_sent() {
            script.input(Input::Reply { id: script.sent().0, result: Err(permanent()) });
        }
    }
    let mut sent = 0;
    for _ in 0..LEASE_MS / 10 {
        script.tick(10);
        while script.is_sent() {
            sent += 1;
            let (id, batch) = script.sent();
            let refused = batch.operations.iter().any(|operation| matches!(operation.action, Action::Release { .. }));
            let result = if refused { Err(permanent()) } else { Ok(said(batch.operations.iter().map(|_| current()))) };
            script.input(Input::Reply { id, result });
        }
    }
    assert!(sent < 60, "{sent} transactions in a lease");
}
