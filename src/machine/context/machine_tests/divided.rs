//! What a store finds too large, and keys to be forgotten: neither costs a context anything else.

use alloc::{format, vec::Vec};

use super::{Script, current, granted, named, said};
use crate::machine::{
    Action, Batch, Ending, Input, Key, Mode, Outcome, Slot, StoreError, StoreErrorKind, Turn, TurnId,
};

fn too_large() -> StoreError {
    StoreError::permanent(StoreErrorKind::TooLarge, "so many rows are too many")
}

fn open(key: &Key) -> Slot {
    Slot { key: key.clone(), mode: Mode::Exclusive, own: None }
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
