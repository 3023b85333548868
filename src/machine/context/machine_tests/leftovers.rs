//! An earlier attempt, guard or grant leaves nothing that affects the store, other contexts or the next guard.

use alloc::vec;

use super::{
    LEASE_MS, ME, OTHER, Script, events, named,
    served::{Served, slot},
};
use crate::machine::{Action, Config, Event, Input, Machine, Mode, Options, Records, SessionId, Turn, TurnId};

impl Served {
    /// A context that shares a key over a store whose servers may lose their latest writes, and the store's content at that moment.
    fn shares() -> (Self, Records) {
        let mut served = Self::new();
        let config = Config::parse(&Options { beacon: false, ..Options::default() }).unwrap();
        served.script.machine = Machine::new(config.without_linger().for_failovers(), ME);
        for (turn, key, mode) in [(1, "k", Mode::Shared), (2, "other", Mode::Exclusive)] {
            served.ask(Turn { mode, ..Turn::new(TurnId(turn), named(key)) });
            served.serve();
        }
        let before = served.records.clone();
        (served, before)
    }

    fn upgrade(&mut self) {
        self.input(Input::Upgrade { query: TurnId(7), turn: TurnId(1), slot: slot("k", Mode::Shared) });
        self.serve();
        assert!(self.told.iter().any(|event| matches!(event, Event::Upgraded { .. })));
    }

    fn drop_guard(&mut self) {
        self.input(Input::Release { turn: TurnId(1), slot: slot("k", Mode::Shared) });
        self.serve();
    }
}

/// The new server lists the lease as it was shared. Its session lives, so nobody else may remove it.
#[test]
fn an_upgrade_that_a_failover_undid_leaves_no_shared_lease_when_its_guard_is_dropped() {
    let (mut served, before) = Served::shares();
    served.upgrade();
    served.records = before;
    served.drop_guard();
    assert_eq!(served.grants("k"), []);
}

#[test]
fn an_upgrade_that_a_failover_undid_leaves_no_shared_lease_when_its_loss_is_reported() {
    let (mut served, before) = Served::shares();
    served.upgrade();
    served.records = before;
    served.input(Input::Recheck);
    served.serve();
    assert!(served.told.iter().any(|event| matches!(event, Event::Lost { .. })));
    assert_eq!(served.grants("k"), []);
}

#[test]
fn an_upgrade_and_a_release_that_a_failover_undid_leave_no_shared_lease() {
    let (mut served, before) = Served::shares();
    served.upgrade();
    served.drop_guard();
    served.records = before;
    served.input(Input::Recheck);
    served.serve();
    assert_eq!(served.grants("k"), []);
}

/// A server may end each connection for messages as soon as it stands, while a transaction hangs.
#[test]
fn releases_are_repeated_once_however_often_the_connection_is_replaced_meanwhile() {
    let (mut served, _) = Served::shares();
    served.drop_guard();
    served.ask(Turn::new(TurnId(3), named("third")));
    let (id, batch) = served.script.sent();
    (0..100).for_each(|_| served.input(Input::Recheck));
    let reply = served.apply(&batch);
    served.input(Input::Reply { id, result: Ok(reply) });
    let withdrawn = served.script.actions().into_iter().filter(|action| matches!(action, Action::Withdraw { .. }));
    assert_eq!(withdrawn.count(), 1);
}

/// The context holds another lease, so its session lives, and nobody else may remove the grants whose answers were lost.
#[test]
fn a_request_for_several_keys_that_was_given_up_leaves_no_lease() {
    let mut served = Served::new();
    served.ask(Turn::new(TurnId(1), named("other")));
    served.serve();
    let tries = |turn, key| Turn { alone: true, wait: false, ..Turn::new(TurnId(turn), named(key)) };
    served.input(Input::AcquireAll([tries(2, "a"), tries(3, "b")].into()));
    while !served.told.iter().any(|event| matches!(event, Event::Failed { .. })) {
        served.until_sent();
        served.lose_reply();
    }
    served.serve();
    served.pass(1_000);
    assert_eq!((served.grants("a"), served.grants("b")), (vec![], vec![]));
}

impl Script {
    /// The lease that the next heartbeat asks for, in ms.
    fn next_lease_ms(&mut self) -> u64 {
        for _ in 0..1_000 {
            if self.is_sent()
                && let Some(beat) = self.sent().1.beat()
            {
                return beat.lease_ms;
            }
            self.tick(10);
        }
        panic!("no heartbeat");
    }
}

/// If this context then died, others would wait for all of the longer lease.
#[test]
fn an_extension_for_one_guard_does_not_lengthen_the_lease_of_the_next() {
    for ends in 0..4 {
        let mut served = Served::new();
        let max_hold_ms = (ends == 2).then_some(1_000);
        served.ask(Turn { max_hold_ms, ..Turn::new(TurnId(1), named("k")) });
        served.serve();
        served.ask(Turn::new(TurnId(2), named("other")));
        served.serve();
        if ends == 1 {
            // The lease is passed on within the context.
            served.ask(Turn::new(TurnId(3), named("k")));
        }
        let key = slot("k", Mode::Exclusive);
        served.input(Input::Verify { query: TurnId(7), turn: TurnId(1), slot: key.clone(), span_ms: 600_000 });
        served.serve();
        match ends {
            0 | 1 => served.input(Input::Release { turn: TurnId(1), slot: key }),
            2 => served.pass(1_100),
            _ => served.input(Input::Detach { turn: TurnId(1), slot: key, to: SessionId(77) }),
        }
        served.serve();
        let lease_ms = served.script.next_lease_ms();
        assert_eq!(lease_ms, LEASE_MS, "ends in way {ends}");
    }
}

/// The store may work again, and others may take the lease soon.
#[test]
fn a_retry_of_a_heartbeat_is_not_postponed_when_the_doubt_begins() {
    for offset_ms in 0..40 {
        let mut script = Script::holding();
        // This shifts the times of the attempts.
        script.tick(offset_ms * 50);
        let (mut last_ms, mut longest_ms) = (script.now_ms, 0);
        let mut is_told = false;
        while script.now_ms < 24_000 {
            script.tick(10);
            is_told |= events(&script.outputs).iter().any(|event| matches!(event, Event::Suspect { .. }));
            if script.refuse().is_some() {
                if is_told {
                    longest_ms = longest_ms.max(script.now_ms - last_ms);
                }
                last_ms = script.now_ms;
            }
        }
        assert!(is_told && longest_ms <= 2_510, "offset {offset_ms}: {longest_ms} ms between two attempts");
    }
}

/// The waiter's signal was lost. The fences renew the lease, so the holder needs no heartbeat to keep it.
#[test]
fn a_lease_that_goes_from_task_to_task_is_given_up_for_a_waiter_although_each_task_fences_and_renews() {
    let (mut served, mut other) = (Served::new(), Script::new());
    let config = Config::parse(&Options { beacon: false, ..Options::default() }).unwrap();
    other.machine = Machine::new(config, OTHER);
    served.ask(Turn::new(TurnId(1), named("k")));
    served.serve();
    other.acquire(1, true);
    served.apply(&other.sent().1);
    let key = slot("k", Mode::Exclusive);
    for turn in 1..30 {
        served.ask(Turn::new(TurnId(turn + 1), named("k")));
        if !served.is_granted(turn) {
            return;
        }
        served.fence_and_renew(turn, &key);
        served.pass(1_000);
        served.input(Input::Release { turn: TurnId(turn), slot: key.clone() });
        served.serve();
    }
    panic!("the other context waits for ever");
}
