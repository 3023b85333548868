//! SQLite's own locks, the log beside the file, and the names that lead to it: whatever happens to them, holders are notified.

use std::{
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::Path,
    process::Command,
    sync::mpsc,
    thread,
    time::Duration,
};

use leasehold::{LeaseGuard, LeaseManager, LostReason, executor::TokioExecutor, store::SqliteStore};
use rusqlite::Connection;
use tokio::runtime::Runtime;

use crate::{Other, Scratch, connect, file, manager, say};

/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);
/// Long enough that neither its end nor a heartbeat tells anybody.
const LONG: Duration = Duration::from_secs(3_600);

/// The other process: writes if nobody else does, and says what came of it.
pub(crate) fn write_at_once(directory: &Path) {
    let database = Connection::open(file(directory)).unwrap();
    database.busy_timeout(Duration::ZERO).unwrap();
    let written = database.execute_batch("BEGIN IMMEDIATE; INSERT INTO diary VALUES ('another'); COMMIT");
    say(&written.map_or_else(|error| error.to_string(), |()| "written".into()));
}

/// A process loses its locks on a file when it closes any descriptor of it.
#[test]
fn a_look_leaves_the_locks_of_its_own_process_alone() {
    let scratch = Scratch::new();
    let own = connect(&scratch.0);
    own.execute_batch("CREATE TABLE diary (line); BEGIN IMMEDIATE; INSERT INTO diary VALUES ('mine')").unwrap();
    for _ in 0..3 {
        assert!(SqliteStore::open_read_only(file(&scratch.0), "leasehold").unwrap().is_none());
        assert_eq!(Other::start("rival writer", &scratch).hear(), "database is locked");
    }
    own.execute_batch("COMMIT").unwrap();
    let lines: Vec<String> =
        own.prepare("SELECT line FROM diary").unwrap().query_map([], |row| row.get(0)).unwrap().flatten().collect();
    assert_eq!(lines, ["mine"]);
}

async fn is_told(leases: &LeaseManager, guard: &LeaseGuard) {
    assert_eq!(tokio::time::timeout(BUSY, guard.lost()).await, Ok(LostReason::StoreFailed));
    let error = leases.lock("other").acquire().await.expect_err("nobody else could see it");
    assert!(error.to_string().contains("deleted or replaced"), "{error}");
}

/// A list without names in use makes no transaction.
#[test]
fn a_list_tells_that_its_file_was_deleted_although_no_name_is_in_use() {
    let scratch = Scratch::new();
    Runtime::new().unwrap().block_on(async {
        let leases = manager(&scratch.0).build().unwrap();
        assert!(leases.list("").await.unwrap().is_empty());
        fs::remove_file(file(&scratch.0)).unwrap();
        let error = leases.list("").await.expect_err("whoever opens the path now finds another file");
        assert!(error.to_string().contains("deleted or replaced"), "{error}");
    });
}

/// Whoever opens the file then makes another log or another index of it, and neither sees what the other writes.
#[test]
fn a_holder_whose_log_or_its_index_is_deleted_is_notified() {
    for ends in [&["-wal", "-shm"][..], &["-shm"]] {
        let scratch = Scratch::new();
        Runtime::new().unwrap().block_on(async {
            let leases = manager(&scratch.0).lease(LONG).build().unwrap();
            let guard = leases.lock("k").acquire().await.unwrap();
            for end in ends {
                fs::remove_file(scratch.0.join(format!("leases.db{end}"))).unwrap();
            }
            is_told(&leases, &guard).await;
        });
    }
}

/// The path still leads to the same file. But whoever opens it then looks for the log and the signals where the file is now.
#[test]
fn a_holder_whose_file_is_moved_and_linked_to_is_notified() {
    let whole: fn(&Path) = |directory| {
        let moved = directory.with_extension("moved");
        fs::rename(directory, &moved).unwrap();
        symlink(&moved, directory).unwrap();
    };
    let alone: fn(&Path) = |directory| {
        fs::rename(file(directory), directory.join("moved.db")).unwrap();
        symlink(directory.join("moved.db"), file(directory)).unwrap();
    };
    for relocate in [alone, whole] {
        let scratch = Scratch::new();
        let directory = scratch.0.join("data");
        fs::create_dir(&directory).unwrap();
        Runtime::new().unwrap().block_on(async {
            let leases = manager(&directory).lease(LONG).build().unwrap();
            let guard = leases.lock("k").acquire().await.unwrap();
            relocate(&directory);
            is_told(&leases, &guard).await;
        });
    }
}

#[test]
fn whoever_opened_a_link_that_leads_elsewhere_by_now_is_told() {
    let scratch = Scratch::new();
    let (link, draft) = (file(&scratch.0), scratch.0.join("draft"));
    symlink(scratch.0.join("one.db"), &link).unwrap();
    Runtime::new().unwrap().block_on(async {
        let leases = manager(&scratch.0).lease(LONG).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        drop(Connection::open(scratch.0.join("two.db")).unwrap().execute_batch("CREATE TABLE t (a)"));
        symlink(scratch.0.join("two.db"), &draft).unwrap();
        fs::rename(draft, link).unwrap();
        is_told(&leases, &guard).await;
    });
}

/// Opening a pipe would wait for its other end.
#[test]
fn what_is_no_regular_file_is_refused() {
    let scratch = Scratch::new();
    let pipe = scratch.0.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for open in [
        |path: &Path| SqliteStore::open(path).map(drop),
        |path: &Path| SqliteStore::open_read_only(path, "leasehold").map(drop),
    ] {
        let (tell, told) = mpsc::channel();
        let path = pipe.clone();
        thread::spawn(move || tell.send(open(&path)));
        let error = told.recv_timeout(BUSY).expect("it hangs").expect_err("it is refused");
        assert!(error.message.contains("not a regular file"), "{error}");
    }
}

#[test]
fn a_path_that_is_not_utf_8_is_refused_and_nothing_is_made() {
    let scratch = Scratch::new();
    let path = scratch.0.join(std::ffi::OsStr::from_bytes(b"caf\xe9.db"));
    let error = SqliteStore::open(&path).expect_err("it is refused");
    assert!(error.message.contains("not UTF-8"), "{error}");
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0);
}

#[test]
fn whoever_asks_a_store_that_only_looks_for_a_lease_is_told_how_to_get_one() {
    let scratch = Scratch::new();
    Runtime::new().unwrap().block_on(async {
        let leases = manager(&scratch.0).build().unwrap();
        let _guard = leases.lock("k").acquire().await.unwrap();
        let looks = SqliteStore::open_read_only(file(&scratch.0), "leasehold").unwrap().expect("there are leases");
        let looks = LeaseManager::builder(looks, TokioExecutor::new()).build().unwrap();
        let error = looks.lock("other").try_acquire().await.expect_err("it grants nothing");
        assert!(error.to_string().contains("open the file with SqliteStore::open"), "{error}");
    });
}
