//! What a store finds too large, and keys to be forgotten: neither costs a context anything else.

use alloc::{format, vec::Vec};

use super::{Script, current, granted, named, said, taken};
use crate::machine::{
    Action, Applied, Batch, Ending, Event, Input, Key, Outcome, Output, RequestId, SessionId, SessionStep, Slot,
    StoreError, StoreErrorKind, Token, Turn, TurnId,
};

fn too_large() -> StoreError {
    StoreError::permanent(StoreErrorKind::TooLarge, "so many rows are too many")
}

fn open(key: &Key) -> Slot {
    Slot::of_key(key.clone())
}

fn numbered(count: u64) -> Vec<Key> {
    (0..count).map(|number| named(&format!("key {number}"))).collect()
}

impl Script {
    /// Answers all that is sent as a store does that grants everything, or refuses it; what was sent.
    fn serve(&mut self, refuses: impl Fn(&Batch) -> Option<StoreError>) -> Vec<Batch> {
        let (mut sent, mut token) = (Vec::new(), self.now_ms << 10);
        while self.is_sent() {
            let (id, batch) = self.sent();
            let outcomes = batch.operations.iter().map(|operation| match operation.action {
                Action::Acquire(_) => {
                    token += 64;
                    granted(token)
                }
                Action::Release { .. } => Outcome::Released,
                Action::Verify { .. } => current(),
                _ => Outcome::Withdrawn,
            });
            let outcomes: Vec<_> = outcomes.collect();
            self.result(id, refuses(&batch).map_or_else(|| Ok(said(outcomes)), Err));
            sent.push(batch);
        }
        sent
    }

    fn hold(&mut self, turn: u64, key: &Key) {
        self.ask_for(Turn::new(TurnId(turn), key.clone()));
        self.serve(|_| None);
    }

    fn let_go(&mut self, turn: u64, key: &Key) -> Vec<Batch> {
        self.input(Input::Release { turn: TurnId(turn), slot: open(key) });
        self.serve(|_| None)
    }
}

#[test]
fn what_cannot_be_divided_costs_no_lease_although_a_heartbeat_went_along() {
    let mut script = Script::new();
    let (mine, large) = (named("mine"), named("large"));
    script.hold(1, &mine);
    script.tick(4_000);
    script.ask_for(Turn::new(TurnId(2), named("other")));
    let (id, _) = script.sent();
    script.tick(1_100);
    script.ask_for(Turn::new(TurnId(3), large.clone()));
    let refuses = |batch: &Batch| batch.operations.iter().any(|operation| operation.key == large).then(too_large);
    script.reply(id, [granted(9_000 << 10)]);
    assert!(script.sent().1.beat().is_some(), "the heartbeat is due");
    script.serve(refuses);
    for _ in 0..100 {
        script.tick(100);
        script.serve(refuses);
    }
    assert!(script.machine.remaining_ms(TurnId(1), &open(&mine), script.now()) > 0);
}

#[test]
fn a_key_to_be_forgotten_that_somebody_keeps_locked_costs_no_lease() {
    let mut script = Script::new();
    for (turn, key) in (1..).zip(&numbered(260)) {
        script.hold(turn, key);
        script.input(Input::Release { turn: TurnId(turn), slot: open(key) });
        script.serve(|batch| batch.forgets.first().map(|_| StoreError::transient("the key is locked")));
    }
    let mine = named("mine");
    let refuses = |batch: &Batch| batch.forgets.first().map(|_| StoreError::transient("the key is locked"));
    script.ask_for(Turn::new(TurnId(1_000), mine.clone()));
    for _ in 0..600 {
        script.serve(refuses);
        script.tick(100);
    }
    assert!(script.machine.remaining_ms(TurnId(1_000), &open(&mine), script.now()) > 0);
}

#[test]
fn who_looks_at_held_keys_again_and_again_fills_no_memory() {
    let mut script = Script::new();
    let keys = numbered(300);
    for (turn, key) in (1..).zip(&keys) {
        script.hold(turn, key);
    }
    for _ in 0..50 {
        for key in &keys {
            script.input(Input::ClearChanged { key: key.clone() });
        }
    }
    let mut forgotten = Vec::new();
    for (turn, key) in (1..).zip(&keys) {
        forgotten.extend(script.let_go(turn, key).into_iter().flat_map(|batch| batch.forgets));
    }
    assert!((44..600).contains(&forgotten.len()), "{} for 300 keys", forgotten.len());
}

#[test]
fn a_session_that_may_stand_in_the_way_ends_before_what_it_would_keep_waiting() {
    let mut script = Script::new();
    let keys = numbered(12);
    script.ask_for(Turn::new(TurnId(1), keys[0].clone()));
    let (id, _) = script.sent();
    for (turn, key) in (2..).zip(&keys[1..5]) {
        script.ask_for(Turn::new(TurnId(turn), key.clone()));
    }
    // It takes two at once.
    script.reply(id, [granted(1 << 20)]);
    script.serve(|batch| (batch.operations.len() > 2).then(too_large));
    for (turn, key) in (1..).zip(&keys[..5]) {
        script.let_go(turn, key);
    }
    script.tick(10_000);
    script.serve(|_| None);
    // Nobody knows whether the next session was opened.
    script.ask_for(Turn::new(TurnId(11), keys[0].clone()));
    assert!(script.opens());
    let (id, lost) = script.sent();
    for (turn, key) in (12..).zip(&keys[1..]) {
        script.ask_for(Turn::new(TurnId(turn), key.clone()));
    }
    script.lose_reply_of(id);
    let mut ended = Vec::new();
    let mut asked = false;
    for _ in 0..50 {
        if !script.is_sent() {
            script.tick(100);
            continue;
        }
        let (id, batch) = script.sent();
        ended.extend(batch.ends.iter().copied());
        if batch.operations.iter().any(|operation| operation.key == keys[0]) {
            assert_eq!(ended, [Ending { session: lost.session, beat: None }], "before the key is asked for again");
            asked = true;
        }
        script.now_ms += 100;
        let outcomes: Vec<_> = (0..batch.operations.len() as u64).map(|n| granted((script.now_ms + n) << 10)).collect();
        script.reply(id, outcomes);
    }
    assert!(asked);
}

#[test]
fn what_a_store_refused_for_good_takes_nothing_along_that_would_fail_with_it() {
    let mut script = Script::new();
    let (cursed, keys) = (named("cursed"), numbered(257));
    let releases = |batch: &Batch| {
        batch.operations.iter().any(|one| one.key == cursed && matches!(one.action, Action::Release { .. }))
    };
    let refuses = |batch: &Batch| {
        releases(batch).then(|| StoreError::permanent(StoreErrorKind::Unavailable, "this key is cursed"))
    };
    script.hold(1_000, &cursed);
    script.input(Input::Release { turn: TurnId(1_000), slot: open(&cursed) });
    script.serve(refuses);
    for (turn, key) in (1..).zip(&keys) {
        script.hold(turn, key);
        if turn < 257 {
            script.let_go(turn, key);
        }
    }
    // With the last one, a key is to be forgotten.
    let mut refused = 0;
    for _ in 0..100 {
        script.tick(100);
        for batch in script.serve(refuses) {
            assert!(!releases(&batch) || (batch.ends.is_empty() && batch.forgets.is_empty()), "{batch:?}");
            refused += usize::from(releases(&batch));
        }
    }
    assert!(refused > 1, "it was tried again");
}

#[test]
fn sessions_that_end_before_ones_own_is_opened_end_once() {
    let mut script = Script::new();
    let key = named("taken");
    let tries = |turn| Turn { wait: false, ..Turn::new(TurnId(turn), key.clone()) };
    let ahead = (10..18).map(|other| taken(SessionId(other), u64::try_from(other).unwrap() * 64, RequestId(7)));
    let ahead: Vec<_> = ahead.collect();
    script.ask_for(tries(1));
    let (id, _) = script.sent();
    script.ask_for(Turn::new(TurnId(2), named("a")));
    script.ask_for(Turn::new(TurnId(3), named("b")));
    script.ask_for(Turn::new(TurnId(4), named("c")));
    script.reply(id, [Outcome::Busy { ahead: ahead.clone() }]);
    script.serve(|batch| (batch.operations.len() > 2).then(too_large));
    script.tick(50);
    let (id, _) = script.sent();
    script.reply(id, [Outcome::Busy { ahead: ahead.clone() }]);
    for (turn, name) in [(2, "a"), (3, "b"), (4, "c")] {
        script.let_go(turn, &named(name));
    }
    while script.machine.session.is_open() {
        script.tick(1_000);
        script.serve(|_| None);
    }
    script.tick(60_000);
    script.ask_for(tries(5));
    let mut ends = 0;
    while script.is_sent() {
        let (id, batch) = script.sent();
        ends += batch.operations.iter().filter(|one| matches!(one.action, Action::End { .. })).count();
        let outcomes = batch.operations.iter().map(|one| match one.action {
            Action::End { .. } => Outcome::Ended,
            _ => granted(1 << 20),
        });
        let mut reply = said(outcomes.collect::<Vec<_>>());
        reply.robbed = reply.robbed.filter(|_| matches!(batch.step, SessionStep::Open { .. }));
        script.result(id, Ok(reply));
    }
    assert!(script.machine.remaining_ms(TurnId(5), &open(&key), script.now()) > 0);
    assert_eq!(ends, 8, "each once");
}

#[test]
fn a_heartbeat_that_is_sent_alone_touches_no_key() {
    let mut script = Script::new();
    let keys = numbered(258);
    for (turn, key) in (1..).zip(&keys[..256]) {
        script.hold(turn, key);
        if turn < 256 {
            script.let_go(turn, key);
        }
    }
    script.until_sent();
    let (beat, _) = script.sent();
    script.ask_for(Turn::new(TurnId(1_000), keys[256].clone()));
    script.result(beat, Err(StoreError::transient("a key is locked")));
    let (asked, _) = script.sent();
    script.tick(200);
    script.ask_for(Turn::new(TurnId(1_001), keys[257].clone()));
    // With this grant, the first key is to be forgotten.
    script.reply(asked, [granted(script.now_ms << 11)]);
    let (id, alone) = script.sent();
    assert!(alone.beat().is_some() && alone.operations.is_empty() && alone.forgets.is_empty(), "{alone:?}");
    script.reply(id, []);
    assert_eq!(script.sent().1.forgets, [keys[0].clone()]);
}

#[test]
fn a_theft_that_was_too_large_was_not_tried() {
    let mut script = Script::new();
    script.ask_for(Turn::new(TurnId(1), named("a")));
    let (id, _) = script.sent();
    script.ask_for(Turn { steal: true, ..Turn::new(TurnId(2), named("b")) });
    script.ask_for(Turn::new(TurnId(3), named("c")));
    script.reply(id, [granted(1 << 20)]);
    let (id, _) = script.sent();
    script.result(id, Err(too_large()));
    let (id, divided) = script.sent();
    assert_eq!(divided.operations.len(), 1);
    // A thief that had been granted the key would have been robbed of it.
    let told = script.reply(id, [Outcome::NotCurrent { last_token: Token(64), stolen: true }]);
    assert!(!told.iter().any(|output| matches!(output, Output::Event(Event::Failed { .. }))), "{told:?}");
}

#[test]
fn what_a_store_takes_is_tried_again_as_more_and_more() {
    let mut script = Script::new();
    let keys = numbered(40);
    script.ask_for(Turn::new(TurnId(1), keys[0].clone()));
    let (id, _) = script.sent();
    for (turn, key) in (2..).zip(&keys[1..]) {
        script.ask_for(Turn::new(TurnId(turn), key.clone()));
    }
    script.reply(id, [granted(1 << 20)]);
    let sent = script.serve(|batch| (batch.operations.len() > 8).then(too_large));
    let taken: Vec<_> = sent.iter().map(|batch| batch.operations.len()).filter(|count| *count <= 8).collect();
    assert_eq!(taken.iter().sum::<usize>(), 39);
    assert!(taken[0] < 8 && taken.contains(&8), "{taken:?}");
}

#[test]
fn what_a_closing_session_gave_back_is_not_given_back_again_if_that_was_too_large() {
    let mut script = Script::new();
    for (turn, key) in (1..).zip(&numbered(3)) {
        script.hold(turn, key);
    }
    script.input(Input::Close);
    let (id, batch) = script.sent();
    assert_eq!((batch.operations.len(), &batch.step), (3, &SessionStep::Close));
    script.result(id, Err(too_large()));
    script.until_sent();
    let (_, end) = script.sent();
    assert_eq!((end.operations.len(), end.ends), (0, [Ending { session: batch.session, beat: None }].into()));
}

#[test]
fn a_heartbeat_that_went_along_with_too_much_goes_next_and_by_itself() {
    let mut script = Script::new();
    script.hold(1, &named("mine"));
    script.tick(4_000);
    script.ask_for(Turn::new(TurnId(2), named("a")));
    let (id, _) = script.sent();
    script.tick(1_100);
    script.ask_for(Turn::new(TurnId(3), named("b")));
    script.ask_for(Turn::new(TurnId(4), named("c")));
    script.reply(id, [granted(9_000 << 10)]);
    let (id, batch) = script.sent();
    assert!(batch.beat().is_some() && batch.operations.len() == 2, "{batch:?}");
    script.result(id, Err(too_large()));
    let (_, next) = script.sent();
    assert!(next.beat().is_some() && next.operations.is_empty(), "{next:?}");
}

#[test]
fn what_may_have_been_applied_is_not_divided() {
    let mut script = Script::new();
    script.hold(1, &named("mine"));
    script.ask_for(Turn::new(TurnId(2), named("a")));
    let (id, _) = script.sent();
    script.ask_for(Turn::new(TurnId(3), named("b")));
    script.ask_for(Turn::new(TurnId(4), named("c")));
    script.reply(id, [granted(9_000 << 10)]);
    let (id, _) = script.sent();
    script.result(id, Err(StoreError { applied: Applied::Unknown, ..too_large() }));
    let withdrawn = script.actions().iter().all(|action| matches!(action, Action::Withdraw { .. }));
    assert!(withdrawn, "what may stand there is taken back: {:?}", script.actions());
}

#[test]
fn a_suspension_does_not_forget_how_much_a_store_takes() {
    let mut script = Script::new();
    let keys = numbered(9);
    for (turn, key) in (1..).zip(&keys) {
        script.ask_for(Turn::new(TurnId(turn), key.clone()));
    }
    script.reply(1, [granted(1 << 20)]);
    let (id, _) = script.sent();
    script.result(id, Err(too_large()));
    assert_eq!(script.sent().1.operations.len(), 4);
    script.input(Input::Suspend { abandons: true });
    script.input(Input::Wake);
    assert!(script.sent().1.operations.len() <= 4, "{:?}", script.sent());
}

#[test]
fn a_key_that_is_remembered_again_is_not_forgotten() {
    let mut script = Script::new();
    let keys = numbered(257);
    for (turn, key) in (1..).zip(&keys) {
        script.hold(turn, key);
        if turn < 257 {
            script.let_go(turn, key);
        }
    }
    script.input(Input::ClearChanged { key: keys[0].clone() });
    script.ask_for(Turn::new(TurnId(1_000), named("another")));
    assert_eq!(script.sent().1.forgets, [keys[1].clone()]);
}
