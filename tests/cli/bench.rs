//! `leasehold bench`, when somebody disturbs it.

use std::os::unix::process::CommandExt;

use nix::sys::{
    signal::Signal,
    wait::{WaitPidFlag, WaitStatus, waitpid},
};

use crate::harness::{Running, Scratch, can_be_interrupted};
use crate::until::wait_until;

fn key(bench: &Running) -> String {
    format!("leasehold bench {}", bench.pid())
}

/// Long enough that it runs until it is told to end.
fn start(scratch: &Scratch) -> Running {
    // A group of its own makes it the job of a process that can continue it.
    let bench = Running::start(scratch.leasehold(&["bench", "--rounds", "100000"]).process_group(0));
    wait_until("its first lease", || {
        scratch.file().exists() && scratch.done(&["list", &key(&bench)]).out.contains("bench")
    });
    bench
}

#[test]
fn a_theft_of_its_key_ends_nothing_but_a_round() {
    let scratch = Scratch::new();
    let mut bench = scratch.start(&["bench", "--rounds", "300"]);
    let key = key(&bench);
    // Thefts all along: some of them come between two hand-offs.
    let mut thefts = 0;
    loop {
        let thief = scratch.done(&["steal", &key]);
        thefts += 1;
        // On a busy machine, the bench may keep a thief from the file until its time limit.
        let is_late = thief.code == 69
            && ["did not answer within", "until the time limit"].iter().any(|why| thief.err.contains(why));
        assert!(thief.code == 0 || is_late, "{thief:?}");
        if bench.has_ended() {
            break;
        }
        assert!(thefts < 2_000, "it goes on");
    }
    let (code, err) = bench.end();
    assert_eq!((code, &*err), (0, ""));
}

#[test]
fn a_bench_that_is_stopped_leaves_the_store_to_others_and_goes_on() {
    let scratch = Scratch::new();
    let other = rusqlite::Connection::open(scratch.file()).unwrap();
    other.busy_timeout(crate::harness::LIMIT).unwrap();
    let bench = start(&scratch);
    for _ in 0..20 {
        bench.signal(Signal::SIGTSTP);
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
        wait_until("the stop", || matches!(waitpid(bench.pid(), Some(flags)), Ok(WaitStatus::Stopped(..))));
        other.execute_batch("BEGIN IMMEDIATE; ROLLBACK").expect("others can write to the store");
        bench.signal(Signal::SIGCONT);
    }
    bench.signal(Signal::SIGTERM);
    assert_eq!(bench.end(), (143, String::new()));
}

#[test]
fn a_bench_that_is_ended_gives_its_key_back() {
    if !can_be_interrupted() {
        return;
    }
    let scratch = Scratch::new();
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
        let bench = start(&scratch);
        let key = key(&bench);
        bench.signal(signal);
        assert_eq!(bench.end(), (code, String::new()));
        assert!(scratch.done(&["status", &key]).out.contains("free"), "its row is gone");
    }
}
