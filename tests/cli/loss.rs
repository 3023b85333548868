//! The lease is lost while the command runs.

use std::{
    fs,
    iter::repeat_with,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rusqlite::{Connection, TransactionBehavior};

use crate::harness::{Running, Scratch, is_right_once};
use crate::other;
use crate::signals::NAPS;
use crate::skipped::skip;
use crate::until::wait_until;
use crate::wall_clock::preloaded;

fn steal(scratch: &Scratch) {
    let done = scratch.done(&["steal", "k"]);
    assert_eq!(done.code, 0, "{done:?}");
}

fn ended(running: Running, why: &str) {
    let (code, err) = running.end();
    assert_eq!(code, 75, "{err}");
    assert!(err.contains("the lease of \"k\"") && err.contains(why), "{err}");
}

#[test]
fn a_theft_ends_the_command() {
    let scratch = Scratch::new();
    let running = scratch.ready(&[], &format!("trap 'echo told; exit 0' TERM; {NAPS}"));
    steal(&scratch);
    assert_eq!(running.line().as_deref(), Some("told"));
    ended(running, "another process stole it");
}

#[test]
fn a_command_that_ignores_term_is_killed_after_the_grace() {
    let scratch = Scratch::new();
    let running = scratch.ready(&["--grace", "0.6"], &format!("trap '' TERM; {NAPS}"));
    let start = Instant::now();
    steal(&scratch);
    assert_eq!(running.line(), None, "nobody has stdout open any more");
    assert!(start.elapsed() >= Duration::from_millis(600), "{:?}", start.elapsed());
    ended(running, "killed in 0.6 s");
}

#[test]
fn a_command_with_no_grace_is_killed_at_once() {
    let scratch = Scratch::new();
    let running = scratch.ready(&["--grace", "0"], &format!("trap '' TERM; {NAPS}"));
    steal(&scratch);
    assert_eq!(running.line(), None);
    ended(running, "killed in 0 s");
}

/// The command ends at TERM; what it has started does not.
#[test]
fn what_the_command_has_started_is_killed_too() {
    let scratch = Scratch::new();
    let stubborn = "trap '' TERM; while :; do sleep 0.02; done";
    let running = scratch.ready(&["--grace", "0.4"], &format!("sh -c \"{stubborn}\" & echo ready; exec sleep 600"));
    steal(&scratch);
    assert_eq!(running.line(), None, "the grandchild had stdout open");
    ended(running, "another process stole it");
}

/// A leasehold that is the first process of a container. It adopts what its command leaves behind, but reaps only the command (a `sleep`,
/// which reaps nothing), so the rest become zombies. `None` if no container can be made. The lines of shell come first.
#[cfg(target_os = "linux")]
fn first_in_a_container(scratch: &Scratch, before: &str, grace: &str) -> Option<Running> {
    let contained = ["--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c"];
    let in_it = |line: &str| scratch.command("unshare", &[&contained[..], &[line]].concat());
    if !in_it(before).status().is_ok_and(|ran| ran.success()) {
        skip("this user may not make a namespace of processes");
        return None;
    }
    let command = "sleep 600 & echo ready; exec sleep 600";
    let run = format!("{before}; exec leasehold run --lease 600 --grace {grace} k -- sh -c '{command}'");
    let running = Running::start(&mut in_it(&run));
    assert_eq!(running.line().as_deref(), Some("ready"));
    Some(running)
}

#[test]
#[cfg(target_os = "linux")]
fn a_process_that_ended_and_was_not_reaped_is_not_waited_for() {
    let scratch = Scratch::new();
    // The grace is longer than anything takes.
    let Some(running) = first_in_a_container(&scratch, "true", "120") else { return };
    steal(&scratch);
    ended(running, "another process stole it");
}

/// Then a process of another user may live that nobody sees.
#[test]
#[cfg(target_os = "linux")]
fn zombies_are_not_believed_where_the_system_hides_processes() {
    let scratch = Scratch::new();
    let Some(running) = first_in_a_container(&scratch, "mount -o remount,hidepid=2 /proc", "0.6") else { return };
    let start = Instant::now();
    steal(&scratch);
    ended(running, "another process stole it");
    assert!(start.elapsed() >= Duration::from_millis(600), "{:?}", start.elapsed());
}

/// To the system such a process looks like a zombie.
#[test]
#[cfg(target_os = "linux")]
fn a_process_whose_first_thread_has_ended_is_killed_too() {
    let scratch = Scratch::new();
    let folder = other::Scratch::new();
    let Some(library) = preloaded("first_thread_ends", &folder) else { return };
    let script = format!("echo ready; LD_PRELOAD={} sleep 0 & exec sleep 600", library.display());
    let running = scratch.ready(&["--grace", "0.6"], &script);
    assert_eq!(running.line().as_deref(), Some("works"));
    steal(&scratch);
    // It goes on until it is killed. Then nobody has stdout open any more. By itself it would write three thousand lines.
    let lines = repeat_with(|| running.line()).take_while(Option::is_some).take(1_000).count();
    assert!(lines < 1_000, "it is not killed");
    ended(running, "killed in 0.6 s");
}

/// The inner leasehold started a group of its own, to which the outer one sends nothing.
#[test]
#[cfg(target_os = "linux")]
fn a_command_under_two_leases_is_killed_with_the_outer_one() {
    let scratch = Scratch::new();
    let script = "exec leasehold run inner -- sh -c 'trap \"\" TERM; echo ready; exec sleep 600'";
    let running = scratch.ready(&["--grace", "0.4"], script);
    steal(&scratch);
    assert_eq!(running.line(), None, "the innermost command had stdout open");
    ended(running, "another process stole it");
    assert_eq!(scratch.done(&["run", "-n", "inner", "true"]).code, 0);
}

#[test]
fn a_command_that_is_stopped_is_ended_too() {
    let scratch = Scratch::new();
    let running = scratch.ready(&[], "trap 'echo told; exit 0' TERM; echo ready; kill -STOP $$; echo never");
    running.until_err("is stopped");
    steal(&scratch);
    assert_eq!(running.line().as_deref(), Some("told"), "it goes on, and hears TERM");
    ended(running, "another process stole it");
}

/// Takes the lease of `k` away, and tells nobody.
pub(crate) fn take_unheard(scratch: &Scratch) {
    let other = Connection::open(scratch.file()).unwrap();
    other.busy_timeout(crate::harness::LIMIT).unwrap();
    let value: String = other
        .query_row("SELECT name FROM pragma_table_info('leasehold_record') LIMIT 1 OFFSET 1", [], |row| row.get(0))
        .unwrap();
    let ended = format!(
        "UPDATE leasehold_record SET {value} = json_set({value}, '$.grants', json('[]'), '$.revision', {value} ->> '$.revision' + 1)"
    );
    assert_eq!(other.execute(&ended, []).unwrap(), 1);
}

/// The command has ended by itself by then. With `--on-loss warn`, its own code counts.
#[test]
fn a_loss_that_only_the_release_finds_has_the_code_of_a_loss() {
    let scratch = Scratch::new();
    for (on_loss, expected) in [("kill", 75), ("warn", 6)] {
        let options = ["--lease", "600", "--on-loss", on_loss];
        let running = scratch.ready(&options, &format!("trap 'exit 6' USR1; {NAPS}"));
        take_unheard(&scratch);
        running.signal(Signal::SIGUSR1);
        let (code, err) = running.end();
        assert!(code == expected && err.contains("had been lost before the command ended"), "{code}: {err}");
    }
}

#[test]
fn a_store_that_is_deleted_ends_the_command() {
    let scratch = Scratch::new();
    let running = scratch.ready(&["--lease", "2"], &format!("trap 'echo told; exit 0' TERM; {NAPS}"));
    for suffix in ["", "-wal", "-shm"] {
        fs::remove_file(format!("{}{suffix}", scratch.file().display())).unwrap();
    }
    assert_eq!(running.line().as_deref(), Some("told"));
    ended(running, "its store failed or was deleted");
}

#[test]
fn a_store_that_refuses_for_good_says_why_the_lease_is_lost() {
    let scratch = Scratch::new();
    let running = scratch.ready(&["--lease", "2"], &format!("trap 'echo told; exit 0' TERM; {NAPS}"));
    let other_program = Connection::open(scratch.file()).unwrap();
    other_program.execute_batch("DROP TABLE leasehold_session").unwrap();
    assert_eq!(running.line().as_deref(), Some("told"));
    ended(running, "is lost: its store failed or was deleted (the tables of the leases were changed or dropped");
}

/// The store is silent: KILL comes before anybody else can be granted the key, even for who ignores TERM.
#[test]
fn a_lease_that_cannot_be_renewed_ends_the_command_before_the_lease() {
    const LEASE: Duration = Duration::from_secs(6);
    is_right_once(repeat_with(told_and_killed).take(4), |&(told, killed)| {
        println!("told after {told:?} and killed after {killed:?} of a lease of {LEASE:?}");
        let has_its_grace = killed.saturating_sub(told) >= Duration::from_millis(400);
        has_its_grace && killed < LEASE
    });
}

/// How long after its store fell silent the command heard of TERM, and how long after that silence began it was killed.
fn told_and_killed() -> (Duration, Duration) {
    let scratch = Scratch::new();
    let script = format!("echo ready; echo $$; trap 'echo told' TERM; {NAPS}");
    let running = scratch.ready(&["--lease", "6", "--grace", "0.5"], &script);
    let command = Pid::from_raw(running.line().unwrap().parse().unwrap());
    assert_eq!(running.line().as_deref(), Some("ready"), "the trap is set");
    let mut other = Connection::open(scratch.file()).unwrap();
    other.busy_timeout(Duration::from_secs(10)).unwrap();
    let busy = other.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let start = Instant::now();
    // It says nothing if the machine is so busy that the command does not run before KILL.
    let said = running.line();
    let told = if said.as_deref() == Some("told") { start.elapsed() } else { Duration::MAX };
    wait_until("its end", || kill(command, None) == Err(Errno::ESRCH));
    let killed = start.elapsed();
    drop(busy);
    ended(running, "cannot be renewed: another connection held the write lock");
    (told, killed)
}

/// A store that is silent for a moment costs nothing.
#[test]
fn a_store_that_answers_again_in_time_ends_nothing() {
    // On a busy machine, the heartbeats of a short lease may be late anyhow.
    is_right_once([1, 3, 9].into_iter().map(is_silent_for_a_while), |(said, ended)| {
        said.as_deref() == Some("done") && *ended == (0, String::new())
    });
}

/// What the command says last, and how leasehold ends, when the file is locked for a fourth of its lease.
fn is_silent_for_a_while(factor: u32) -> (Option<String>, (i32, String)) {
    let scratch = Scratch::new();
    let [lease, work] = [3.0, 2.5].map(|seconds| (seconds * f64::from(factor)).to_string());
    let running =
        scratch.ready(&["--lease", &lease, "--grace", "0.1"], &format!("echo ready; sleep {work}; echo done"));
    let mut other = Connection::open(scratch.file()).unwrap();
    other.busy_timeout(Duration::from_secs(10)).unwrap();
    let busy = other.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    std::thread::sleep(Duration::from_millis(700) * factor);
    drop(busy);
    (running.line(), running.end())
}

#[test]
fn a_loss_is_only_told_if_that_was_chosen() {
    let scratch = Scratch::new();
    let running = scratch.ready(&["--on-loss", "warn"], &format!("trap 'echo bye; exit 6' USR1; {NAPS}"));
    steal(&scratch);
    running.until_err("another process stole it; the command goes on without it");
    running.signal(Signal::SIGUSR1);
    assert_eq!(running.line().as_deref(), Some("bye"));
    assert_eq!(running.end().0, 6);
}

/// A store that does not answer cannot tell leasehold of a loss. Here the lease is not lost, because nobody wants it.
#[test]
fn warn_tells_of_a_late_lease_and_of_its_outcome() {
    let scratch = Scratch::new();
    let options = ["--on-loss", "warn", "--lease", "2"];
    let running = scratch.ready(&options, &format!("trap 'exit 6' USR1; echo ready; {NAPS}"));
    assert_eq!(running.line().as_deref(), Some("ready"), "the trap is set");
    let mut other = Connection::open(scratch.file()).unwrap();
    other.busy_timeout(Duration::from_secs(10)).unwrap();
    let busy = other.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    running.until_err("cannot be renewed");
    running.until_err("soon after, another process may be granted the key");
    drop(busy);
    running.until_err("the store has confirmed the lease of \"k\" again: it was never lost");
    steal(&scratch);
    running.until_err("another process stole it; the command goes on without it");
    running.signal(Signal::SIGUSR1);
    assert_eq!(running.end().0, 6);
}

/// It was stopped past its lease, and when it goes on, the store cannot tell it what happened.
#[test]
fn warn_does_not_belittle_a_lease_that_has_run_out() {
    let scratch = Scratch::new();
    let running = scratch.ready(&["--on-loss", "warn", "--lease", "1"], NAPS);
    scratch.stop(&running);
    let rival = scratch.done(&["run", "-q", "-w", "20", "--lease", "1", "k", "echo", "granted"]);
    assert_eq!((rival.code, &*rival.out), (0, "granted\n"), "{rival:?}");
    let mut other = Connection::open(scratch.file()).unwrap();
    other.busy_timeout(Duration::from_secs(10)).unwrap();
    let busy = other.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    running.signal(Signal::SIGCONT);
    running.until_err("the command goes on, and another process may have been granted the key");
    drop(busy);
    running.until_err("is lost: ");
    running.signal(Signal::SIGTERM);
    assert_eq!(running.end().0, 143, "the command went on");
}

/// A leasehold that is stopped cannot end anything: it does so when it goes on.
#[test]
fn a_leasehold_that_was_stopped_past_its_lease_ends_the_command() {
    let scratch = Scratch::new();
    let running = scratch.ready(&["--lease", "1"], NAPS);
    scratch.stop(&running);
    let rival = scratch.done(&["run", "-q", "-w", "20", "--lease", "1", "k", "echo", "granted"]);
    assert_eq!((rival.code, &*rival.out), (0, "granted\n"), "{rival:?}");
    running.signal(Signal::SIGCONT);
    assert_eq!(running.line(), None);
    assert_eq!(running.end().0, 75);
}

#[test]
fn a_release_that_fails_is_told_and_the_code_is_the_commands() {
    // On a busy machine, the lease may be lost before the command ends.
    is_right_once([2, 2, 8].into_iter().map(failing_release), |(code, err)| {
        *code == 8 && err.contains("the lease of \"k\" could not be released")
    });
}

/// The exit code and the messages of a leasehold whose lease has this many seconds, if the file is locked while the command ends.
fn failing_release(lease: u64) -> (i32, String) {
    let scratch = Scratch::new();
    let options = ["--lease", &lease.to_string(), "--grace", "0.1"];
    let running = scratch.ready(&options, "trap 'exit 8' USR1; echo ready; while :; do sleep 0.02; done");
    let mut other = Connection::open(scratch.file()).unwrap();
    other.busy_timeout(Duration::from_secs(10)).unwrap();
    let busy = other.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    running.signal(Signal::SIGUSR1);
    let ended = running.end();
    drop(busy);
    // The system frees what was left.
    assert_eq!(scratch.done(&["run", "-w", "20", "k", "true"]).code, 0);
    ended
}
