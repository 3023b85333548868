//! The session of a context: one row, one belief and one doubt for all that it holds.

use alloc::{vec, vec::Vec};

use super::{
    BELIEF_MS, LEASE_MS, ME, OTHER, STORE, Script, current, granted, heir, is_granted, is_lost, named, said, waiting,
};
use crate::machine::{
    Action, Body, Command, Ending, Event, Input, Key, LostReason, Outcome, Output, Peer, Reply, RequestId, SessionId,
    SessionStep, StoreError, StoreId, Token, Turn, TurnId,
};

fn held() -> Script {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    script
}

/// Holds two keys: turns 1 and 2.
fn held_twice() -> Script {
    let mut script = held();
    script.input(Input::Acquire(Turn::new(TurnId(2), Key::new("l").unwrap())));
    assert!(is_granted(script.answer([granted(128)])));
    script
}

fn lost(reason: LostReason) -> [Output; 2] {
    [1, 2].map(|turn| Output::Event(Event::Lost { turn: TurnId(turn), reason }))
}

impl Script {
    /// Holds a lease for a moment, and rests until the end of the session is sent.
    fn rest_after(&mut self, turn: u64) {
        self.acquire(turn, true);
        self.answer([granted(64 * turn)]);
        self.input(Input::Release { turn: TurnId(turn), slot: self.slot() });
        self.answer([Outcome::Released]);
        self.tick(10_000);
        assert_eq!(self.sent().1.step, SessionStep::Close);
    }
}

#[test]
fn s2_one_session_is_opened_by_the_first_request_and_later_ones_only_use_it() {
    let mut script = held();
    script.input(Input::Acquire(Turn::new(TurnId(2), Key::new("l").unwrap())));
    assert_eq!((script.sent().1.session, script.sent().1.step), (ME, SessionStep::Stay));
    let mut looks = Script::new();
    let key = looks.key.clone();
    looks.input(Input::Inspect { query: TurnId(1), key });
    assert_eq!(looks.sent().1.step, SessionStep::Stay, "a look needs none");
}

#[test]
fn one_small_heartbeat_is_sent_for_all_leases() {
    let mut script = held_twice();
    let (mut beats, mut last) = (0, 0);
    for _ in 0..60 {
        script.tick(500);
        if script.is_sent() {
            assert_eq!((script.actions(), script.sent().1.step == SessionStep::Stay), (vec![], false));
            assert!(script.beat().beat > last, "each has a larger number");
            (beats, last) = (beats + 1, script.beat().beat);
            script.answer([]);
        }
    }
    assert!((5..=8).contains(&beats), "{beats} heartbeats in 30 s");
}

#[test]
fn doubt_is_one_and_one_heartbeat_settles_it_for_all() {
    let mut script = held_twice();
    let told = script.signal(Body::Ended { holder: ME }).to_vec();
    for turn in [1, 2] {
        assert!(told.contains(&Output::Event(Event::Suspect { turn: TurnId(turn) })));
    }
    assert_eq!(script.actions(), []);
    let settled = script.answer([]).to_vec();
    assert_eq!(settled, [1, 2].map(|turn| Output::Event(Event::Certain { turn: TurnId(turn) })));
}

#[test]
fn s16_a_row_that_is_gone_has_ended_and_everything_with_it() {
    for (store, reason) in [(STORE, LostReason::Evicted), (StoreId(10), LostReason::StoreCleared)] {
        let mut script = held_twice();
        script.tick(5_000);
        let id = script.sent().0;
        let outputs = script.input(Input::Reply { id, result: Ok(Reply { store, robbed: None, ..said([]) }) }).to_vec();
        for loss in lost(reason) {
            assert!(outputs.contains(&loss), "{outputs:?}");
        }
        assert_eq!((script.remaining_ms(1), script.machine.session() == ME), (0, false));
        // What is asked for next opens another session; nothing of the old one is withdrawn from it.
        script.acquire(3, true);
        assert!(script.opens() && matches!(script.actions()[..], [Action::Acquire(_)]));
    }
}

#[test]
fn s8_an_answer_for_a_robbed_token_is_dropped_and_so_is_a_signal() {
    let mut script = Script::new();
    script.acquire(1, true);
    let robbed = |tokens: &[u64]| tokens.iter().map(|token| (Key::new("k").unwrap(), Token(*token))).collect();
    let id = script.sent().0;
    let reply = Reply { robbed: Some(robbed(&[64])), ..said([granted(64)]) };
    assert!(!is_granted(script.input(Input::Reply { id, result: Ok(reply) })));
    let [Action::Acquire(ask)] = &script.actions()[..] else { panic!("it asks again: {:?}", script.outputs) };
    let request = ask.request;
    assert!(request > RequestId(1));
    script.answer([waiting(127, 1)]);
    script.signal(Body::Stolen { holder: ME, token: Token(128) });
    assert!(!is_granted(script.signal(heir(request, 128))));
    assert!(is_granted(script.signal(heir(request, 192))), "another one is taken");
}

#[test]
fn s8_the_robbed_are_told_by_any_answer() {
    let mut script = held_twice();
    let key = Key::new("x").unwrap();
    script.input(Input::Inspect { query: TurnId(9), key });
    let id = script.sent().0;
    let status = Outcome::Status { last_token: Token(0), grants: vec![], queue: vec![], sessions: vec![] };
    let reply = Reply { robbed: Some(vec![(script.key.clone(), Token(64))]), ..said([status]) };
    let outputs = script.input(Input::Reply { id, result: Ok(reply) }).to_vec();
    let [stolen, other] = lost(LostReason::Stolen);
    assert!(outputs.contains(&stolen) && !outputs.contains(&other), "{outputs:?}");
}

#[test]
fn s10_an_idle_session_is_deleted_and_its_id_is_dead_once_that_is_sent() {
    let mut script = held();
    script.input(Input::Release { turn: TurnId(1), slot: script.slot() });
    script.answer([Outcome::Released]);
    assert_eq!(script.tick(9_999), []);
    script.tick(1);
    let (id, batch) = script.sent();
    assert_eq!((batch.session, batch.step), (ME, SessionStep::Close));
    assert_ne!(script.machine.session(), ME);
    // Nobody knows what became of it, and somebody asks.
    script.acquire(2, true);
    script.input(Input::Reply { id, result: Err(StoreError::unknown("no answer")) });
    let (_, batch) = script.sent();
    assert!(script.opens() && batch.session != ME);
    assert_eq!(batch.ends, [Ending { session: ME, beat: None }]);
    assert!(is_granted(script.answer([granted(64)])));
}

#[test]
fn s10_a_context_is_not_idle_as_long_as_a_request_is_under_way() {
    let mut script = held();
    script.input(Input::Release { turn: TurnId(1), slot: script.slot() });
    script.answer([Outcome::Released]);
    script.tick(9_000);
    script.acquire(2, true);
    for _ in 0..4 {
        script.tick(1_000);
        assert!(!script.is_sent(), "{:?}", script.outputs);
    }
    assert_eq!(script.machine.session(), ME);
    // Nobody waits here any more, and the store does not say what became of it.
    let slot = script.slot();
    script.input(Input::Cancel { turn: TurnId(2), slot });
    for _ in 0..75 {
        script.tick(200);
        script.refuse();
        assert_eq!(script.machine.session(), ME, "it is withdrawn first");
    }
}

/// Whatever failed long ago: three ends that failed once and then worked, hours before, and one that was given up.
#[test]
fn s10_a_close_that_fails_once_is_tried_again_however_many_failed_before() {
    let mut script = Script::new();
    for turn in 1..=4 {
        script.rest_after(turn);
        script.refuse();
        script.until_sent();
        assert_eq!(script.sent().1.ends.len(), 1, "it goes again, and works");
        let reply = Reply { robbed: None, ..said([]) };
        script.input(Input::Reply { id: script.sent().0, result: Ok(reply) });
        script.tick(3_600_000);
    }
    script.rest_after(5);
    while script.refuse().is_some() {
        script.tick(5_000);
    }
    script.rest_after(6);
    let session = script.sent().1.session;
    script.refuse();
    script.until_sent();
    assert_eq!(script.sent().1.ends, [Ending { session, beat: None }]);
}

/// The timer is late, and somebody asks at the very moment at which the session would go.
#[test]
fn s10_a_session_stays_for_a_request_that_comes_with_its_end() {
    let mut script = held();
    script.input(Input::Release { turn: TurnId(1), slot: script.slot() });
    script.answer([Outcome::Released]);
    assert_eq!(script.tick(9_999), []);
    script.now_ms += 1;
    script.acquire(2, true);
    let (_, batch) = script.sent();
    assert_eq!(batch.session, ME);
    assert!(batch.step != SessionStep::Close && batch.operations.len() == 1, "{batch:?}");
    assert!(is_granted(script.answer([granted(128)])));
}

#[test]
fn s11_the_floor_is_raised_only_after_a_transaction_without_an_answer_and_with_the_next_one() {
    let mut script = held();
    assert_eq!(script.sent_floors(3), [0, 0, 0]);
    script.input(Input::Acquire(Turn::new(TurnId(2), Key::new("l").unwrap())));
    let (late, _) = script.sent();
    let slot = Turn::new(TurnId(2), Key::new("l").unwrap()).slot();
    script.input(Input::Cancel { turn: TurnId(2), slot });
    script.lose_reply_of(late);
    let withdraw = Action::Withdraw { request: RequestId(2) };
    assert_eq!(script.actions(), [withdraw], "with the withdrawal, in one transaction");
    let (id, _) = script.sent();
    assert!(script.beat().floor > late && script.beat().floor <= id, "below is what was lost, and not what comes");
    script.answer([Outcome::Withdrawn]);
}

#[test]
fn s11_every_attempt_has_the_number_of_its_transaction() {
    let mut script = Script::new();
    script.acquire(1, true);
    for _ in 0..2 {
        let (id, _) = script.sent();
        assert!(matches!(&script.actions()[..], [Action::Acquire(ask)] if ask.attempt == id));
        script.refuse();
        while !script.is_sent() {
            script.tick(100);
        }
    }
}

#[test]
fn s13_a_lease_that_is_shortened_is_not_believed_longer_from_the_moment_that_is_sent() {
    let mut script = held();
    let verify = |query, span_ms| Input::Verify { query: TurnId(query), turn: TurnId(1), slot: held().slot(), span_ms };
    script.input(verify(7, 60_000));
    let long_ms = script.beat().lease_ms;
    assert!(long_ms - long_ms / 10 >= 60_000, "{long_ms}");
    script.answer([current()]);
    assert!(script.remaining_ms(1) >= 60_000);
    script.now_ms += 1_000;
    // Its user goes; the next one does not need to be so sure.
    script.acquire(2, true);
    script.input(Input::Release { turn: TurnId(1), slot: script.slot() });
    assert!(script.remaining_ms(2) > BELIEF_MS, "the row still says so");
    script.signal(Body::Ended { holder: ME });
    assert_eq!((script.beat().lease_ms, script.remaining_ms(2)), (LEASE_MS, 0));
    script.now_ms += 100;
    assert!(matches!(script.actions()[..], [Action::Verify { .. }]), "it went from task to task");
    script.answer([current()]);
    assert_eq!(script.remaining_ms(2), BELIEF_MS - 100);
}

#[test]
fn s3_peers_that_stood_still_since_the_opening_end_at_the_beat_that_was_seen() {
    let mut script = Script::new();
    script.acquire(1, true);
    let id = script.sent().0;
    script.now_ms += 500;
    let peers = vec![Peer { session: OTHER, beat: 5, lease_ms: LEASE_MS }];
    script.input(Input::Reply { id, result: Ok(Reply { peers, ..said([granted(64)]) }) });
    let ended_at = (0..400).find_map(|_| {
        script.tick(100);
        if !script.is_sent() {
            // Any transaction will do.
            let key = script.key.clone();
            script.input(Input::Inspect { query: TurnId(9), key });
        }
        let (_, batch) = script.sent();
        let outcomes: Vec<_> = batch.operations.iter().map(|_| Outcome::Withdrawn).collect();
        script.answer(outcomes);
        (!batch.ends.is_empty()).then_some((batch.ends, script.now_ms))
    });
    let (ends, at) = ended_at.expect("nobody else ends them");
    assert_eq!(ends, [Ending { session: OTHER, beat: Some(5) }]);
    assert_eq!(at, 1_500 + 22_000, "a whole lease and a margin after it was read");
}

/// A context that is a few seconds old holds one key and waits for another: no clock jumped, nothing came late.
#[test]
fn a_young_lease_is_not_in_doubt_because_of_an_older_wait() {
    let mut script = held();
    script.input(Input::Acquire(Turn::new(TurnId(2), Key::new("l").unwrap())));
    script.answer([waiting(100, 1)]);
    for _ in 0..20 {
        script.tick(1_000);
        assert!(
            !script.outputs.contains(&Output::Event(Event::Suspect { turn: TurnId(1) })) && !is_lost(&script.outputs)
        );
        if script.is_sent() {
            let outcomes: Vec<_> = script.actions().iter().map(|_| super::looked(RequestId(2), 100, 1)).collect();
            script.answer(outcomes);
        }
        assert!(script.remaining_ms(1) > 0);
    }
}

impl Script {
    /// The floors of the next heartbeats.
    fn sent_floors(&mut self, count: usize) -> Vec<u64> {
        let mut floors = Vec::new();
        while floors.len() < count {
            self.tick(500);
            if self.is_sent() {
                floors.push(self.beat().floor);
                self.answer([]);
            }
        }
        floors
    }
}

#[test]
fn each_context_has_ids_of_its_own() {
    let mut ids: Vec<SessionId> = Vec::new();
    let mut script = Script::new();
    for _ in 0..5 {
        let slot = script.slot();
        script.acquire(1, true);
        script.answer([granted(64)]);
        ids.push(script.machine.session());
        ids.push(script.machine.parcel(TurnId(1), &slot).unwrap().from);
        ids.push(script.machine.parcel(TurnId(1), &slot).unwrap().from);
        script.input(Input::Suspend { abandons: true });
        script.input(Input::Wake);
    }
    let drawn = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), drawn);
}

#[test]
fn a_request_that_waited_to_be_sent_when_its_session_was_lost_is_sent_once() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    script.ask_for(Turn::new(TurnId(2), named("a")));
    let (id, _) = script.sent();
    script.ask_for(Turn::new(TurnId(3), named("b")));
    script.result(id, Ok(Reply { robbed: None, ..said([Outcome::NoSession]) }));
    assert!(script.opens());
    let (_, batch) = script.sent();
    let asked: Vec<_> = batch.operations.iter().filter(|operation| operation.key == named("b")).collect();
    assert_eq!(asked.len(), 1, "{asked:?}");
}

/// The sessions that the store is to delete without an answer.
fn abandoned(outputs: &[Output]) -> Vec<SessionId> {
    let session = |output: &Output| match output {
        Output::Command(Command::Abandon(session)) => Some(*session),
        _ => None,
    };
    outputs.iter().filter_map(session).collect()
}

/// Somebody's transaction keeps the row locked, say: a delete that waits in the store comes after it.
#[test]
fn s10_a_session_that_no_transaction_could_end_is_abandoned() {
    let mut script = held();
    let session = script.machine.session();
    script.input(Input::Close);
    let mut refused = 0;
    while script.refuse().is_some() {
        refused += 1;
        let closed = script.outputs.contains(&Output::Event(Event::Closed));
        assert_eq!(abandoned(&script.outputs), [session][..usize::from(closed)]);
        if closed {
            return assert!(refused > 1, "it tries again first");
        }
        script.until_sent();
    }
    panic!("{:?}", script.outputs);
}

/// The store does not answer the end of the session, or what was under way before it.
#[test]
fn s10_a_forced_close_abandons_the_session() {
    for is_under_way in [false, true] {
        let mut script = held();
        let (session, since) = (script.machine.session(), script.now_ms);
        if is_under_way {
            let slot = script.slot();
            script.input(Input::Verify { query: TurnId(7), turn: TurnId(1), slot, span_ms: 0 });
        }
        script.input(Input::Close);
        let mut outputs = Vec::new();
        while !outputs.contains(&Output::Event(Event::Closed)) {
            outputs.extend_from_slice(script.tick(10));
        }
        assert_eq!(abandoned(&outputs), [session]);
        assert!(script.now_ms - since < 10_000, "it leaves time to close the store");
    }
}

/// Whoever has the parts of such a lease may still resume it, although the store did not answer that it had left the session.
#[test]
fn s10_a_forced_close_with_a_detached_lease_abandons_no_session() {
    let mut script = held();
    let (slot, to) = (script.slot(), SessionId(99));
    script.input(Input::Detach { turn: TurnId(1), slot, to });
    script.input(Input::Close);
    let mut outputs = Vec::new();
    while !outputs.contains(&Output::Event(Event::Closed)) {
        outputs.extend_from_slice(script.tick(10));
    }
    let closes = |output: &Output| matches!(output, Output::Command(Command::Store { batch, .. }) if batch.step == SessionStep::Close);
    assert!(abandoned(&outputs).is_empty() && !outputs.iter().any(closes), "{outputs:?}");
}

/// A detached lease of an earlier session does not matter to a later one.
#[test]
fn s10_a_forced_close_abandons_the_session_although_an_earlier_one_had_a_detached_lease() {
    let mut script = held();
    let slot = script.slot();
    script.input(Input::Verify { query: TurnId(7), turn: TurnId(1), slot: slot.clone(), span_ms: 0 });
    let id = script.sent().0;
    script.input(Input::Detach { turn: TurnId(1), slot, to: SessionId(99) });
    script.result(id, Ok(Reply { robbed: None, ..said([Outcome::NoSession]) }));
    script.ask_for(Turn::new(TurnId(2), named("b")));
    script.until_sent();
    script.answer([granted(640)]);
    let session = script.machine.session();
    let mut outputs = script.input(Input::Close).to_vec();
    while !outputs.contains(&Output::Event(Event::Closed)) {
        outputs.extend_from_slice(script.tick(10));
    }
    assert_eq!(abandoned(&outputs), [session]);
}
