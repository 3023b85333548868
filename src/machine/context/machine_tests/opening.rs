//! The opening of a session: what nobody knows of it leaves nothing behind, and nobody believes in it.

use alloc::{vec, vec::Vec};

use super::{BELIEF_MS, ME, Script, granted, heir, is_granted, waiting};
use crate::machine::{Action, Ending, Input, RequestId, SessionId, StoreError, Turn, TurnId};

#[test]
fn s16_nothing_is_believed_before_the_opening_is_confirmed() {
    let mut script = Script::new();
    script.acquire(1, true);
    let (id, batch) = script.sent();
    assert!(script.opens() && batch.session == ME);
    script.now_ms += 3_000;
    assert!(!is_granted(script.signal(heir(RequestId(1), 101))));
    assert_eq!(script.remaining_ms(1), 0);
    assert!(is_granted(script.reply(id, [waiting(64, 1)])), "an answer from before the grant");
    assert_eq!(script.remaining_ms(1), BELIEF_MS - 3_000, "from before it was sent");
}

#[test]
fn s1_an_opening_of_which_nobody_knows_is_tried_again_under_another_id_that_ends_the_first() {
    let mut script = Script::new();
    script.acquire(1, true);
    let mut ids = vec![script.sent().1.session];
    for _ in 0..2 {
        script.lose_reply();
        while !(script.is_sent() && script.opens()) {
            if script.is_sent() {
                // The earlier id may be ended before.
                script.answer([]);
            }
            script.tick(100);
        }
        let (_, batch) = script.sent();
        assert!(!ids.contains(&batch.session), "no id is inserted twice");
        ids.push(batch.session);
    }
    assert!(is_granted(script.answer([granted(64)])));
    assert_eq!(ids.iter().map(|id| id.0 & 0xff).collect::<Vec<_>>(), [1, 1, 1]);
}

#[test]
fn s1_the_earlier_id_ends_with_the_next_attempt_whatever_its_beat_is_and_again_if_that_fails() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.lose_reply();
    let ending = Ending { session: ME, beat: None };
    while !script.is_sent() {
        script.tick(10);
    }
    assert_eq!(script.sent().1.ends, [ending]);
    script.refuse();
    let again = (0..100).any(|_| {
        script.tick(100);
        script.is_sent() && script.sent().1.ends == [ending]
    });
    assert!(again, "it blocks everybody for a lease");
}

impl Script {
    /// A request whose openings are all sent and never answered: the sessions that may be there now.
    fn lose_openings(&mut self, count: usize) -> Vec<SessionId> {
        let limit = self.now().monotonic.plus(3_600_000);
        self.ask_for(Turn { deadline: Some(limit), ..Turn::new(TurnId(1), self.key.clone()) });
        let mut opened = Vec::new();
        while opened.len() < count {
            self.until_sent();
            assert!(self.opens());
            opened.push(self.sent().1.session);
            self.lose_reply();
        }
        opened
    }
}

/// Any of them may be the one that was applied, and then the request would wait for a lease behind itself.
#[test]
fn s1_no_earlier_id_is_forgotten_however_many_openings_fail() {
    let mut script = Script::new();
    let opened = script.lose_openings(10);
    script.until_sent();
    let mut ended: Vec<_> = script.sent().1.ends.iter().map(|ending| ending.session).collect();
    ended.reverse();
    assert_eq!(ended, opened);
    script.answer([granted(64)]);
    script.until_sent();
    assert_eq!(script.sent().1.ends, [], "once");
}

/// A store that is gone for an hour must not be asked for ever more. Those that were sent last may be applied last.
#[test]
fn s1_after_many_openings_that_failed_the_latest_ids_end() {
    let mut script = Script::new();
    let opened = script.lose_openings(100);
    script.until_sent();
    let ends = script.sent().1.ends;
    assert!(ends.len() < 80, "{} sessions", ends.len());
    for (ending, session) in ends.iter().zip(opened.iter().rev()) {
        assert_eq!(ending.session, *session);
    }
}

/// Where nobody asks any more, nothing takes them along.
#[test]
fn s1_what_nobody_knows_of_is_ended_some_times_after_its_request_has_gone() {
    let mut script = Script::new();
    script.lose_openings(6);
    script.input(Input::Cancel { turn: TurnId(1), slot: script.slot() });
    let mut tries = 0;
    for _ in 0..6_000 {
        tries += usize::from(script.is_sent());
        if script.refuse().is_none() {
            script.tick(100);
        }
    }
    assert!((1..=4).contains(&tries), "{tries} transactions");
}

#[test]
fn s1_an_opening_that_was_refused_is_repeated_as_it_is() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.refuse();
    while !script.is_sent() {
        script.tick(100);
    }
    let (_, batch) = script.sent();
    assert!(script.opens() && batch.session == ME && batch.ends.is_empty());
}

/// It came out of a queue by a signal that was faster than the answer, and the answer never came.
#[test]
fn s16_a_grant_goes_with_a_session_of_which_nobody_knows_whether_it_was_opened() {
    let mut script = Script::new();
    script.acquire(1, true);
    let (id, _) = script.sent();
    assert!(!is_granted(script.signal(heir(RequestId(1), 101))), "the session is not confirmed");
    script.lose_reply_of(id);
    let mut turns = 1;
    for _ in 0..100 {
        script.tick(100);
        if !script.is_sent() {
            continue;
        }
        let (id, batch) = script.sent();
        if script.opens() {
            assert_ne!(batch.session, ME);
            assert!(matches!(script.actions()[..], [Action::Acquire(_)]), "it asks again");
            return assert!(is_granted(script.reply(id, [granted(256)])));
        }
        script.reply(id, []);
        turns += 1;
    }
    panic!("the request waits for ever, after {turns} transactions");
}

/// A session with a row keeps what stands in the record for it until it is withdrawn.
#[test]
fn s11_who_goes_while_the_session_is_opened_leaves_neither_place_nor_grant() {
    for answer in [granted(64), waiting(100, 1)] {
        let mut script = Script::new();
        script.acquire(1, true);
        let (id, _) = script.sent();
        script.input(Input::Cancel { turn: TurnId(1), slot: script.slot() });
        assert!(!is_granted(script.reply(id, [answer])));
        assert_eq!(script.actions(), [Action::Withdraw { request: RequestId(1) }]);
    }
    // Of an opening that was refused, nothing is left to withdraw.
    let mut script = Script::new();
    script.acquire(1, true);
    let (id, _) = script.sent();
    script.input(Input::Cancel { turn: TurnId(1), slot: script.slot() });
    script.input(Input::Reply { id, result: Err(StoreError::transient("down")) });
    for _ in 0..100 {
        assert_eq!(script.tick(90), []);
    }
}
