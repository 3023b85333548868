//! Requests that are granted as soon as they can be, not only at the next heartbeat or at the next request.

use alloc::vec;

use super::{
    LEASE_MS, ME, OTHER, STORE, Script, block, events, is_granted, named, seen,
    served::{Served, slot},
    taken,
};
use crate::machine::{
    Acquire, Action, Batch, Beat, Body, Event, Granted, Input, Message, Mode, Operation, Outcome, RequestId, SessionId,
    SessionStep, Sighting, StoreError, Token, Turn, TurnId,
};

fn share(turn: u64) -> Turn {
    Turn { mode: Mode::Shared, ..Turn::new(TurnId(turn), named("k")) }
}

/// Requests 2 and 3 try the keys `a` and `b` together. Two contexts keep a key each without using it, and the first one gives it back.
fn finds_one_given_back() -> (Script, Sighting) {
    let mut script = Script::new();
    let tries = |(id, key)| Turn { alone: true, wait: false, ..Turn::new(TurnId(id), named(key)) };
    script.input(Input::AcquireAll([(2, "a"), (3, "b")].map(tries).into()));
    let third = taken(SessionId(3), 500, RequestId(4));
    script.answer([Outcome::BusyAll(vec![vec![seen(1, false)], vec![third]])]);
    script.tick(5);
    frees(&mut script, "a");
    script.answer([Outcome::BusyAll(vec![vec![], vec![third]])]);
    (script, third)
}

fn frees(script: &mut Script, key: &str) {
    let message = Message { store: STORE, key: named(key), body: Body::Freed { asker: ME } };
    script.input(Input::Message(message));
}

fn is_refused(script: &Script) -> bool {
    events(&script.outputs).iter().any(|event| matches!(event, Event::Busy { .. }))
}

#[test]
fn a_try_for_several_keys_waits_until_each_of_their_holders_has_given_its_key_back() {
    let (mut script, _) = finds_one_given_back();
    assert!(!is_refused(&script), "the other one has 30 ms to give its key back");
    script.tick(5);
    frees(&mut script, "b");
    let grant = |first| Granted { block: block(first), previous: Token(0), contended: false };
    script.answer([Outcome::GrantedAll([600, 700].map(grant).into())]);
    assert!(is_granted(&script.outputs));
}

#[test]
fn a_try_for_several_keys_is_refused_if_only_one_is_given_back() {
    let (mut script, third) = finds_one_given_back();
    script.tick(30);
    script.answer([Outcome::BusyAll(vec![vec![], vec![third]])]);
    assert!(is_refused(&script));
}

/// The second reader came while a writer of the same context was queued, when the first reader could no longer hand its lease on.
#[test]
fn a_reader_is_granted_as_soon_as_a_writer_of_its_own_context_has_given_up() {
    let mut served = Served::new();
    served.ask(share(1));
    served.serve();
    served.ask(Turn::new(TurnId(2), named("k")));
    served.serve();
    served.pass(100);
    served.ask(share(3));
    served.serve();
    assert!(!served.is_granted(3), "the writer queues");
    served.input(Input::Cancel { turn: TurnId(2), slot: slot("k", Mode::Exclusive) });
    served.serve();
    assert!(served.is_granted(3), "{:?}", served.told);
}

/// The writer gives up while the store is being asked who queues. The answer still counts the writer.
#[test]
fn a_reader_is_granted_even_if_the_writer_gives_up_while_the_store_is_being_asked_who_queues() {
    let mut served = Served::new();
    served.ask(share(1));
    served.serve();
    served.ask(Turn::new(TurnId(2), named("k")));
    served.serve();
    served.pass(100);
    served.ask(share(3));
    let (id, batch) = served.script.sent();
    let reply = served.apply(&batch);
    served.input(Input::Cancel { turn: TurnId(2), slot: slot("k", Mode::Exclusive) });
    served.input(Input::Reply { id, result: Ok(reply) });
    served.serve();
    assert!(served.is_granted(3), "{:?}", served.told);
}

/// An upgrade counts as a queued request until it is given up.
#[test]
fn a_reader_is_granted_as_soon_as_an_upgrade_of_its_own_context_is_given_up() {
    let mut served = Served::new();
    served.ask(share(1));
    served.serve();
    let beat = Beat { beat: 1, lease_ms: LEASE_MS, ..Beat::default() };
    let ask = Acquire { mode: Mode::Shared, ..Acquire::new(RequestId(1), 1) };
    let beside = Operation { key: named("k"), action: Action::Acquire(ask) };
    let open = SessionStep::Open { beat, instance: "".into() };
    served.apply(&Batch { step: open, ..Batch::new(OTHER, vec![beside]) });
    let shared = slot("k", Mode::Shared);
    served.input(Input::Upgrade { query: TurnId(10), turn: TurnId(1), slot: shared.clone() });
    served.serve();
    served.input(Input::Verify { query: TurnId(11), turn: TurnId(1), slot: shared.clone(), span_ms: 0 });
    served.serve();
    served.pass(100);
    served.ask(share(3));
    served.serve();
    assert!(!served.is_granted(3), "the upgrade goes first");
    served.input(Input::CancelUpgrade { query: TurnId(10), slot: shared });
    served.serve();
    assert!(served.is_granted(3), "{:?}", served.told);
}

/// While a guard waits to upgrade, no reader joins it. So the context does not ask whether the writer ahead of the reader still queues.
#[test]
fn a_reader_is_granted_as_soon_as_the_upgrade_of_one_of_several_readers_is_given_up() {
    let shared = slot("k", Mode::Shared);
    let give_up = Input::CancelUpgrade { query: TurnId(10), slot: shared.clone() };
    for ends in [give_up, Input::Release { turn: TurnId(2), slot: shared.clone() }] {
        let mut served = Served::new();
        served.ask(share(1));
        served.serve();
        served.ask(share(2));
        served.ask(Turn::new(TurnId(3), named("k")));
        served.serve();
        served.pass(100);
        served.ask(share(4));
        served.serve();
        served.input(Input::Upgrade { query: TurnId(10), turn: TurnId(2), slot: shared.clone() });
        served.input(Input::Cancel { turn: TurnId(3), slot: slot("k", Mode::Exclusive) });
        served.serve();
        assert!(!served.is_granted(4), "the upgrade goes first");
        served.input(ends);
        served.serve();
        assert!(served.is_granted(4), "{:?}", served.told);
    }
}

/// A try for a single key is as impatient: a try must not wait.
#[test]
fn a_try_for_several_keys_that_looked_again_is_as_impatient_with_a_busy_store_as_before() {
    let mut script = Script::new();
    let tries = |(id, key)| Turn { alone: true, wait: false, ..Turn::new(TurnId(id), named(key)) };
    script.input(Input::AcquireAll([(2, "a"), (3, "b")].map(tries).into()));
    script.answer([Outcome::BusyAll(vec![vec![seen(1, false)], vec![]])]);
    script.tick(30);
    for _ in 0..3 {
        script.until_sent();
        let id = script.sent().0;
        script.input(Input::Reply { id, result: Err(StoreError::busy("busy")) });
    }
    assert!(events(&script.outputs).iter().any(|event| matches!(event, Event::Failed { .. })), "{:?}", script.outputs);
}

/// Contexts that use a key for a moment and keep it for a while: each gives it back when it is asked, and the next one takes it first.
#[test]
fn a_try_for_several_keys_ends_even_if_a_key_goes_from_one_context_to_the_next() {
    let mut script = Script::new();
    let tries = |(id, key)| Turn { alone: true, wait: false, ..Turn::new(TurnId(id), named(key)) };
    script.input(Input::AcquireAll([(2, "a"), (3, "b")].map(tries).into()));
    for at in 0..20 {
        let next = taken(SessionId(10 + at), 500, RequestId(4));
        script.answer([Outcome::BusyAll(vec![vec![next], vec![]])]);
        if is_refused(&script) {
            return;
        }
        script.tick(10);
        if !script.is_sent() {
            frees(&mut script, "a");
        }
    }
    panic!("it still tries after 200 ms");
}
