//! A store that says of an operation that it never works: nothing is kept that nobody gives back, and nobody waits for
//! ever.

use alloc::{vec, vec::Vec};

use super::{Script, current, events, granted, is_granted, named, said, served::permanent, waiting};
use crate::machine::{
    Action, Applied, Ending, Entry, Event, Input, LostReason, Monotonic, Outcome, Output, Peer, Refusal, Reply,
    RequestId, SessionId, Sighting, StoreError, Token, Turn, TurnId, Way,
};

impl Script {
    fn fail(&mut self) -> &[Output] {
        let id = self.sent().0;
        self.input(Input::Reply { id, result: Err(permanent()) })
    }
}

fn release() -> Action {
    Action::Release { token: Token(64), request: RequestId(1) }
}

#[test]
fn a_release_that_fails_for_good_is_told_and_goes_on_while_its_session_lives() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    script.input(Input::Release { turn: TurnId(1), slot: script.slot() });
    assert_eq!(script.actions(), [release()]);
    let told =
        script.fail().iter().any(|output| matches!(output, Output::Event(Event::Released { result: Err(_), .. })));
    assert!(told, "who released hears of it");
    assert_eq!(script.until_sent(), [release()], "or the key would be blocked for as long as the context lives");
    script.answer([Outcome::Released]);
    assert!(!script.is_sent());
}

#[test]
fn a_withdrawal_that_fails_for_good_goes_on_too() {
    let mut script = Script::new();
    let request = script.queue(1, 100);
    script.input(Input::Cancel { turn: TurnId(1), slot: script.slot() });
    for _ in 0..3 {
        assert_eq!(script.until_sent(), [Action::Withdraw { request }]);
        script.fail();
    }
}

/// The tokens of a grant are used up, and no more are to be had.
#[test]
fn who_waits_for_tokens_is_told_when_none_will_come() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    for turn in 2..=64 {
        script.acquire(turn, true);
        script.input(Input::Release { turn: TurnId(turn - 1), slot: script.slot() });
    }
    script.acquire(65, true);
    script.input(Input::Release { turn: TurnId(64), slot: script.slot() });
    assert!(matches!(script.until_sent()[..], [Action::Verify { refill: true, .. }]), "{:?}", script.actions());
    let told = script.fail().to_vec();
    let refused = |output: &Output| {
        matches!(output, Output::Event(Event::Failed { turn: TurnId(65), refusal: Refusal::Store(_) }))
    };
    assert!(told.iter().any(refused), "{told:?}");
    // The next one asks anew.
    assert_eq!(script.until_sent(), [release()]);
    script.answer([Outcome::Released]);
    script.acquire(66, true);
    assert!(is_granted(script.answer([granted(200)])));
}

/// Two sessions of a context that is idle most of the time, and what stands ended by the end of them.
fn ended_over_two_sessions(beats: [u64; 2]) -> Vec<Ending> {
    let mut script = Script::new();
    let mut ended = Vec::new();
    for beat in beats {
        script.acquire(1, true);
        let peer = Peer { session: SessionId(77), beat, lease_ms: 20_000 };
        let reply = Reply { peers: vec![peer], ..said([granted(64)]) };
        let id = script.sent().0;
        script.input(Input::Reply { id, result: Ok(reply) });
        script.input(Input::Release { turn: TurnId(1), slot: script.slot() });
        script.answer([Outcome::Released]);
        script.tick(10_000);
        ended.extend(script.sent().1.ends);
        script.answer([]);
        script.tick(4_000);
    }
    ended
}

#[test]
fn s3_whoever_stood_still_over_two_sessions_ends() {
    assert_eq!(ended_over_two_sessions([3, 3]), [Ending { session: SessionId(77), beat: Some(3) }]);
    assert_eq!(ended_over_two_sessions([3, 4]), [], "whoever beat is watched anew");
}

/// What a request was granted was stolen before its context heard of it.
#[test]
fn a_thief_that_was_robbed_unheard_is_told_and_a_waiter_queues_again() {
    let robbed = Outcome::NotCurrent { last_token: Token(300), stolen: true };
    let mut script = Script::new();
    script.ask_for(Turn::new(TurnId(9), named("open")));
    script.answer([granted(64)]);
    script.ask_for(Turn { steal: true, ..Turn::new(TurnId(1), script.key.clone()) });
    script.lose_reply();
    script.until_sent();
    let told = script.answer([robbed.clone()]).to_vec();
    let lost = |output: &Output| {
        matches!(output, Output::Event(Event::Failed { refusal: Refusal::Lost(LostReason::Stolen), .. }))
    };
    assert!(told.iter().any(lost) && !script.is_sent(), "{told:?}");
    script.acquire(2, true);
    let Action::Acquire(first) = script.actions().remove(0) else { panic!("it asks") };
    script.answer([robbed]);
    let Action::Acquire(again) = script.actions().remove(0) else { panic!("it asks anew") };
    assert!(again.request > first.request && again.wait);
    assert!(is_granted(script.answer([granted(400)])));
}

/// Whoever upgrades and dies is seen by those whom it keeps from upgrading.
#[test]
fn an_upgrade_that_conflicts_watches_who_is_in_the_way() {
    let dead = Sighting {
        holder: SessionId(77),
        entry: Entry::Waiter(RequestId(5)),
        request: RequestId(5),
        beat: 9,
        beacon: false,
        lease_ms: 20_000,
        twin: false,
    };
    let mut script = Script::new();
    let slot = script.shares();
    let conflict = || Outcome::UpgradeConflict { ahead: vec![dead] };
    let mut ended = None;
    for query in 0..30 {
        script.input(Input::Upgrade { query: TurnId(100 + query), turn: TurnId(1), slot: slot.clone() });
        let actions = script.actions();
        if let Some(Action::End { target, beat }) = actions.first() {
            ended = Some((*target, *beat));
            break;
        }
        let told = script.answer([conflict()]).to_vec();
        let refused =
            |output: &Output| matches!(output, Output::Event(Event::Failed { refusal: Refusal::UpgradeConflict, .. }));
        assert!(told.iter().any(refused), "{told:?}");
        for _ in 0..10 {
            script.tick(100);
            if script.is_sent() {
                script.answer([]);
            }
        }
    }
    assert_eq!(ended, Some((dead.holder, 9)), "after a lease of silence");
}

/// P3. A thief gives up on a silent store and is told so; who waits beside it with a time limit goes on waiting. What goes on
/// is still the theft. Its session goes on: it holds another lease.
#[test]
fn a_theft_that_was_told_to_have_failed_robs_nobody_afterwards() {
    let mut script = Script::new();
    script.ask_for(Turn::new(TurnId(9), named("other")));
    script.answer([granted(64)]);
    script.ask_for(Turn { steal: true, ..Turn::new(TurnId(1), named("k")) });
    let deadline = Some(Monotonic::from_ms(script.now_ms + 300_000));
    let mut told = events(&script.ask_for(Turn { deadline, ..Turn::new(TurnId(2), named("k")) }));
    while !told.iter().any(|event| matches!(event, Event::Failed { turn: TurnId(1), .. })) {
        assert!(script.now_ms < 200_000);
        told.extend(events(script.tick(10)));
    }
    let ask = loop {
        assert!(script.now_ms < 400_000);
        script.outputs.clear();
        if let Some(Action::Acquire(ask)) = script.until_sent().pop() {
            break ask;
        }
    };
    assert_eq!(ask.way, Way::Plain, "the thief was told that it failed, and only a plain request is left");
}

/// An upgrade waits for somebody else who shares. The store falls silent: a request is told after a lease, an upgrade is not.
#[test]
fn an_upgrade_that_waits_is_told_that_the_store_is_silent() {
    let mut script = Script::new();
    let slot = script.shares();
    script.input(Input::Upgrade { query: TurnId(10), turn: TurnId(1), slot });
    script.answer([waiting(100, 1)]);
    let mut told = Vec::new();
    for _ in 0..60_000 {
        told.extend(events(script.tick(10)));
    }
    assert!(
        told.iter().any(|event| matches!(event, Event::Failed { turn: TurnId(10), .. })),
        "ten minutes of silence: {told:?}"
    );
}

/// Two clones of a guard ask after a third was dropped: the second question takes the place of the first, which is never
/// answered.
#[test]
fn an_upgrade_that_waits_for_a_dropped_one_is_answered_although_a_clone_asks_too() {
    let mut script = Script::new();
    let slot = script.shares();
    script.input(Input::Upgrade { query: TurnId(10), turn: TurnId(1), slot: slot.clone() });
    let (id, _) = script.sent();
    script.input(Input::CancelUpgrade { query: TurnId(10), slot: slot.clone() });
    let mut told = Vec::new();
    for query in [11, 12] {
        told.extend(events(script.input(Input::Upgrade { query: TurnId(query), turn: TurnId(1), slot: slot.clone() })));
    }
    told.extend(events(script.reply(id, [granted(200)])));
    for _ in 0..6_000 {
        if script.is_sent() {
            let outcomes: Vec<_> = script.actions().iter().map(|_| current()).collect();
            told.extend(events(script.answer(outcomes)));
        } else {
            told.extend(events(script.tick(10)));
        }
    }
    let is_of_first = |event: &Event| {
        matches!(event, Event::Upgraded { query: TurnId(11), .. } | Event::Failed { turn: TurnId(11), .. })
    };
    assert!(told.iter().any(is_of_first), "a minute later: {told:?}");
}

/// Somebody else keeps a key locked for as long as this goes on, and the store refuses each transaction that touches it.
#[test]
fn a_key_that_cannot_be_locked_keeps_no_heartbeat_from_the_store() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    let held = script.slot();
    script.key = named("locked");
    script.acquire(2, true);
    for _ in 0..6_000 {
        script.tick(10);
        while script.is_sent() {
            let (id, batch) = script.sent();
            let refused = Err(StoreError::transient("the key is locked"));
            script.input(Input::Reply { id, result: if batch.operations.is_empty() { Ok(said([])) } else { refused } });
        }
        assert!(script.machine.remaining_ms(TurnId(1), &held, script.now()) > 0, "after {} ms", script.now_ms);
    }
}

/// A page that comes back after a pause finds the time of its request over and its transaction failed, in whichever order it hears of them.
#[test]
fn a_request_whose_time_is_over_is_told_so_although_its_transaction_failed() {
    let deadline = Some(Monotonic::from_ms(2_000));
    let reply = |id, error| Input::Reply { id, result: Err(error) };
    for hear in [
        &(|_| Input::Tick) as &dyn Fn(u64) -> Input,
        &|id| reply(id, permanent()),
        &|id| reply(id, StoreError::transient("down")),
        &|id| reply(id, StoreError::unknown("no answer")),
    ] {
        let mut script = Script::new();
        script.ask_for(Turn { wait: true, deadline, ..Turn::new(TurnId(1), script.key.clone()) });
        script.now_ms += 60_000;
        let input = hear(script.sent().0);
        let told = events(script.input(input.clone()));
        assert_eq!(told, [Event::Failed { turn: TurnId(1), refusal: Refusal::Timeout }], "{input:?}");
    }
}

/// What the caller is told, if the store refuses every transaction from now on.
fn told_by_refusals(script: &mut Script) -> StoreError {
    let failure = |event| match event {
        Event::Failed { refusal: Refusal::Store(error), .. } => Some(error),
        _ => None,
    };
    loop {
        if let Some(error) = events(&script.outputs).into_iter().find_map(failure) {
            return error;
        }
        if script.refuse().is_none() {
            script.tick(10);
        }
    }
}

/// The first attempt may have been applied, in a session that was not ended since or in this one. The error that the caller gets for the
/// last attempt must not deny that.
#[test]
fn a_request_whose_first_attempt_may_have_been_applied_is_not_told_that_nothing_was() {
    for (first, told) in
        [(StoreError::unknown("no answer"), Applied::Unknown), (StoreError::transient("down"), Applied::No)]
    {
        let mut script = Script::new();
        script.acquire(1, true);
        let id = script.sent().0;
        script.result(id, Err(first.clone()));
        let error = told_by_refusals(&mut script);
        assert_eq!(error.applied, told, "a request: {first}: {error}");

        let mut script = Script::new();
        let slot = script.shares();
        script.input(Input::Upgrade { query: TurnId(10), turn: TurnId(1), slot });
        let id = script.sent().0;
        script.result(id, Err(first.clone()));
        let error = told_by_refusals(&mut script);
        assert_eq!(error.applied, told, "an upgrade: {first}: {error}");
    }
}

/// The store refuses the heartbeat for good meanwhile, and so ends the session.
#[test]
fn a_request_of_a_lost_session_is_not_told_that_nothing_was_applied() {
    let mut script = Script::new();
    script.ask_for(Turn::new(TurnId(2), named("j")));
    script.answer([granted(1_000)]);
    script.acquire(1, true);
    for _ in 0..2 {
        script.lose_reply();
        script.until_sent();
    }
    let failure = |event| match event {
        Event::Failed { refusal: Refusal::Store(error), .. } => Some(error),
        _ => None,
    };
    let told = loop {
        if let Some(error) = events(&script.outputs).into_iter().find_map(failure) {
            break error;
        }
        if script.is_sent() {
            let id = script.sent().0;
            script.result(id, Err(permanent()));
        } else {
            script.tick(10);
        }
    };
    assert_eq!(told.applied, Applied::Unknown, "{told}");
}
