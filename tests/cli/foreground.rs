//! Who gets the terminal, and how it is set afterwards.

use std::fs;

use nix::sys::signal::{Signal, kill};

use crate::harness::Scratch;
use crate::terminal::{Typist, holder};

/// A shell sends CONT to a whole pipeline if one of its processes was stopped, such as the reader. The command, which writes into a pipe,
/// has not asked for the terminal.
#[test]
fn a_command_that_did_not_ask_for_the_terminal_does_not_get_it_by_cont() {
    let scratch = Scratch::new();
    let reader = "until [ \"$word\" = continued ]; do read word; done\nread line < /dev/tty\necho reader got $line\n";
    fs::write(scratch.0.join("reader"), reader).unwrap();
    let command = "trap \"echo continued\" CONT; echo ready >&2; while echo; do sleep 0.02; done";
    let script = format!("leasehold run k -- sh -c '{command}' | sh reader; echo over");
    let Some(mut typist) = Typist::sit_down(&scratch, &script) else { return };
    typist.sees("ready");
    kill(holder(&scratch), Signal::SIGCONT).unwrap();
    typist.types("hello\n");
    typist.sees("reader got hello");
    typist.sees("over");
    assert_eq!(typist.ends(), 0);
}

/// The command ends at TERM with a code, and has left the terminal to a process that is killed.
#[test]
fn the_terminal_is_set_as_before_after_a_loss() {
    let scratch = Scratch::new();
    let editor = "trap '' TERM; stty -echo -icanon; echo raw; while :; do sleep 0.02; done\n";
    fs::write(scratch.0.join("editor"), editor).unwrap();
    let wrapper = "trap \"exit 1\" TERM; sh editor < /dev/tty & while :; do sleep 0.02; done";
    let script = format!(
        "leasehold run --grace 0.3 k -- sh -c '{wrapper}'; echo code $?; \
         stty -a | tr ' ' '\\n' | grep -E '^-?(echo|icanon)$' | tr '\\n' ' '; echo modes"
    );
    let Some(typist) = Typist::sit_down(&scratch, &script) else { return };
    typist.sees("raw");
    assert_eq!(scratch.done(&["steal", "k"]).code, 0);
    typist.sees("code 75");
    typist.sees("modes");
    let screen = typist.screen.lock().unwrap().clone();
    let modes = screen.split("code 75").nth(1).unwrap();
    let is_set = |mode| modes.split_whitespace().any(|word| word == mode);
    assert!(is_set("icanon") && is_set("echo"), "{screen}");
    assert_eq!(typist.ends(), 0);
}
