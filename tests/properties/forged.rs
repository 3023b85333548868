//! Random histories.

use leasehold::machine::Key;
use proptest::prelude::*;

use crate::history::{Step, steps};
use crate::world::World;

fn play(steps: &[Step], trusted: bool, newer: Option<u8>) {
    let mut world = World::new(trusted);
    if let Some(at) = newer {
        let key: Key = world.keys[usize::from(at)].clone();
        let text = "{\"format\":2,\"last_token\":1,\"grants\":\"elsewhere\"}";
        world.records.load(key, Some(text));
    }
    steps.iter().for_each(|step| world.step(step));
}

/// The range of tokens ends so soon that some are granted yet.
fn play_at_the_end(steps: &[Step], trusted: bool, left: u64) {
    let mut world = World::new(trusted);
    for key in world.keys.clone() {
        let last = (1 << 53) - 1 - left;
        let text = format!(
            "{{\"format\":1,\"last_token\":{last},\"revision\":0,\"grants\":[],\"queue\":[],\
             \"last_exclusive\":0,\"stolen\":[]}}"
        );
        world.records.load(key.clone(), Some(&text));
        assert!(world.records.peek(&key).is_some());
    }
    steps.iter().for_each(|step| world.step(step));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rules_hold_by_an_observed_clock(steps in steps(60)) {
        play(&steps, false, None);
    }

    #[test]
    fn rules_hold_by_a_trusted_clock(steps in steps(60)) {
        play(&steps, true, None);
    }

    #[test]
    fn rules_hold_beside_a_key_of_a_newer_format(steps in steps(30), trusted: bool, newer in 0..3u8) {
        play(&steps, trusted, Some(newer));
    }

    #[test]
    fn rules_hold_at_the_end_of_the_tokens(steps in steps(30), trusted: bool, left in 0..400u64) {
        play_at_the_end(&steps, trusted, left);
    }
}
