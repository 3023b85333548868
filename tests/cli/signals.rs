//! Signals that reach leasehold.

use std::{
    io::Write,
    iter::repeat_with,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::Stdio,
    thread,
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, kill, killpg},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use rusqlite::Connection;

use crate::harness::{LIMIT, Running, Scratch, can_be_interrupted, is_right_once};
use crate::show::{queued, until_queued};
use crate::skipped::skip;
use crate::until::wait_until;

/// Sleeps in short naps, so that a trap is not kept waiting.
pub(crate) const NAPS: &str = "echo ready; while :; do sleep 0.02; done";

#[test]
fn signals_are_passed_on() {
    if !can_be_interrupted() {
        return;
    }
    let scratch = Scratch::new();
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGUSR2] {
        let name = signal.as_str().trim_start_matches("SIG");
        let running = scratch.ready(&[], &format!("trap 'echo {name}; exit 9' {name}; {NAPS}"));
        running.signal(signal);
        assert_eq!(running.line().as_deref(), Some(name));
        assert_eq!(running.end().0, 9);
    }
}

#[test]
fn a_signal_that_ends_the_command_is_its_code_and_the_lease_is_released() {
    if !can_be_interrupted() {
        return;
    }
    let scratch = Scratch::new();
    for (signal, code) in [(Signal::SIGHUP, 129), (Signal::SIGINT, 130), (Signal::SIGQUIT, 131), (Signal::SIGTERM, 143)]
    {
        let running = scratch.ready(&[], "ulimit -c 0; echo ready; exec sleep 600");
        running.signal(signal);
        assert_eq!(running.end(), (code, String::new()));
        let status = scratch.done(&["status", "k"]);
        assert!(status.out.contains("free"), "{status:?}");
    }
}

#[test]
fn a_signal_reaches_the_whole_group() {
    let scratch = Scratch::new();
    let inner = "trap 'echo inner; exit' TERM; echo ready; while :; do sleep 0.02; done";
    let running = scratch.ready(&[], &format!("trap 'wait; echo outer; exit 3' TERM; sh -c \"{inner}\" & wait"));
    running.signal(Signal::SIGTERM);
    let mut said = [running.line(), running.line()].map(Option::unwrap);
    said.sort();
    assert_eq!(said, ["inner", "outer"]);
    assert_eq!(running.end().0, 3);
}

#[test]
fn a_signal_ends_the_wait_and_gives_the_place_in_the_queue_back() {
    if !can_be_interrupted() {
        return;
    }
    let scratch = Scratch::new();
    let holder = scratch.ready(&["--lease", "3600", "--grace", "1"], "echo ready; exec sleep 600");
    for (signal, code) in [(Signal::SIGHUP, 129), (Signal::SIGINT, 130), (Signal::SIGQUIT, 131), (Signal::SIGTERM, 143)]
    {
        let waiter = scratch.start(&["run", "-q", "--lease", "3600", "--grace", "1", "k", "echo", "ran"]);
        until_queued(&scratch, 1);
        waiter.signal(signal);
        assert_eq!(waiter.line(), None);
        assert_eq!(waiter.end(), (code, String::new()));
        assert_eq!(queued(&scratch), 0, "its row is gone, though its lease is an hour");
    }
    drop(holder);
}

/// What `nohup` asks for.
#[test]
fn what_was_ignored_before_stays_ignored() {
    if !std::path::Path::new("/proc/self/status").exists() {
        return skip("this system does not tell what is ignored");
    }
    let scratch = Scratch::new();
    let script = "trap '' HUP; exec leasehold run k -- sh -c 'echo ready; read line; echo $line'";
    let mut command = scratch.command("sh", &["-c", script]);
    let mut running = Running::start(command.stdin(Stdio::piped()));
    assert_eq!(running.line().as_deref(), Some("ready"));
    running.signal(Signal::SIGHUP);
    running.input().write_all(b"still here\n").unwrap();
    assert_eq!(running.line().as_deref(), Some("still here"));
    assert_eq!(running.end(), (0, String::new()));
}

#[test]
fn a_command_that_is_stopped_keeps_its_lease_and_goes_on_with_leasehold() {
    let scratch = Scratch::new();
    // It waits without starting anything: a shell that is stopped while it starts a program may not show it.
    let script = "mkfifo f; exec 3<>f; trap 'echo went on; exit 4' USR1; echo ready; echo $$; read line <&3";
    let running = scratch.ready(&["--lease", "2", "--on-loss", "warn"], script);
    let command: i32 = running.line().unwrap().parse().unwrap();
    killpg(Pid::from_raw(command), Signal::SIGSTOP).unwrap();
    running.until_err("is stopped, and the lease of \"k\" is still renewed; SIGCONT to leasehold");
    let rival = scratch.done(&["run", "-q", "-w", "4.5", "--lease", "2", "k", "true"]);
    assert_eq!(rival.code, 1, "twice the lease has passed: {rival:?}");
    running.signal(Signal::SIGUSR1);
    running.signal(Signal::SIGCONT);
    assert_eq!(running.line().as_deref(), Some("went on"));
    assert_eq!(running.end().0, 4);
}

/// TERM has to wake up who is stopped.
#[test]
fn a_command_that_is_stopped_can_be_ended() {
    let scratch = Scratch::new();
    let running = scratch.ready(&[], "echo ready; echo $$; exec sleep 600");
    let command: i32 = running.line().unwrap().parse().unwrap();
    killpg(Pid::from_raw(command), Signal::SIGSTOP).unwrap();
    running.until_err("is stopped");
    running.signal(Signal::SIGTERM);
    assert_eq!(running.end().0, 143);
}

#[test]
fn a_holder_that_is_killed_is_replaced_within_a_second() {
    is_right_once(repeat_with(replacing_a_killed_holder).take(5), |took| *took < Duration::from_secs(1));
}

fn replacing_a_killed_holder() -> Duration {
    let scratch = Scratch::new();
    let holder = scratch.ready(&[], "echo ready; echo $$; exec sleep 600");
    let command = Pid::from_raw(holder.line().unwrap().parse().unwrap());
    let waiter = scratch.start(&["run", "-q", "k", "echo", "granted"]);
    until_queued(&scratch, 1);
    let start = std::time::Instant::now();
    holder.signal(Signal::SIGKILL);
    assert_eq!(waiter.line().as_deref(), Some("granted"));
    let took = start.elapsed();
    println!("replaced after {took:?}");
    if cfg!(target_os = "linux") {
        wait_until("the end of its command", || kill(command, None) == Err(Errno::ESRCH) || is_zombie(command));
    }
    took
}

fn is_zombie(process: Pid) -> bool {
    std::fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| stat.contains(") Z "))
}

/// Nobody waits: the next request takes over from a dead holder at once, instead of after the length of a lease.
#[test]
fn a_holder_that_is_killed_does_not_block_who_comes_later() {
    let scratch = Scratch::new();
    let holder = scratch.ready(&["--lease", "60"], "echo ready; exec sleep 600");
    drop(holder);
    let start = std::time::Instant::now();
    assert_eq!(scratch.done(&["run", "-w", "10", "k", "true"]).code, 0);
    assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
}

/// A server may take seconds to answer, or a file to be unlocked.
#[test]
fn a_signal_ends_the_wait_for_a_store_that_does_not_open() {
    if !std::path::Path::new("/proc/self/status").exists() {
        return skip("this system does not tell which signals are handled");
    }
    let scratch = Scratch::new();
    let mut other = Connection::open(scratch.file()).unwrap();
    let busy = other.transaction_with_behavior(rusqlite::TransactionBehavior::Exclusive).unwrap();
    for arguments in [&["run", "k", "true"][..], &["elect", "k", "true"], &["steal", "k"], &["watch", "--json"]] {
        // Without the signal, the program would give up after 5 s. On a busy machine, the test may notice the end late.
        is_right_once(repeat_with(|| ending_by_a_signal(&scratch, arguments)).take(5), |took| {
            *took < Duration::from_secs(4)
        });
    }
    drop(busy);
}

fn ending_by_a_signal(scratch: &Scratch, arguments: &[&str]) -> Duration {
    let running = scratch.start(arguments);
    wait_until("its handler", || handles(running.pid(), Signal::SIGTERM));
    let start = std::time::Instant::now();
    running.signal(Signal::SIGTERM);
    let (code, err) = running.end();
    assert_eq!(code, 143, "{arguments:?}: {err}");
    start.elapsed()
}

fn handles(process: Pid, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> (signal as i32 - 1) & 1 == 1)
}

/// A shell stops its script at `^C` only if INT itself ended what it ran.
#[test]
fn int_ends_leasehold_by_itself_as_it_ended_the_command_or_the_wait() {
    if !can_be_interrupted() {
        return;
    }
    let scratch = Scratch::new();
    let mut running = scratch.ready(&[], "echo ready; exec sleep 600");
    let mut waiter = scratch.start(&["run", "-q", "k", "true"]);
    until_queued(&scratch, 1);
    waiter.signal(Signal::SIGINT);
    assert_eq!(waiter.status().signal(), Some(Signal::SIGINT as i32));
    running.signal(Signal::SIGINT);
    assert_eq!(running.status().signal(), Some(Signal::SIGINT as i32));
    let status = scratch.done(&["status", "k"]);
    assert!(status.out.contains("free; its next token will be above"), "{status:?}");
    // A command that takes care of INT itself has a code of its own.
    let mut running = scratch.ready(&[], &format!("trap 'exit 130' INT; {NAPS}"));
    running.signal(Signal::SIGINT);
    assert_eq!(running.status().code(), Some(130));
    let mut running = scratch.ready(&[], "echo ready; exec sleep 600");
    running.signal(Signal::SIGTERM);
    assert_eq!(running.status().code(), Some(143), "no shell asks for more");
}

/// It leaves the queue and the store before it stops, at whatever moment it is told.
#[test]
fn who_is_stopped_while_it_waits_is_in_nobodys_way() {
    let scratch = Scratch::new();
    let holder = scratch.ready(&[], "echo ready; exec sleep 600");
    let other = Connection::open(scratch.file()).unwrap();
    other.busy_timeout(LIMIT).unwrap();
    let start_and_stop = |order: &str, moment: Duration| {
        // A group of its own makes it the job of a process that can continue it: the kernel stops no others by TSTP.
        let waits = Running::start(scratch.leasehold(&[order, "-q", "k", "echo", "granted"]).process_group(0));
        thread::sleep(moment);
        waits.signal(Signal::SIGTSTP);
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
        wait_until("the stop", || matches!(waitpid(waits.pid(), Some(flags)), Ok(WaitStatus::Stopped(..))));
        waits
    };
    for round in 0..40 {
        let order = if round % 2 == 0 { "run" } else { "elect" };
        let _stopped = start_and_stop(order, Duration::from_micros(1_500 * round));
        other.execute_batch("BEGIN IMMEDIATE; ROLLBACK").expect("others can write to the store");
        assert_eq!(queued(&scratch), 0, "it waits while it is stopped");
    }
    let stopped = start_and_stop("run", Duration::from_millis(60));
    holder.signal(Signal::SIGTERM);
    let next = scratch.done(&["run", "-q", "-w", "15", "k", "echo", "next"]);
    assert_eq!((next.code, &*next.out), (0, "next\n"), "{next:?}");
    stopped.signal(Signal::SIGCONT);
    assert_eq!(stopped.line().as_deref(), Some("granted"));
    assert_eq!(stopped.end(), (0, String::new()));
}

/// Another program keeps the file locked, for longer than a process that is to end waits for its store.
#[test]
fn who_is_stopped_while_the_file_is_locked_leaves_the_queue_first() {
    let scratch = Scratch::new();
    let _holder = scratch.ready(&[], "echo ready; exec sleep 600");
    let waits = Running::start(scratch.leasehold(&["run", "-q", "k", "echo", "granted"]).process_group(0));
    until_queued(&scratch, 1);
    let other = Connection::open(scratch.file()).unwrap();
    other.busy_timeout(LIMIT).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    waits.signal(Signal::SIGTSTP);
    thread::sleep(Duration::from_secs(2));
    other.execute_batch("ROLLBACK").unwrap();
    let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
    wait_until("the stop", || matches!(waitpid(waits.pid(), Some(flags)), Ok(WaitStatus::Stopped(..))));
    assert_eq!(queued(&scratch), 0, "it waits while it is stopped");
}

/// The file is locked for longer than a process waits before it stops. By its end the process would be stopped, and hear nothing.
#[test]
fn who_is_to_end_or_to_go_on_before_it_has_left_the_queue_does_not_stop() {
    for order in ["run", "elect"] {
        let scratch = Scratch::new();
        let holder = scratch.ready(&[], "echo ready; exec sleep 600");
        let start = || Running::start(scratch.leasehold(&[order, "-q", "k", "echo", "granted"]).process_group(0));
        let (ends, goes_on) = (start(), start());
        until_queued(&scratch, 2);
        let other = Connection::open(scratch.file()).unwrap();
        other.busy_timeout(LIMIT).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        [&ends, &goes_on].into_iter().for_each(|waits| waits.signal(Signal::SIGTSTP));
        thread::sleep(Duration::from_millis(500));
        ends.signal(Signal::SIGTERM);
        goes_on.signal(Signal::SIGCONT);
        assert_eq!(ends.end(), (143, String::new()));
        other.execute_batch("ROLLBACK").unwrap();
        holder.signal(Signal::SIGTERM);
        assert_eq!(goes_on.line().as_deref(), Some("granted"));
        assert_eq!(goes_on.end(), (0, String::new()));
    }
}

/// The store says only once whom it robs, so `^Z` must not stop it between the theft and its report.
#[test]
#[cfg(target_os = "linux")]
fn a_theft_that_is_told_to_stop_is_carried_out_and_reported() {
    let scratch = Scratch::new();
    let holder = scratch.ready(&["--on-loss", "warn"], "echo ready; exec sleep 600");
    let mut other = Connection::open(scratch.file()).unwrap();
    let busy = other.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    // A group of its own makes it the job of a process that can continue it: the kernel stops no others by TSTP.
    let thief = Running::start(scratch.leasehold(&["steal", "k"]).process_group(0));
    let listens = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", thief.pid())).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
        caught & (1 << (Signal::SIGTSTP as i32 - 1)) != 0
    };
    wait_until("it listens", listens);
    thief.signal(Signal::SIGTSTP);
    drop(busy);
    assert!(thief.line().is_some_and(|line| line.starts_with("took \"k\" from ")), "{}", thief.err());
    assert_eq!(thief.end(), (0, String::new()));
    holder.until_err("another process stole it");
    // Its command goes on after a loss, and would go on after the end of the test.
    holder.signal(Signal::SIGTERM);
    assert_eq!(holder.end().0, 143);
}

/// As some programs leave it to what they start.
#[test]
fn a_blocked_chld_keeps_nobody_from_noticing_the_end_of_the_command() {
    let scratch = Scratch::new();
    for options in [&[][..], &["--block-signal=CHLD"]] {
        let arguments = [options, &["leasehold", "run", "k", "--", "grep", "SigBlk", "/proc/self/status"]].concat();
        let done = crate::harness::done(&mut scratch.command("env", &arguments));
        if done.code == 125 || !cfg!(target_os = "linux") {
            return skip("this env blocks no signals");
        }
        assert_eq!(done.code, 0, "{done:?}");
        let blocked = u64::from_str_radix(done.out.trim().rsplit('\t').next().unwrap(), 16).unwrap();
        let chld = 1 << (Signal::SIGCHLD as i32 - 1);
        assert_eq!(blocked, if options.is_empty() { 0 } else { chld }, "the command inherits it: {done:?}");
    }
}

/// They are for the command, and no command is there yet.
#[test]
fn usr1_and_usr2_do_not_end_a_waiter() {
    let scratch = Scratch::new();
    for order in ["run", "elect"] {
        let holder = scratch.ready(&[], "echo ready; exec sleep 600");
        let waiter = scratch.start(&[order, "-q", "k", "echo", "granted"]);
        until_queued(&scratch, 1);
        waiter.signal(Signal::SIGUSR1);
        waiter.signal(Signal::SIGUSR2);
        drop(holder);
        assert_eq!(waiter.line().as_deref(), Some("granted"), "{order}");
        assert_eq!(waiter.end(), (0, String::new()));
    }
}
