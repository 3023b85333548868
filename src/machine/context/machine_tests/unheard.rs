//! What is granted, stolen or refused before its context hears of it.

use alloc::{vec, vec::Vec};

use super::{ME, OTHER, Script, block, current, events, granted, heir, is_granted, named, said, taken, waiting};
use crate::machine::{
    Action, Answer, Command, Config, Event, Granted, Input, LostReason, Machine, Mode, Operation, Options, Outcome,
    Output, Promotion, Refusal, Reply, RequestId, Slot, StoreError, Token, Turn, TurnId, Unreadable, Way,
};

impl Script {
    /// Two keys at once, and an answer that is lost; then a request that queues behind what may have been granted. All
    /// within the 25 ms before a heartbeat.
    fn asks_for_two_before_a_heartbeat(&mut self, waits: bool) -> (Vec<RequestId>, RequestId) {
        self.ask_for(Turn::new(TurnId(9), named("z")));
        self.answer([granted(9_000)]);
        let beat_at = self.wake.unwrap().as_ms();
        self.tick(beat_at - self.now_ms - 10);
        assert!(!self.is_sent());
        let all = [(1, "a"), (2, "b")];
        let turns = all.map(|(id, name)| Turn { alone: true, wait: waits, ..Turn::new(TurnId(id), named(name)) });
        self.input(Input::AcquireAll(turns.into()));
        let Action::AcquireAll(asks) = self.actions().remove(0) else { panic!("it asks for both") };
        let requests: Vec<_> = asks.iter().map(|(_, ask)| ask.request).collect();
        // It was applied.
        self.lose_reply();
        self.ask_for(Turn::new(TurnId(3), named("a")));
        let Action::Acquire(third) = self.actions().remove(0) else { panic!("it asks") };
        let ahead = vec![taken(ME, 64, requests[0])];
        self.answer([Outcome::Waiting { last_token: Token(127), position: 1, ahead }]);
        (requests, third.request)
    }
}

/// What a look at "a" answers while the own request for both keys holds it.
fn looked_at_own(first: RequestId, waits: RequestId) -> Answer {
    let promoted = Promotion {
        key: named("a"),
        holder: ME,
        request: first,
        block: block(64),
        previous: Token(0),
        contended: true,
        told: false,
    };
    let ahead = vec![taken(ME, 64, first)];
    let looked = Outcome::Looked { requests: vec![waits], last_token: Token(127), ahead };
    Answer { promoted: vec![promoted], ..Answer::from(looked) }
}

/// I8: "Every attempt of unknown outcome is adopted or released in the end." A look finds one of the two grants, so that the
/// retry for both is dropped: of the second key nobody ever hears, and its grant stays.
#[test]
fn a_request_for_two_keys_is_answered_although_a_look_finds_one_of_its_grants() {
    let mut script = Script::new();
    let (requests, third) = script.asks_for_two_before_a_heartbeat(false);
    script.tick(10);
    assert_eq!(script.actions(), [Action::Look]);
    let (id, _) = script.sent();
    let reply = Reply { answers: vec![looked_at_own(requests[0], third)], ..said([]) };
    let mut told = events(&script.result(id, Ok(reply)));
    for _ in 0..6_000 {
        script.tick(10);
        told.extend(events(&script.outputs));
        if script.is_sent() {
            let (id, batch) = script.sent();
            let mut reply = said([]);
            for operation in &batch.operations {
                reply.answers.push(match &operation.action {
                    Action::Look => looked_at_own(requests[0], third),
                    Action::AcquireAll(_) => Outcome::GrantedAll(vec![
                        Granted { block: block(64), previous: Token(0), contended: true },
                        Granted { block: block(200), previous: Token(0), contended: false },
                    ])
                    .into(),
                    Action::Verify { .. } => current().into(),
                    other => panic!("{other:?}"),
                });
            }
            told.extend(events(&script.result(id, Ok(reply))));
        }
    }
    let is_of_second = |event: &Event| {
        matches!(
            event,
            Event::Granted { turn: TurnId(2), .. }
                | Event::Failed { turn: TurnId(2), .. }
                | Event::Busy { turn: TurnId(2) }
        )
    };
    assert!(told.iter().any(is_of_second), "a minute later the request for \"b\" has heard nothing: {told:?}");
}

fn sent_actions(outputs: &[Output]) -> Vec<Action> {
    let mut actions = Vec::new();
    for output in outputs {
        if let Output::Command(Command::Store { batch, .. }) = output {
            actions.extend(batch.operations.iter().map(|operation| operation.action.clone()));
        }
    }
    actions
}

/// I8 and P4, the same with the retry in the transaction of the look: "b" was stolen, so the key "a" is dropped without a
/// word, and never given back.
#[test]
fn a_grant_that_a_look_found_is_told_lost_or_given_back() {
    let mut script = Script::new();
    let (requests, third) = script.asks_for_two_before_a_heartbeat(true);
    // The page was busy for a moment: the heartbeat and the retry are due together.
    script.tick(60);
    assert!(matches!(script.actions()[..], [Action::Look, Action::AcquireAll(_)]), "{:?}", script.actions());
    let (id, _) = script.sent();
    let busy = Outcome::BusyAll(vec![vec![], vec![taken(OTHER, 500, RequestId(4))]]);
    let reply = Reply { answers: vec![looked_at_own(requests[0], third), busy.into()], ..said([]) };
    let outputs = script.result(id, Ok(reply));
    let mut told = events(&outputs);
    assert!(told.iter().any(|event| matches!(event, Event::Granted { turn: TurnId(1), .. })), "{told:?}");
    // Whoever would look at "a" again gives up.
    told.extend(events(script.input(Input::Cancel { turn: TurnId(3), slot: Slot::of_key(named("a")) })));
    let mut sent = outputs;
    for _ in 0..6_000 {
        sent.extend(script.outputs.clone());
        if script.is_sent() {
            let (id, batch) = script.sent();
            let answer = |operation: &Operation| match operation.action {
                Action::Look => Outcome::Looked { requests: vec![], last_token: Token(127), ahead: vec![] },
                Action::Withdraw { .. } => Outcome::Withdrawn,
                Action::Release { .. } => Outcome::Released,
                _ => current(),
            };
            told.extend(events(&script.result(id, Ok(said(batch.operations.iter().map(answer))))));
        } else {
            script.tick(10);
            told.extend(events(&script.outputs));
        }
    }
    let actions = sent_actions(&sent);
    let held = script.machine.remaining_ms(
        TurnId(1),
        &Slot { key: named("a"), mode: Mode::Exclusive, own: Some(TurnId(1)) },
        script.now(),
    ) > 0;
    let lost = told.iter().any(|event| matches!(event, Event::Lost { turn: TurnId(1), .. }));
    let given_back = actions.iter().any(|action| match action {
        Action::Release { request, .. } | Action::Withdraw { request } => *request == requests[0],
        _ => false,
    });
    assert!(
        held || (lost && given_back),
        "the guard of \"a\" is void; told lost: {lost}, given back: {given_back} ({told:?}, {actions:?})"
    );
}

/// A plain request was granted unheard, and that grant was stolen. Who steals only then was robbed of nothing.
#[test]
fn a_thief_that_came_after_the_theft_is_not_told_that_it_was_robbed() {
    let mut script = Script::new();
    script.queue(1, 100);
    let steal = Turn { steal: true, ..Turn::new(TurnId(2), script.key.clone()) };
    script.ask_for(steal);
    let Action::Acquire(ask) = script.actions().remove(0) else { panic!("it asks") };
    assert_eq!(ask.way, Way::Steal);
    let told = events(script.answer([Outcome::NotCurrent { last_token: Token(300), stolen: true }]));
    let refused = |event: &Event| matches!(event, Event::Failed { turn: TurnId(2), .. });
    assert!(!told.iter().any(refused), "its theft was never done: {told:?}");
}

/// A theft that is refused because the holder would not learn of it. Whoever waits beside the thief can go on waiting.
#[test]
fn a_theft_that_is_refused_fails_nobody_who_only_waits() {
    let mut script = Script::new();
    script.queue(1, 100);
    let steal = Turn { steal: true, ..Turn::new(TurnId(2), script.key.clone()) };
    script.ask_for(steal);
    let unreadable = Unreadable::FormatTooNew { found: 2, known: 1 };
    let told = events(script.answer([Outcome::Unreadable(unreadable)]));
    assert!(told.contains(&Event::Failed { turn: TurnId(2), refusal: Refusal::Unreadable(unreadable) }));
    let innocent = |event: &Event| matches!(event, Event::Failed { turn: TurnId(1), .. });
    assert!(!told.iter().any(innocent), "{told:?}");
}

/// `LeaseRequest::info`: "A lease that lingers is not reused for a request with another `info`."
#[test]
fn a_lease_that_lingers_is_not_reused_under_the_name_of_an_attempt_that_failed() {
    let mut script = Script::new();
    script.machine = Machine::new(Config::parse(&Options { beacon: false, ..Options::default() }).unwrap(), ME);
    let turn = |id, info: &str, priority| Turn { info: info.into(), priority, ..Turn::new(TurnId(id), named("k")) };
    script.ask_for(turn(1, "report", 0));
    script.refuse();
    // It goes before the first, and asks in its own name.
    script.ask_for(turn(2, "backup", 5));
    let actions = script.until_sent();
    let Action::Acquire(ask) = &actions[0] else { panic!("it asks") };
    assert_eq!(ask.info, "backup", "so the store shows");
    script.answer([granted(64)]);
    script.input(Input::Cancel { turn: TurnId(1), slot: script.slot() });
    script.input(Input::Release { turn: TurnId(2), slot: script.slot() });
    let told = script.ask_for(turn(3, "report", 0));
    assert!(!is_granted(&told) || script.is_sent(), "the status shows \"backup\" for it: {told:?}");
}

/// `LeaseGuard::upgrade`: "UpgradeConflict if another holder that shares the key is already upgrading". Its own former
/// attempt, which was dropped, is no other holder.
#[test]
fn an_upgrade_that_was_dropped_conflicts_with_no_later_one_of_its_guard() {
    let mut script = Script::new();
    let slot = script.shares();
    script.input(Input::Upgrade { query: TurnId(10), turn: TurnId(1), slot: slot.clone() });
    script.answer([waiting(100, 1)]);
    script.input(Input::CancelUpgrade { query: TurnId(10), slot: slot.clone() });
    let told = events(script.input(Input::Upgrade { query: TurnId(11), turn: TurnId(1), slot }));
    let conflict = Event::Failed { turn: TurnId(11), refusal: Refusal::UpgradeConflict };
    assert!(!told.contains(&conflict), "nobody else shares this guard's lease: {told:?}");
}

fn tries_two_keys() -> (Script, [Slot; 2], u64) {
    let mut script = Script::new();
    let turns =
        [(1, "a"), (2, "b")].map(|(id, name)| Turn { alone: true, wait: false, ..Turn::new(TurnId(id), named(name)) });
    let slots = turns.each_ref().map(Turn::slot);
    script.input(Input::AcquireAll(turns.into()));
    let id = script.sent().0;
    (script, slots, id)
}

/// Whoever asked for both keys has gone by the time of the answer, which says that the session has ended.
#[test]
fn a_request_for_two_keys_that_nobody_wants_any_more_is_not_sent_again() {
    let (mut script, slots, id) = tries_two_keys();
    for (turn, slot) in [1, 2].into_iter().zip(slots) {
        script.input(Input::Cancel { turn: TurnId(turn), slot });
    }
    let mut sent = script.result(id, Ok(Reply { robbed: None, ..said([Outcome::NoSession]) }));
    for _ in 0..100 {
        sent.extend(script.tick(100).to_vec());
    }
    let asks = |action: &Action| matches!(action, Action::AcquireAll(_) | Action::Acquire(_));
    assert!(!sent_actions(&sent).iter().any(asks), "{sent:?}");
}

/// One of two requests of `lock_all` is dropped; before the other is, another thread brings the answer that the session ended.
#[test]
fn an_answer_between_the_cancellations_of_a_request_for_two_keys_is_no_bug() {
    let (mut script, slots, id) = tries_two_keys();
    script.input(Input::Cancel { turn: TurnId(1), slot: slots[0].clone() });
    script.result(id, Ok(Reply { robbed: None, ..said([Outcome::NoSession]) }));
    script.input(Input::Cancel { turn: TurnId(2), slot: slots[1].clone() });
    for _ in 0..100 {
        script.tick(100);
        assert!(!script.is_sent());
    }
}

/// Whoever gives a request up may not have heard of its grant.
#[test]
fn a_request_that_is_given_up_after_its_grant_is_given_back() {
    let mut script = Script::new();
    script.ask_for(Turn::new(TurnId(1), named("k")));
    script.answer([granted(64)]);
    script.input(Input::Cancel { turn: TurnId(1), slot: script.slot() });
    let told = events(script.answer([Outcome::Released]));
    let released = Event::Released { turn: TurnId(1), result: Ok(None) };
    assert!(told.contains(&released), "{told:?}");
}

/// Else its driver would keep what it knows of it for ever.
#[test]
fn a_request_that_is_given_up_after_its_grant_was_lost_is_told_to_have_ended() {
    let mut script = Script::new();
    script.ask_for(Turn::new(TurnId(1), named("k")));
    script.answer([granted(64)]);
    script.input(Input::Suspend { abandons: true });
    let told = events(script.input(Input::Cancel { turn: TurnId(1), slot: script.slot() }));
    assert_eq!(told, [Event::Released { turn: TurnId(1), result: Ok(Some(LostReason::Expired)) }]);
}

/// The signal of a grant that was heard of in another way comes while the lease is given back, and that transaction is refused.
#[test]
fn a_signal_that_comes_during_a_release_makes_no_loss_of_it() {
    let mut script = Script::holding();
    script.input(Input::Release { turn: TurnId(1), slot: script.slot() });
    let [Action::Release { request, .. }] = script.actions()[..] else { panic!("it is given back") };
    let (id, _) = script.sent();
    let mut told = events(script.signal(heir(request, 64)));
    told.extend(events(&script.result(id, Err(StoreError::transient("down")))));
    let mut is_held = true;
    for _ in 0..100 {
        if !script.is_sent() {
            told.extend(events(script.tick(10)));
            continue;
        }
        let outcomes = script.actions().into_iter().map(|action| match action {
            Action::Release { .. } if core::mem::take(&mut is_held) => Outcome::Released,
            Action::Release { .. } => Outcome::NotCurrent { last_token: Token(127), stolen: false },
            _ => Outcome::Withdrawn,
        });
        let outcomes: Vec<_> = outcomes.collect();
        told.extend(events(script.answer(outcomes)));
    }
    assert_eq!(told, [Event::Released { turn: TurnId(1), result: Ok(None) }]);
}

/// The record became unreadable while a request waits in its queue, and its next look finds out.
#[test]
fn who_waits_is_told_that_the_record_cannot_be_read_any_more() {
    let mut script = Script::new();
    script.queue(1, 100);
    script.tick(5_000);
    assert_eq!(script.actions(), [Action::Look]);
    let unreadable = Unreadable::FormatTooNew { found: 2, known: 1 };
    let told = events(script.answer([Outcome::Unreadable(unreadable)]));
    assert_eq!(told, [Event::Failed { turn: TurnId(1), refusal: Refusal::Unreadable(unreadable) }]);
}
