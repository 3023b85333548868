//! Who gets the terminal, and how it is set afterwards.

use std::fs;

use nix::sys::signal::{Signal, kill};

use crate::harness::Scratch;
use crate::skipped::skip;
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

/// Answers the command that asks for the terminal, and then the shell that reads from it again.
fn answers_inside_and_outside(mut typist: Typist) {
    typist.sees("ask");
    typist.types("hello\n");
    typist.sees("code 0, got hello");
    typist.types("again\n");
    typist.sees("outer again");
    assert_eq!(typist.ends(), 0);
}

/// In `answer=$(leasehold run k -- ssh …)`, an interactive bash starts leasehold with TTIN ignored. That does not harm a command in the
/// group of the shell, but this one has a group of its own.
#[test]
fn a_command_that_was_to_ignore_ttin_gets_the_terminal_when_it_asks() {
    let scratch = Scratch::new();
    let command = "sh -c 'echo ask > /dev/tty; read line < /dev/tty; echo got $line'";
    let script = format!(
        "trap '' TTIN TTOU TSTP; answer=$(leasehold run k -- {command}); echo code $?, $answer; read line; echo outer $line"
    );
    let Some(typist) = Typist::sit_down(&scratch, &script) else { return };
    answers_inside_and_outside(typist);
}

/// A script that asks for the terminal under a lease of its own.
fn nested(scratch: &Scratch) {
    let command = "leasehold run k -- sh -c 'echo ask > /dev/tty; read line < /dev/tty; echo got $line'; exit $?\n";
    fs::write(scratch.0.join("nested"), command).unwrap();
}

/// The outer leasehold keeps the terminal, because its command writes into a pipe. So the inner one, whose command asks for the terminal,
/// does not have it.
#[test]
fn a_command_under_several_leases_gets_the_terminal_when_it_asks() {
    for outer in ["leasehold run i --", "leasehold run i -- leasehold run j --"] {
        let scratch = Scratch::new();
        nested(&scratch);
        let script = format!("answer=$({outer} sh nested); echo code $?, $answer; read line; echo outer $line");
        let Some(typist) = Typist::sit_down(&scratch, &script) else { return };
        answers_inside_and_outside(typist);
    }
}

/// The shell gives the terminal to the outer leasehold, whose own command is not stopped.
#[test]
fn a_command_under_two_leases_gets_the_terminal_in_the_foreground() {
    let scratch = Scratch::new();
    nested(&scratch);
    let script = "exec bash -c 'set -m; leasehold run i -- sh nested & read go; fg; echo over'";
    let Some(mut typist) = Typist::sit_down_at_bash(&scratch, script) else { return };
    typist.sees("fg in its shell, or SIGCONT to leasehold, continues it");
    typist.types("go\n");
    typist.sees("leasehold run i");
    typist.types("hello\n");
    typist.sees("got hello");
    typist.sees("over");
    assert_eq!(typist.ends(), 0);
}

/// timeout ignores TTIN and TTOU, so the outer leasehold is not told that the terminal is asked for. If an inner one were stopped, nobody
/// would continue it, nor renew its lease.
#[test]
fn whoever_asks_an_outer_leasehold_in_vain_keeps_its_lease() {
    for between in ["", "leasehold run j --"] {
        let scratch = Scratch::new();
        let command = "exec leasehold run --lease 2 k -- sh -c 'echo ask > /dev/tty; read line < /dev/tty'\n";
        fs::write(scratch.0.join("nested"), command).unwrap();
        let script = format!("leasehold run i -- timeout 600 {between} sh nested | cat");
        let Some(typist) = Typist::sit_down(&scratch, &script) else { return };
        typist.sees("ask");
        assert_eq!(
            scratch.done(&["run", "-w", "6", "k", "true"]).code,
            1,
            "its lease is not renewed below {between:?}"
        );
    }
}

/// The inner leasehold had the terminal when it began, so it handles TTIN. The outer one is stopped, goes on in the background, and then
/// comes to the foreground.
#[test]
fn a_command_that_had_the_terminal_gets_it_again_from_an_outer_leasehold() {
    let scratch = Scratch::new();
    let command = "kill -STOP $OUTER; until test -e behind; do sleep 0.02; done; echo ask > /dev/tty; read line; echo got $line\n";
    fs::write(scratch.0.join("command"), command).unwrap();
    fs::write(scratch.0.join("nested"), "OUTER=$PPID exec leasehold run k -- sh command\n").unwrap();
    let script = "exec bash -c 'set -m; leasehold run i -- sh nested; bg; touch behind; read go; fg; echo over'";
    let Some(mut typist) = Typist::sit_down_at_bash(&scratch, script) else { return };
    typist.sees("fg in its shell, or SIGCONT to leasehold, continues it");
    typist.types("go\n");
    typist.types("hello\n");
    typist.sees("got hello");
    typist.sees("over");
    assert_eq!(typist.ends(), 0);
}

/// As if leasehold had been updated while the outer one runs.
#[test]
fn the_command_of_a_nested_leasehold_from_another_path_has_the_terminal() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.0.join("other")).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_leasehold"), scratch.0.join("other/leasehold")).unwrap();
    fs::write(scratch.0.join("command"), "read line < /dev/tty; echo got $line\n").unwrap();
    let script = "exec bash -c 'set -m; leasehold run k -- other/leasehold run j -- sh command | cat; echo over'";
    let Some(mut typist) = Typist::sit_down_at_bash(&scratch, script) else { return };
    typist.types("hello\n");
    typist.sees("got hello");
    typist.sees("over");
    assert_eq!(typist.ends(), 0);
}

/// leasehold is stopped, and its shell runs another job in the foreground. That job continues leasehold, as if the user had typed `bg` and
/// started an editor. Then the command asks for the terminal.
fn another_job_keeps_the_terminal(job: &str) {
    let scratch = Scratch::new();
    let command = "echo $PPID > pid; kill -STOP $PPID; until test -e behind; do sleep 0.02; done; read line; echo command got $line\n";
    fs::write(scratch.0.join("command"), command).unwrap();
    fs::write(scratch.0.join("first"), "echo $$ > leader; kill -CONT $(cat pid)\n").unwrap();
    let second = "until test -s leader; do sleep 0.02; done; while kill -0 $(cat leader); do sleep 0.02; done\n";
    fs::write(scratch.0.join("second"), second).unwrap();
    let third = "touch behind; until test -e asked; do sleep 0.02; done; read line < /dev/tty; echo other got $line\n";
    fs::write(scratch.0.join("third"), third).unwrap();
    let script = format!("exec bash -c 'set -m; leasehold run k -- sh command; {job}; fg; echo over'");
    let Some(mut typist) = Typist::sit_down_at_bash(&scratch, &script) else { return };
    typist.sees("fg in its shell, or SIGCONT to leasehold, continues it");
    fs::write(scratch.0.join("asked"), "").unwrap();
    typist.types("first\n");
    typist.sees("other got first");
    typist.types("second\n");
    typist.sees("command got second");
    typist.sees("over");
    assert_eq!(typist.ends(), 0);
}

#[test]
fn another_job_of_the_shell_keeps_the_terminal() {
    another_job_keeps_the_terminal("sh -c \". ./first; . ./third\"");
}

/// A job has the process id of its first process.
#[test]
fn a_pipeline_whose_first_process_has_ended_keeps_the_terminal() {
    another_job_keeps_the_terminal("sh first | sh -c \". ./second; . ./third\"");
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

/// The first process of a container adopts what a command left behind. Here that process is the shell, so the orphan looks like another job
/// of the shell.
#[test]
fn the_terminal_is_set_as_before_although_the_shell_adopts_what_had_it() {
    let scratch = Scratch::new();
    let contained = "unshare --user --map-root-user --pid --fork --mount-proc";
    if !std::process::Command::new("sh")
        .args(["-c", &format!("{contained} true")])
        .status()
        .is_ok_and(|ran| ran.success())
    {
        return skip("this user may not make a namespace of processes");
    }
    fs::write(scratch.0.join("editor"), "stty -echo -icanon; echo raw; while :; do sleep 0.02; done\n").unwrap();
    let script = format!("PS1= exec {contained} bash --norc --noprofile -i");
    let Some(mut typist) = Typist::sit_down_at_bash(&scratch, &script) else { return };
    typist.types("leasehold run --grace 0.3 k -- bash --norc --noprofile -i\n");
    typist.types("sh editor\n");
    typist.sees("raw");
    assert_eq!(scratch.done(&["steal", "k"]).code, 0);
    typist.sees("another process stole it");
    typist.types("stty -a | tr ' ' '\\n' | grep -E '^-?icanon$' | tr '\\n' ' '; echo mod''es\n");
    typist.sees("modes");
    let screen = typist.screen.lock().unwrap().clone();
    let modes = screen.split("another process stole it").nth(1).unwrap();
    assert!(modes.split_whitespace().any(|word| word == "icanon"), "{screen}");
    typist.types("exit 0\n");
    assert_eq!(typist.ends(), 0);
}
