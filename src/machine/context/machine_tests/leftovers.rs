//! What an earlier attempt, guard or grant left is no burden: on the store, on other contexts, on the next guard.

use super::{
    OTHER, Script, events, named,
    served::{Served, slot},
};
use crate::machine::{Config, Event, Input, Machine, Mode, Options, Turn, TurnId};

/// The store may be there again, and others may take the lease soon.
#[test]
fn a_heartbeat_that_was_to_be_tried_again_is_not_put_off_when_the_doubt_begins() {
    for offset_ms in 0..40 {
        let mut script = Script::holding();
        // So the attempts come at other times.
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

/// The signal that it waits was lost, and the fences renew the lease, so the holder needs no heartbeat for that.
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
