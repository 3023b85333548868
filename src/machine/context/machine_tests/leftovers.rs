//! What an earlier attempt, guard or grant left is no burden: on the store, on other contexts, on the next guard.

use super::{Script, events};
use crate::machine::Event;

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
