//! How a store ends, and its files with it.

use std::{fs, path::PathBuf, pin::pin, time::Duration};

use futures::{FutureExt, executor::block_on};
use leasehold::{
    LeaseManager,
    executor::{Executor, TokioExecutor},
    machine::{Batch, SessionId},
    store::{SqliteStore, Store},
};
use rusqlite::TransactionBehavior;

use crate::{Scratch, connect, file, until::wait_until};

/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);

/// A call that was given up is no reason for the next one to say that the file is closed.
#[test]
fn whoever_closes_a_store_again_waits_until_its_file_is_closed() {
    let scratch = Scratch::new();
    let store = SqliteStore::open(file(&scratch.0)).unwrap();
    let mut database = connect(&scratch.0);
    let writes = database.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let mut asked = pin!(store.transact(Batch::new(SessionId(1), Vec::new()), TokioExecutor::new().now(), BUSY));
    assert!(asked.as_mut().now_or_never().is_none(), "another connection writes");
    assert!(store.close().now_or_never().is_none(), "the thread waits for that connection");
    let mut again = pin!(store.close());
    assert!(again.as_mut().now_or_never().is_none(), "the file is still open");
    drop(writes);
    block_on(again);
    block_on(asked).unwrap();
    let error = block_on(store.keys("")).unwrap_err();
    assert!(error.message.contains("was closed"), "{error}");
    block_on(store.close());
}

/// As in a program that opens the store for each of its jobs.
#[test]
fn stores_that_are_dropped_leave_no_file_open() {
    let scratch = Scratch::new();
    for round in 0..200 {
        let store = SqliteStore::open(file(&scratch.0)).unwrap();
        match round % 3 {
            0 => drop(store),
            1 => drop(LeaseManager::builder(store, TokioExecutor::new()).build().unwrap()),
            _ => drop(store.keys("").now_or_never()),
        }
    }
    let is_ours = |path: PathBuf| path.starts_with(&scratch.0);
    // Without `/proc` there is nothing to see.
    let is_open = || {
        let mut files = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        files.any(|file| fs::read_link(file.path()).is_ok_and(is_ours))
    };
    // The thread of each store closes the file a moment later.
    wait_until("no file is open", || !is_open());
}
