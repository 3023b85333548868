//! A release goes before a request for the same key, whatever has failed, and whatever is locked.

use alloc::vec::Vec;

use super::{
    named,
    served::{Served, slot},
};
use crate::machine::{Batch, Input, Key, Mode, StoreError, Turn, TurnId};

fn transient() -> StoreError {
    StoreError::transient("down")
}

fn locked() -> StoreError {
    StoreError::locked("kept locked")
}

impl Served {
    fn hold(key: &str) -> Self {
        let mut served = Self::new();
        served.ask(Turn::new(TurnId(1), named(key)));
        served.serve();
        served
    }

    fn release(&mut self, key: &str) {
        self.input(Input::Release { turn: TurnId(1), slot: slot(key, Mode::Exclusive) });
    }

    fn fail(&mut self, error: StoreError) {
        let id = self.script.sent().0;
        self.input(Input::Reply { id, result: Err(error) });
    }

    /// Sends something else, whose answer takes time.
    fn begin_another(&mut self) -> (u64, Batch) {
        self.ask(Turn::new(TurnId(9), named("z")));
        self.script.sent()
    }

    /// Answers it only when the failed operations are due again.
    fn end_another(&mut self, (id, batch): (u64, Batch)) {
        self.script.tick(100);
        let reply = self.apply(&batch);
        self.input(Input::Reply { id, result: Ok(reply) });
        self.serve();
        self.pass(1_000);
    }

    fn try_all(&mut self, keys: [&str; 2]) {
        let tries = |(id, key): (u64, Key)| Turn { alone: true, wait: false, ..Turn::new(TurnId(id), key) };
        let turns: Vec<_> = (2..).zip(keys.map(named)).map(tries).collect();
        self.input(Input::AcquireAll(turns));
    }
}

#[test]
fn a_try_does_not_find_its_key_taken_by_a_lease_whose_release_failed() {
    let mut served = Served::hold("k");
    served.release("k");
    served.fail(transient());
    let another = served.begin_another();
    served.ask(Turn { wait: false, ..Turn::new(TurnId(2), named("k")) });
    served.end_another(another);
    assert!(served.is_granted(2), "{:?}", served.told);
}

#[test]
fn a_try_for_several_keys_does_not_find_one_taken_by_a_lease_whose_release_failed() {
    for error in [transient(), locked()] {
        let mut served = Served::hold("k");
        served.release("k");
        served.fail(error);
        let another = served.begin_another();
        served.try_all(["j", "k"]);
        served.end_another(another);
        assert!(served.is_granted(2) && served.is_granted(3), "{:?}", served.told);
    }
}

/// The request is sent separately, because another of its keys was found locked.
#[test]
fn a_try_for_several_keys_of_which_one_is_locked_goes_after_the_release_of_another() {
    let mut served = Served::hold("j");
    served.input(Input::Inspect { query: TurnId(8), key: named("k") });
    served.fail(locked());
    let another = served.begin_another();
    served.release("j");
    served.try_all(["j", "k"]);
    served.end_another(another);
    assert!(served.is_granted(2) && served.is_granted(3), "{:?}", served.told);
}

/// The first opening is carried out late, and grants the key to a session that nobody uses any more.
#[test]
fn an_earlier_session_is_not_forgotten_however_long_a_key_stays_locked() {
    let mut served = Served::new();
    served.ask(Turn::new(TurnId(1), named("k")));
    let (first, late) = served.script.sent();
    served.ask(Turn::new(TurnId(9), named("z")));
    served.script.tick(5_000);
    let (second, batch) = served.script.sent();
    let reply = served.apply(&batch);
    served.input(Input::Reply { id: second, result: Ok(reply) });
    let reply = served.apply(&late);
    served.input(Input::Reply { id: first, result: Ok(reply) });
    for _ in 0..5 {
        served.until_sent();
        served.fail(locked());
    }
    served.pass(4_000);
    assert!(served.is_granted(1), "{:?}", served.told);
}
