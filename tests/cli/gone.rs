//! The file of the store is deleted while leasehold has it open.

use std::fs;

use nix::sys::signal::Signal;

use crate::harness::{Running, Scratch};
use crate::show::until_queued;
use crate::until::wait_until;

pub(crate) fn delete(scratch: &Scratch) {
    for suffix in ["", "-wal", "-shm"] {
        fs::remove_file(format!("{}{suffix}", scratch.file().display())).unwrap();
    }
}

#[test]
fn a_waiter_whose_file_is_deleted_waits_on_in_the_new_one() {
    let scratch = Scratch::new();
    let holder = scratch.ready(&[], "echo ready; exec sleep 600");
    let command = ["--lease", "2", "k", "--", "sh", "-c", "echo granted; exec sleep 600"];
    let waiters = ["run", "elect"].map(|order| scratch.start(&[&[order], &command[..]].concat()));
    until_queued(&scratch, 2);
    delete(&scratch);
    // One of them is granted the key in the new file, and the other one after it.
    wait_until("a grant", || scratch.file().exists() && scratch.done(&["status", "k"]).out.contains("held"));
    drop(holder);
    until_queued(&scratch, 1);
    for waiter in &waiters {
        waiter.until_err("was deleted or replaced");
        waiter.signal(Signal::SIGTERM);
    }
    for (code, err) in waiters.map(Running::end) {
        assert!(code == 143 && !err.contains("open it again"), "it is opened again already: {err}");
    }
}

/// The waiter is about to say who is in its way.
#[test]
fn a_waiter_whose_file_is_deleted_is_told_so_and_of_no_other_failure() {
    let scratch = Scratch::new();
    let _holder = scratch.ready(&[], "echo ready; exec sleep 600");
    let waiter = scratch.start(&["run", "k", "echo", "granted"]);
    until_queued(&scratch, 1);
    delete(&scratch);
    assert_eq!(waiter.line().as_deref(), Some("granted"));
    let (code, err) = waiter.end();
    assert!(code == 0 && err.contains("was deleted or replaced"), "{code}: {err}");
    assert!(!err.contains("suspended") && !err.contains("the store failed"), "{err}");
}

#[test]
fn a_watcher_of_a_file_that_is_deleted_watches_on() {
    let scratch = Scratch::new();
    assert_eq!(scratch.done(&["run", "k", "true"]).code, 0);
    let watcher = scratch.start(&["watch", "--json"]);
    assert_eq!(watcher.line().as_deref(), Some("[]"));
    delete(&scratch);
    watcher.until_err("was deleted or replaced");
    watcher.until_err("there is no such file yet");
    assert!(!watcher.err().contains("suspended"), "{}", watcher.err());
    assert!(!scratch.file().exists(), "who looks makes no store");
    let _holder = scratch.ready(&[], "echo ready; exec sleep 600");
    assert!(std::iter::from_fn(|| watcher.line()).any(|line| line.contains("exec sleep 600")));
    watcher.signal(Signal::SIGTERM);
    assert_eq!(watcher.end().0, 143);
}
