//! Many processes, one key.

use std::fs;

use crate::harness::{Running, Scratch};

const PROCESSES: usize = 8;
const ROUNDS: usize = 10;

/// What each does to the counter can be interrupted anywhere: only the lease keeps it exact.
#[test]
fn processes_take_turns_and_lose_no_increment() {
    let scratch = Scratch::new();
    fs::write(scratch.0.join("count"), "0\n").unwrap();
    let increment = "read n < count; echo $((n + 1)) > count";
    let script =
        format!("for i in $(seq {ROUNDS}); do leasehold run -q k -- sh -c '{increment}' || exit; echo turn; done");
    let start = || Running::start(&mut scratch.command("sh", &["-c", &script]));
    let shells: Vec<_> = (0..PROCESSES).map(|_| start()).collect();
    for shell in shells {
        // On a busy machine, all turns together may take longer than `end` waits. So the test waits for each turn.
        assert_eq!(std::iter::from_fn(|| shell.line()).count(), ROUNDS);
        assert_eq!(shell.end(), (0, String::new()));
    }
    let count = fs::read_to_string(scratch.0.join("count")).unwrap();
    assert_eq!(count, format!("{}\n", PROCESSES * ROUNDS));
}
