//! The exit codes and the signals, as a shell at a terminal sees them.

use std::fs;

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    gone::delete,
    harness::{Scratch, can_be_interrupted},
    show::until_queued,
    terminal::{Typist, holder},
    until::wait_until,
};

/// A line of shell, and the code that it leaves. Each row of the guide's table is here.
const CODES: [(&str, u8); 22] = [
    ("leasehold run k true", 0),
    ("leasehold run k sh -c 'exit 7'", 7),
    ("leasehold elect k sh -c 'exit 9'", 9),
    ("leasehold run k sh -c 'kill -TERM $$'", 143),
    ("leasehold run k sh -c 'kill -KILL $$'", 137),
    ("leasehold run held leasehold run -n held true", 1),
    ("leasehold run held leasehold run -w 0.1 held true", 1),
    ("leasehold run held leasehold run -n -E 42 held true", 42),
    ("leasehold run held leasehold run -n -E 0 held true", 0),
    ("leasehold run held leasehold elect -n -E 255 held true", 255),
    ("leasehold run -E 256 k true", 64),
    ("leasehold run k", 64),
    ("leasehold list --store carrier-pigeon:here", 64),
    ("leasehold run --store sqlite:missing/leases.db k true", 69),
    ("leasehold list --store sqlite:missing/leases.db", 69),
    ("(ulimit -n 8; exec leasehold list)", 71),
    ("leasehold run k sh -c 'leasehold steal k; exec sleep 600'", 75),
    ("leasehold run --grace 0.2 k sh -c 'trap \"\" TERM; leasehold steal k; exec sleep 600'", 75),
    ("leasehold run --on-loss warn k sh -c 'leasehold steal k; exit 6'", 6),
    ("leasehold run k ./plain", 126),
    ("leasehold run k no-such-command", 127),
    ("leasehold steal k no-such-command", 127),
];

/// Whatever the code is, the shell has the terminal again.
#[test]
fn a_shell_at_a_terminal_sees_each_exit_code() {
    let scratch = Scratch::new();
    fs::write(scratch.0.join("plain"), "no program\n").unwrap();
    let lines = CODES.iter().enumerate();
    let script: String = lines.map(|(row, (line, _))| format!("{line}; echo row {row}: $?.; read word\n")).collect();
    let Some(mut typist) = Typist::sit_down(&scratch, &script) else { return };
    for (row, (_, code)) in CODES.iter().enumerate() {
        typist.sees(&format!("row {row}: {code}."));
        typist.types("next\n");
    }
    assert_eq!(typist.ends(), 0);
}

/// What the signals of the guide's table are, and what a shell shows of them.
const ENDS: [(Signal, u8); 4] =
    [(Signal::SIGHUP, 129), (Signal::SIGINT, 130), (Signal::SIGQUIT, 131), (Signal::SIGTERM, 143)];
/// What a terminal sends INT and QUIT for.
const KEYS: [(&str, u8); 2] = [("\x03", 130), ("\x1c", 131)];
/// A script that goes on after each signal.
const GOES_ON: &str = "ulimit -c 0; trap : HUP INT QUIT TERM;";

/// Waits for the code and the release, and for the shell, which reads from its terminal again.
fn is_over(scratch: &Scratch, mut typist: Typist, code: u8) {
    typist.sees(&format!("code {code}."));
    assert!(scratch.done(&["status", "k"]).out.contains("free"));
    typist.types("again\n");
    typist.sees("outer again");
    assert_eq!(typist.ends(), 0);
}

#[test]
fn a_command_at_a_terminal_ends_by_each_signal_and_each_key() {
    if !can_be_interrupted() {
        return;
    }
    for order in ["run", "elect"] {
        let scratch = Scratch::new();
        let sit_down = || {
            let command = format!("leasehold {order} k -- sh -c 'echo ready; exec sleep 600'");
            Typist::sit_down(&scratch, &format!("{GOES_ON} {command}; echo code $?.; read word; echo outer $word"))
        };
        for (signal, code) in ENDS {
            let Some(typist) = sit_down() else { return };
            typist.sees("ready");
            kill(holder(&scratch), signal).unwrap();
            is_over(&scratch, typist, code);
        }
        for (key, code) in KEYS {
            let Some(mut typist) = sit_down() else { return };
            typist.sees("ready");
            typist.types(key);
            is_over(&scratch, typist, code);
        }
    }
}

/// The leasehold that waits for `k`.
fn waiter(scratch: &Scratch) -> Pid {
    until_queued(scratch, 1);
    let status = scratch.done(&["status", "k"]).out;
    let pid = status.rsplit_once(" pid ").and_then(|(_, rest)| rest.split(':').next()?.parse().ok());
    Pid::from_raw(pid.expect("its info has it"))
}

#[test]
fn a_wait_at_a_terminal_ends_by_each_signal_and_each_key() {
    if !can_be_interrupted() {
        return;
    }
    for order in ["run", "elect"] {
        let scratch = Scratch::new();
        let held = scratch.ready(&["--lease", "3600", "--grace", "1"], "echo ready; exec sleep 600");
        let sit_down = || {
            let command = format!("leasehold {order} -q k -- echo granted");
            Typist::sit_down(&scratch, &format!("{GOES_ON} {command}; echo code $?.; read word; echo outer $word"))
        };
        let leaves = |mut typist: Typist, code: u8| {
            typist.sees(&format!("code {code}."));
            until_queued(&scratch, 0);
            typist.types("again\n");
            typist.sees("outer again");
            assert_eq!(typist.ends(), 0);
        };
        for (signal, code) in ENDS {
            let Some(typist) = sit_down() else { return };
            kill(waiter(&scratch), signal).unwrap();
            leaves(typist, code);
        }
        for (key, code) in KEYS {
            let Some(mut typist) = sit_down() else { return };
            waiter(&scratch);
            typist.types(key);
            leaves(typist, code);
        }
        drop(held);
    }
}

/// The shell is killed, as when its window is closed. The system then sends HUP to whoever has the terminal.
#[test]
fn who_loses_its_terminal_leaves_the_key_and_the_queue() {
    let scratch = Scratch::new();
    let sit_down = || Typist::sit_down(&scratch, "leasehold run k -- sh -c 'echo ready; exec sleep 600'; echo over");
    let Some(holds) = sit_down() else { return };
    holds.sees("ready");
    let Some(waits) = sit_down() else { return };
    until_queued(&scratch, 1);
    drop(waits);
    until_queued(&scratch, 0);
    drop(holds);
    wait_until("the release", || scratch.done(&["status", "k"]).out.contains("free"));
}

/// The command has the terminal, and ignores TERM.
#[test]
fn a_shell_has_its_terminal_again_after_a_store_went_away() {
    let scratch = Scratch::new();
    let command = "leasehold run --lease 6 k -- sh -c 'trap \"\" TERM; echo ready; exec sleep 600'";
    let script = format!("{command}; echo code $?.; read word; echo outer $word");
    let Some(mut typist) = Typist::sit_down(&scratch, &script) else { return };
    typist.sees("ready");
    delete(&scratch);
    typist.sees("its store failed or was deleted");
    typist.sees("code 75.");
    typist.types("again\n");
    typist.sees("outer again");
    assert_eq!(typist.ends(), 0);
}

/// Each command reads from its own terminal. Who waits comes next, whoever asks again.
#[test]
fn shells_at_two_terminals_take_turns() {
    const TURNS: usize = 4;
    let scratch = Scratch::new();
    let turn = "leasehold run -q k -- sh -c \"echo turn $i; read word; echo \\$word >> words\"";
    let script = format!("for i in $(seq {TURNS}); do {turn} || exit; done; read word; echo outer $word");
    let Some(mut one) = Typist::sit_down(&scratch, &script) else { return };
    one.sees("turn 1");
    let Some(mut two) = Typist::sit_down(&scratch, &script) else { return };
    for turn in 1..=TURNS {
        for (typist, name) in [(&mut one, "one"), (&mut two, "two")] {
            typist.sees(&format!("turn {turn}"));
            let is_last = turn == TURNS && name == "two";
            until_queued(&scratch, usize::from(!is_last));
            typist.types(&format!("{name} {turn}\n"));
        }
    }
    for mut typist in [one, two] {
        typist.types("again\n");
        typist.sees("outer again");
        assert_eq!(typist.ends(), 0);
    }
    let words = (1..=TURNS).flat_map(|turn| ["one", "two"].map(|name| format!("{name} {turn}\n")));
    assert_eq!(fs::read_to_string(scratch.0.join("words")).unwrap(), words.collect::<String>());
}
