//! Grants that are stolen before their context hears of them.

use alloc::{vec, vec::Vec};

use super::{
    LEASE_MS, ME, OTHER, STORE, named,
    served::{Served, slot},
};
use crate::machine::{
    Acquire, Action, Batch, Beat, Body, Event, Input, LostReason, Message, Mode, Operation, Outcome, Refusal, Reply,
    RequestId, SessionStep, StoreError, Token, Turn, TurnId, Way,
};

impl Served {
    /// Another context steals the key, and gives it back at once. Returns the token of the stolen lease.
    fn rob(&mut self, key: &str) -> Token {
        let beat = Beat { beat: 1, lease_ms: LEASE_MS, ..Beat::default() };
        let ask = Acquire { way: Way::Steal, ..Acquire::new(RequestId(1), 1) };
        let steal = Operation { key: named(key), action: Action::Acquire(ask) };
        let open = SessionStep::Open { beat, instance: "".into() };
        let reply = self.apply(&Batch { step: open, ..Batch::new(OTHER, vec![steal]) });
        let Outcome::Granted(granted) = reply.answers[0].outcome else { panic!("{reply:?}") };
        let (token, request) = (granted.block.first, RequestId(1));
        let release = Operation { key: named(key), action: Action::Release { token, request } };
        self.apply(&Batch { step: SessionStep::Close, ..Batch::new(OTHER, vec![release]) });
        reply.answers[0].robbed[0].1
    }

    /// Lets the context hear of a theft first, and only then the answer to what it sent before.
    fn hear_late(&mut self, id: u64, reply: Reply, (key, token): (&str, Token)) {
        let body = Body::Stolen { holder: ME, token };
        self.input(Input::Message(Message { store: STORE, key: named(key), body }));
        self.input(Input::Reply { id, result: Ok(reply) });
        self.serve();
    }

    fn refusals(&self, turn: u64) -> Vec<Refusal> {
        let refusal = |event: &Event| match event {
            Event::Failed { turn: told, refusal } if *told == TurnId(turn) => Some(refusal.clone()),
            _ => None,
        };
        self.told.iter().filter_map(refusal).collect()
    }
}

/// S15. A guard that takes over a lease gets this lease and no other.
#[test]
fn a_lease_that_was_stolen_while_it_was_taken_over_is_not_replaced_by_another_one() {
    let mut served = Served::new();
    served.ask(Turn::new(TurnId(1), named("k")));
    served.serve();
    let exclusive = slot("k", Mode::Exclusive);
    let parcel = served.script.machine.parcel(TurnId(1), &exclusive).unwrap();
    served.input(Input::Detach { turn: TurnId(1), slot: exclusive, to: parcel.from });
    served.serve();
    let turn = Turn { alone: true, wait: false, ..Turn::new(TurnId(2), named("k")) };
    served.input(Input::Resume { turn, parcel });
    let (id, batch) = served.script.sent();
    let reply = served.apply(&batch);
    let token = served.rob("k");
    served.hear_late(id, reply, ("k", token));
    assert!(!served.is_granted(2), "{:?}", served.told);
    assert_eq!(served.refusals(2), [Refusal::Lost(LostReason::Stolen)]);
}

/// An upgrade may be stolen before the victim has heard that it was granted. No heartbeat makes the victim's guard valid again.
#[test]
fn a_guard_whose_upgrade_was_stolen_unheard_is_lost_by_any_report_of_the_theft() {
    for by_message in [true, false] {
        let (mut served, _) = Served::upgraded_unheard("a");
        let token = served.rob("a");
        if by_message {
            let body = Body::Stolen { holder: ME, token };
            served.input(Input::Message(Message { store: STORE, key: named("a"), body }));
        } else {
            served.fence_and_renew(9, &slot("z", Mode::Exclusive));
        }
        let lost = Event::Lost { turn: TurnId(1), reason: LostReason::Stolen };
        assert!(served.told.contains(&lost), "by a message: {by_message}, {:?}", served.told);
        assert_eq!(served.refusals(10), [Refusal::Lost(LostReason::Stolen)]);
        served.serve();
        served.pass(120_000);
        assert!(served.script.machine.session() == ME, "its session lives");
        assert_eq!(served.grants("a"), []);
    }
}

/// I14. A try for several keys has all of them in one transaction, or none.
#[test]
fn i14_of_several_keys_none_is_asked_for_alone_because_it_was_stolen() {
    let mut served = Served::new();
    served.ask(Turn::new(TurnId(9), named("z")));
    served.serve();
    let turns =
        [(1, "a"), (2, "b")].map(|(id, name)| Turn { alone: true, wait: false, ..Turn::new(TurnId(id), named(name)) });
    served.input(Input::AcquireAll(turns.into()));
    let (id, batch) = served.script.sent();
    let reply = served.apply(&batch);
    let token = served.rob("b");
    served.hear_late(id, reply, ("b", token));
    assert!(!served.is_granted(2), "{:?}", served.told);
    assert_eq!(served.refusals(2), [Refusal::Lost(LostReason::Stolen)]);
}

/// A thief joins a request whose lease was stolen before its context heard of the grant.
fn joined_by_a_thief() -> Served {
    let mut served = Served::new();
    served.ask(Turn::new(TurnId(9), named("z")));
    served.serve();
    served.ask(Turn::new(TurnId(1), named("k")));
    served.lose_reply();
    served.rob("k");
    served.ask(Turn { steal: true, ..Turn::new(TurnId(2), named("k")) });
    served
}

/// The store refuses the first attempt to steal.
#[test]
fn a_theft_that_was_certainly_not_carried_out_counts_as_none() {
    let mut served = joined_by_a_thief();
    let id = served.script.sent().0;
    served.input(Input::Reply { id, result: Err(StoreError::transient("down")) });
    served.serve();
    served.pass(5_000);
    assert!(served.is_granted(2), "{:?}", served.told);
}

/// The first attempt to steal is given up before its failure is heard.
#[test]
fn a_theft_that_failed_late_counts_as_none() {
    let mut served = joined_by_a_thief();
    let first = served.script.sent().0;
    served.script.tick(5_000);
    let (second, batch) = served.until_sent();
    assert!(second != first, "it was given up");
    served.input(Input::Reply { id: first, result: Err(StoreError::transient("down")) });
    let reply = served.apply(&batch);
    served.input(Input::Reply { id: second, result: Ok(reply) });
    served.serve();
    served.pass(5_000);
    assert!(served.is_granted(2), "{:?}", served.told);
}
