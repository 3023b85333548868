//! Many keys: what is looked for is looked for once for all of them.

use alloc::vec::Vec;

use super::{Script, granted, named};
use crate::machine::{Input, Key, Turn, TurnId};

const KEYS: u64 = 100;

fn key(number: u64) -> Key {
    named(&alloc::format!("k{number}"))
}

fn ask(number: u64) -> Turn {
    Turn::new(TurnId(number), key(number))
}

/// A service gives up requests by the thousand while its store hangs.
#[test]
fn requests_that_were_given_up_are_neither_sent_nor_piled_up() {
    let mut script = Script::new();
    script.ask_for(ask(1));
    let (first, _) = script.sent();
    let cancel = |number| Input::Cancel { turn: TurnId(number), slot: ask(number).slot() };
    (2..=200).for_each(|number| _ = script.ask_for(ask(number)));
    for number in 201..3_000 {
        script.ask_for(ask(number));
        script.input(cancel(number));
    }
    (KEYS + 1..=200).for_each(|number| _ = script.input(cancel(number)));
    let waiting = alloc::format!("{:?}", script.machine).matches("PendingOperation").count();
    assert!(waiting < 450, "{waiting} operations are kept for 100 requests");
    script.reply(first, [granted(64)]);
    let asked: Vec<_> = script.sent().1.operations.into_iter().map(|operation| operation.key).collect();
    assert_eq!(asked, (2..=KEYS).map(key).collect::<Vec<_>>());
}
