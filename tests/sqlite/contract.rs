//! The contract that all stores keep.

use std::time::Duration;

use leasehold::{
    machine::Key,
    store::{SqliteStore, contract},
};
use rusqlite::OptionalExtension;
use tokio::runtime::Runtime;

use crate::{Scratch, connect, file, manager};

#[test]
fn it_keeps_the_contract() {
    let scratch = Scratch::new();
    let open = async || SqliteStore::open(file(&scratch.0)).unwrap();
    Runtime::new().unwrap().block_on(contract::all(open));
}

#[test]
fn what_it_cannot_read_stays() {
    let scratch = Scratch::new();
    let open = async || SqliteStore::open(file(&scratch.0)).unwrap();
    drop(SqliteStore::open(file(&scratch.0)).unwrap());
    let other = connect(&scratch.0);
    let put = async |key: String, text: String| {
        let sql = "INSERT INTO leasehold_record VALUES (?1, ?2)";
        other.execute(sql, [key, text]).unwrap();
    };
    let text = async |key: String| {
        let sql = "SELECT state FROM leasehold_record WHERE key = ?1";
        other.query_row(sql, [key], |row| row.get(0)).optional().unwrap()
    };
    Runtime::new().unwrap().block_on(contract::unreadable(open, put, text));
}

#[test]
fn new_sessions_are_told_of_others() {
    let scratch = Scratch::new();
    let open = async || SqliteStore::open(file(&scratch.0)).unwrap();
    futures::executor::block_on(contract::new_sessions_are_told_of_others(open));
}

#[test]
fn threads_take_turns() {
    let scratch = Scratch::new();
    let open = async || SqliteStore::open(file(&scratch.0)).unwrap();
    contract::in_threads(open, |work| futures::executor::block_on(work));
}

/// A key with a NUL, and one that begins where another ends.
#[test]
fn keys_are_listed_by_their_prefix_in_order() {
    use leasehold::store::Store;
    let scratch = Scratch::new();
    let store = SqliteStore::open(file(&scratch.0)).unwrap();
    let other = connect(&scratch.0);
    let names = ["b", "a\u{0}", "a", "ab", "aé", "a\u{1f98a}", "A"];
    for name in names {
        other.execute("INSERT INTO leasehold_record VALUES (?1, '{}')", [name]).unwrap();
    }
    let listed = futures::executor::block_on(store.keys("a")).unwrap();
    let listed: Vec<_> = listed.iter().map(Key::as_str).collect();
    assert_eq!(listed, ["a", "a\u{0}", "ab", "aé", "a\u{1f98a}"]);
}

#[test]
fn it_needs_no_runtime() {
    let scratch = Scratch::new();
    let open = async || SqliteStore::open(file(&scratch.0)).unwrap();
    futures::executor::block_on(contract::all(open));
}

/// Each context forgets what it no longer uses, but for the last few hundred keys. So it takes many contexts to leave many.
#[test]
fn a_file_with_many_idle_records_is_swept() {
    let scratch = Scratch::new();
    let other = || connect(&scratch.0);
    let count = "SELECT count(*) FROM leasehold_record";
    let records = || other().query_row(count, [], |row| row.get::<_, i64>(0)).unwrap();
    Runtime::new().unwrap().block_on(async {
        for context in 0..3 {
            let leases = manager(&scratch.0).linger(Duration::ZERO).build().unwrap();
            for name in 0..200 {
                let guard = leases.lock(&format!("{context}-{name}")).acquire().await.unwrap();
                guard.release().await.unwrap();
            }
            leases.close().await;
        }
        assert_eq!(records(), 600, "idle records stay at first");
        let leases = manager(&scratch.0).build().unwrap();
        let guard = leases.lock("0-199").acquire().await.unwrap();
        while records() > 1 {
            tokio::task::yield_now().await;
        }
        assert!(guard.is_valid());
        assert!(guard.token().as_u64() > 64, "tokens go on growing: {:?}", guard.token());
    });
}
