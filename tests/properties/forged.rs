//! Random histories.

use leasehold::machine::{Key, Mode};
use proptest::prelude::*;

use crate::history::{Passing, Pick, Step, Verb, WayWish, Wish, steps};
use crate::shop::Kind;
use crate::world::World;

/// Enough contexts for most to meet.
const CONTEXTS: u8 = 5;

fn play(steps: &[Step], kind: Kind, trusted: bool, newer: Option<u8>) {
    let mut world = World::new(kind, trusted);
    if let Some(at) = newer {
        let key: Key = world.keys[usize::from(at)].clone();
        world.plant(&key, "{\"format\":2,\"last_token\":1,\"grants\":\"elsewhere\"}");
    }
    steps.iter().for_each(|step| world.step(step));
}

/// The range of tokens ends so soon that some are granted yet.
fn play_at_the_end(steps: &[Step], kind: Kind, trusted: bool, left: u64) {
    let mut world = World::new(kind, trusted);
    let last = (1 << 53) - 1 - left;
    for key in world.keys.clone().iter().filter(|key| !key.is_of_lock()) {
        let text = format!(
            "{{\"format\":1,\"last_token\":{last},\"revision\":0,\"grants\":[],\"queue\":[],\"last_exclusive\":0}}"
        );
        world.plant(key, &text);
    }
    steps.iter().for_each(|step| world.step(step));
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Memory), Just(Kind::AllSessions), Just(Kind::NamedSessions)]
}

/// S1: a duplicate of a detachment that was long on its way must not bring back the session that took the lease, nor take
/// the lease from the guard that resumed it meanwhile in the same context.
#[test]
fn a_detachment_that_comes_late_moves_nothing_that_was_resumed_since() {
    let quiet = |verb| Step { who: 0, key: 0, pass: Passing::Both(1), newer: false, opens: true, verb };
    let wish = |way| Wish { mode: Mode::Exclusive, way, wait: true, priority: 0, alone: false };
    let mut world = World::new(Kind::NamedSessions, false);
    world.step(&quiet(Verb::Ask(wish(WayWish::Plain))));
    world.step(&quiet(Verb::Detach { pick: Pick::Own(0), lease_ms: 300 }));
    world.step(&quiet(Verb::Ask(wish(WayWish::Resume(0)))));
    let resumed = world.view.clone();
    assert_eq!(resumed.sessions.len(), 1, "the detached session ended when its lease was taken over");
    world.step(&quiet(Verb::Late { pick: 1 }));
    assert_eq!(world.view.records, resumed.records, "the lease stays where it is");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rules_hold_by_an_observed_clock(steps in steps(CONTEXTS, 80), kind in kind()) {
        play(&steps, kind, false, None);
    }

    #[test]
    fn rules_hold_by_a_trusted_clock(steps in steps(CONTEXTS, 80), kind in kind()) {
        play(&steps, kind, true, None);
    }

    #[test]
    fn rules_hold_beside_a_key_of_a_newer_format(
        steps in steps(CONTEXTS, 40), kind in kind(), trusted: bool, newer in 0..4u8,
    ) {
        play(&steps, kind, trusted, Some(newer));
    }

    #[test]
    fn rules_hold_at_the_end_of_the_tokens(
        steps in steps(CONTEXTS, 40), kind in kind(), trusted: bool, left in 0..400u64,
    ) {
        play_at_the_end(&steps, kind, trusted, left);
    }
}
