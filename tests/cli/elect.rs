//! A command that runs whenever its process is elected.

use nix::sys::signal::Signal;

use crate::harness::Scratch;
use crate::show::until_queued;

const TERM: &str = "echo $LEASEHOLD_TOKEN; exec sleep 600";

#[test]
fn the_command_runs_again_after_a_loss() {
    let scratch = Scratch::new();
    let candidate = scratch.start(&["elect", "k", "--", "sh", "-c", TERM]);
    let first: u64 = candidate.line().unwrap().parse().unwrap();
    assert_eq!(scratch.done(&["steal", "k"]).code, 0);
    let second: u64 = candidate.line().unwrap().parse().unwrap();
    assert!(second > first, "{second} after {first}");
    candidate.signal(Signal::SIGTERM);
    let (code, err) = candidate.end();
    assert_eq!(code, 143, "{err}");
    assert!(err.contains("the leadership of \"k\" was lost; campaigning again"), "{err}");
}

#[test]
fn a_dead_leader_is_followed_by_the_next_candidate() {
    let scratch = Scratch::new();
    let leader = scratch.start(&["elect", "k", "--", "sh", "-c", TERM]);
    leader.line().unwrap();
    let next = scratch.start(&["elect", "-q", "k", "--", "sh", "-c", TERM]);
    until_queued(&scratch, 1);
    leader.signal(Signal::SIGKILL);
    next.line().unwrap();
    next.signal(Signal::SIGTERM);
    assert_eq!(next.end(), (143, String::new()));
}

#[test]
fn a_command_that_ends_by_itself_ends_the_election() {
    let scratch = Scratch::new();
    let done = scratch.done(&["elect", "k", "sh", "-c", "exit 9"]);
    assert_eq!((done.code, &*done.err), (9, ""));
    assert!(scratch.done(&["status", "k"]).out.contains("free"));
}

#[test]
fn a_store_that_is_replaced_is_campaigned_in_anew() {
    let scratch = Scratch::new();
    let candidate = scratch.start(&["elect", "--lease", "2", "k", "--", "sh", "-c", TERM]);
    candidate.line().unwrap();
    for suffix in ["", "-wal", "-shm"] {
        std::fs::remove_file(format!("{}{suffix}", scratch.file().display())).unwrap();
    }
    candidate.line().unwrap();
    assert_eq!(scratch.done(&["run", "-n", "k", "true"]).code, 1, "it leads in the new file");
    candidate.signal(Signal::SIGTERM);
    assert_eq!(candidate.end().0, 143);
}

/// The store is away for longer than a lease.
#[test]
fn a_candidate_whose_store_is_away_campaigns_again_when_it_is_back() {
    let scratch = Scratch::new();
    let leader = scratch.start(&["elect", "--lease", "1", "k", "--", "sh", "-c", TERM]);
    leader.line().unwrap();
    let next = scratch.start(&["elect", "--lease", "1", "k", "--", "sh", "-c", TERM]);
    until_queued(&scratch, 1);
    let mut other = rusqlite::Connection::open(scratch.file()).unwrap();
    let busy = other.transaction_with_behavior(rusqlite::TransactionBehavior::Exclusive).unwrap();
    leader.until_err("campaigning again");
    leader.until_err("trying again");
    drop(busy);
    crate::until::wait_until("somebody leads again", || scratch.done(&["status", "k"]).out.contains("held"));
    for candidate in [&leader, &next] {
        candidate.signal(Signal::SIGTERM);
    }
    assert_eq!([leader.end().0, next.end().0], [143, 143], "neither has given up");
}

/// The store refuses, while the processes that wait have it open.
#[test]
fn who_waits_for_a_store_that_fails_says_why() {
    let scratch = Scratch::new();
    let leader = scratch.start(&["run", "--lease", "600", "k", "--", "sh", "-c", TERM]);
    leader.line().unwrap();
    let waiters = ["elect", "run"].map(|order| scratch.start(&[order, "--lease", "1", "k", "--", "sh", "-c", TERM]));
    let quiet = scratch.start(&["elect", "-q", "--lease", "1", "k", "--", "sh", "-c", TERM]);
    until_queued(&scratch, 3);
    let mut other = rusqlite::Connection::open(scratch.file()).unwrap();
    let busy = other.transaction_with_behavior(rusqlite::TransactionBehavior::Exclusive).unwrap();
    for waiter in &waiters {
        waiter.until_err("still waiting for \"k\"");
    }
    drop(busy);
    drop(leader);
    for waiter in waiters.iter().chain([&quiet]) {
        waiter.signal(Signal::SIGTERM);
    }
    let ends = waiters.map(crate::harness::Running::end);
    assert!(ends.iter().all(|(code, _)| *code == 143), "none has given up: {ends:?}");
    assert_eq!(quiet.end(), (143, String::new()));
}

/// Else such candidates would pile up.
#[test]
fn a_candidate_that_only_tries_does_not_wait_for_its_store() {
    let scratch = Scratch::new();
    let leader = scratch.start(&["elect", "-n", "--lease", "1", "k", "--", "sh", "-c", TERM]);
    leader.line().unwrap();
    let mut other = rusqlite::Connection::open(scratch.file()).unwrap();
    let busy = other.transaction_with_behavior(rusqlite::TransactionBehavior::Exclusive).unwrap();
    leader.until_err("campaigning again");
    assert_eq!(leader.end().0, 69);
    drop(busy);
}

/// The theft comes first; TERM while the command has its grace ends the election as well.
#[test]
fn a_signal_during_the_grace_ends_the_election() {
    let scratch = Scratch::new();
    let script = format!("trap 'echo told' TERM; {}", crate::signals::NAPS);
    let candidate = scratch.start(&["elect", "--grace", "2", "k", "--", "sh", "-c", &script]);
    assert_eq!(candidate.line().as_deref(), Some("ready"));
    assert_eq!(scratch.done(&["steal", "k"]).code, 0);
    assert_eq!(candidate.line().as_deref(), Some("told"));
    candidate.signal(Signal::SIGTERM);
    assert_eq!(candidate.line().as_deref(), Some("told"), "it is passed on as well");
    assert_eq!(candidate.end().0, 143);
}

#[test]
fn who_is_not_elected_at_once_or_in_time_gives_1_or_the_code_that_was_chosen() {
    let scratch = Scratch::new();
    let leader = scratch.start(&["elect", "k", "--", "sh", "-c", TERM]);
    leader.line().unwrap();
    for limit in [&["-n"][..], &["-w", "0.2"], &["--wait", "0"]] {
        for (chosen, code) in [(&[][..], 1), (&["-E", "42"][..], 42)] {
            let mut arguments = vec!["elect"];
            arguments.extend(limit);
            arguments.extend(chosen);
            arguments.extend(["k", "echo", "ran"]);
            scratch.ends(&arguments, (code, "", ""));
        }
    }
    assert_eq!(scratch.done(&["elect", "-n", "another", "true"]).code, 0);
    drop(leader);
    assert_eq!(scratch.done(&["elect", "-n", "k", "true"]).code, 0, "a dead leader does not count");
}

/// The thief goes on leading.
#[test]
fn a_campaign_after_a_loss_has_the_same_limit() {
    let scratch = Scratch::new();
    let candidate = scratch.start(&["elect", "-n", "-E", "7", "k", "--", "sh", "-c", TERM]);
    candidate.line().unwrap();
    let thief = scratch.start(&["steal", "k", "--", "sh", "-c", TERM]);
    thief.line().unwrap();
    let (code, err) = candidate.end();
    assert!(code == 7 && err.contains("campaigning again"), "{code}: {err}");
}

#[test]
fn a_leader_that_is_only_warned_goes_on_without_another_campaign() {
    let scratch = Scratch::new();
    let script = format!("trap 'echo bye; exit 6' USR1; {}", crate::signals::NAPS);
    let leader = scratch.start(&["elect", "--on-loss", "warn", "k", "--", "sh", "-c", &script]);
    assert_eq!(leader.line().as_deref(), Some("ready"));
    assert_eq!(scratch.done(&["steal", "k"]).code, 0);
    leader.until_err("another process stole it; the command goes on without it");
    leader.signal(Signal::SIGUSR1);
    assert_eq!(leader.line().as_deref(), Some("bye"));
    let (code, err) = leader.end();
    assert!(code == 6 && !err.contains("campaigning"), "{code}: {err}");
}

/// The theft is told to nobody: leasehold learns of it at the release.
#[test]
fn a_signal_ends_the_election_though_the_lease_turns_out_to_be_lost() {
    let scratch = Scratch::new();
    let candidate = scratch.start(&["elect", "--lease", "600", "k", "--", "sh", "-c", TERM]);
    candidate.line().unwrap();
    crate::loss::take_unheard(&scratch);
    candidate.signal(Signal::SIGTERM);
    assert_eq!(candidate.line(), None, "it does not run again");
    let (code, err) = candidate.end();
    assert!(code == 143 && err.contains("had been lost before the command ended"), "{code}: {err}");
}
