//! A thief steals once: whoever is granted the key after it keeps the lease.

use alloc::vec::Vec;

use super::{BELIEF_MS, ME, Script, events, granted, said, waiting};
use crate::machine::{
    Action, Body, Command, Event, Input, Outcome, Output, Refusal, Reply, StoreError, Token, Turn, TurnId, Way,
};

fn thief(script: &Script, id: u64) -> Turn {
    Turn { steal: true, ..Turn::new(TurnId(id), script.key.clone()) }
}

fn refusals(outputs: &[Output], turn: u64) -> Vec<Refusal> {
    let refusal = |event: &Event| match event {
        Event::Failed { turn: told, refusal } if *told == TurnId(turn) => Some(refusal.clone()),
        _ => None,
    };
    events(outputs).iter().filter_map(refusal).collect()
}

/// The answer that the session is gone.
fn evicted() -> Reply {
    Reply { robbed: None, ..said([]) }
}

fn steals(output: &Output) -> bool {
    let Output::Command(Command::Store { batch, .. }) = output else { return false };
    batch.operations.iter().any(|operation| matches!(&operation.action, Action::Acquire(ask) if ask.way == Way::Steal))
}

impl Script {
    /// The theft is granted when the session is no longer believed, so that no guard is made.
    fn stole_in_doubt(&mut self) {
        self.ask_for(thief(self, 1));
        self.now_ms += BELIEF_MS + 1;
        self.answer([granted(64)]);
    }

    /// All that happens in a few seconds, and whether the thief was told once and steals no more.
    fn steals_no_more(&mut self, mut outputs: Vec<Output>) {
        for _ in 0..300 {
            outputs.extend_from_slice(self.tick(10));
        }
        assert!(!outputs.iter().any(steals), "{outputs:?}");
        assert_eq!(refusals(&outputs, 1).len(), 1, "{outputs:?}");
    }
}

#[test]
fn a_thief_that_was_granted_the_lease_in_doubt_and_evicted_does_not_steal_again() {
    let mut script = Script::new();
    script.stole_in_doubt();
    while !script.is_sent() {
        script.tick(10);
    }
    let id = script.sent().0;
    let outputs = script.result(id, Ok(evicted()));
    script.steals_no_more(outputs);
}

#[test]
fn a_thief_that_was_granted_the_lease_in_doubt_and_suspended_does_not_steal_again() {
    let mut script = Script::new();
    script.stole_in_doubt();
    let mut outputs = script.input(Input::Suspend { abandons: true }).to_vec();
    script.now_ms += 60_000;
    outputs.extend_from_slice(script.input(Input::Wake));
    script.steals_no_more(outputs);
}

#[test]
fn a_thief_that_was_granted_the_lease_in_doubt_and_robbed_does_not_steal_again() {
    let mut script = Script::new();
    script.stole_in_doubt();
    let sent = script.is_sent().then(|| script.sent().0);
    let mut outputs = script.signal(Body::Stolen { holder: ME, token: Token(64) }).to_vec();
    if let Some(id) = sent {
        outputs.extend(script.result(id, Ok(said([]))));
    }
    script.steals_no_more(outputs);
}

#[test]
fn a_thief_whose_theft_was_on_its_way_when_its_context_was_suspended_does_not_steal_again() {
    let mut script = Script::new();
    script.ask_for(thief(&script, 1));
    assert!(script.is_sent());
    let mut outputs = script.input(Input::Suspend { abandons: true }).to_vec();
    outputs.extend_from_slice(script.input(Input::Wake));
    script.steals_no_more(outputs);
}

/// An earlier theft of its manager was refused, because nobody knows what became of it.
#[test]
fn a_thief_whose_theft_was_certainly_not_carried_out_is_not_refused() {
    let mut script = Script::new();
    script.ask_for(thief(&script, 1));
    script.acquire(2, true);
    let told = script.input(Input::Reply { id: 1, result: Err(StoreError::unknown("no answer")) }).to_vec();
    assert_eq!(refusals(&told, 1).len(), 1, "{told:?}");
    script.until_sent();
    script.answer([waiting(64, 1)]);
    script.ask_for(thief(&script, 3));
    script.until_sent();
    let (id, batch) = script.sent();
    let answers = said(batch.operations.iter().map(|_| Outcome::NoSession)).answers;
    let told = script.result(id, Ok(Reply { answers, ..evicted() }));
    assert!(refusals(&told, 3).is_empty(), "{told:?}");
}

#[test]
fn who_waits_behind_such_a_thief_asks_with_a_priority_and_an_info_of_its_own() {
    let mut script = Script::new();
    script.ask_for(Turn { info: "thief".into(), ..thief(&script, 1) });
    let key = script.key.clone();
    script.ask_for(Turn { info: "waiter".into(), priority: 5, ..Turn::new(TurnId(2), key) });
    script.input(Input::Reply { id: 1, result: Err(StoreError::unknown("no answer")) });
    let actions = script.until_sent();
    let Action::Acquire(ask) = &actions[0] else { panic!("{actions:?}") };
    assert_eq!((ask.priority, &*ask.info, ask.way), (5, "waiter", Way::Plain));
}
