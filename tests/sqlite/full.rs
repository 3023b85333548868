//! Full disks: what is told, and who keeps a lease.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use futures::future::join_all;
use leasehold::{LeaseGuard, LeaseManager, ReleaseOutcome, store::SqliteStore};
use rusqlite::Connection;
use tokio::runtime::Runtime;

use crate::{Scratch, connect, file, manager, skipped::skip, until::until};

/// What is full is told as such, and passes when there is room again.
#[test]
fn a_full_disk_is_told_and_what_is_held_stays() {
    let Some(disk) = SmallDisk::mount("full::a_full_disk_is_told_and_what_is_held_stays") else { return };
    Runtime::new().unwrap().block_on(async {
        let leases = manager(&disk.0).lease(Duration::from_secs(3_600)).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        let ballast = disk.fill();
        let mut refused = None;
        for name in 0..100 {
            match leases
                .lock(&format!("more-{name}"))
                .info("x".repeat(4_000))
                .timeout(Duration::from_secs(1))
                .acquire()
                .await
            {
                Ok(more) => std::mem::forget(more),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        let refused = refused.expect("there is no room for so many");
        assert!(refused.to_string().contains("no room left"), "{refused}");
        assert!(guard.is_valid());
        fs::remove_file(ballast).unwrap();
        assert!(leases.lock("again").acquire().await.unwrap().is_valid());
        assert!(guard.verify().await.unwrap());
    });
}

/// SQLite cannot make the index of the log.
#[test]
fn who_looks_at_a_file_on_a_full_disk_is_told_why_it_fails() {
    let Some(disk) = SmallDisk::mount("full::who_looks_at_a_file_on_a_full_disk_is_told_why_it_fails") else { return };
    Runtime::new().unwrap().block_on(async {
        let leases = manager(&disk.0).build().unwrap();
        leases.lock("k").acquire().await.unwrap().release().await.unwrap();
        leases.close().await;
        disk.fill();
        let looked = SqliteStore::open_read_only(file(&disk.0), "leasehold");
        let error = looked.map(drop).expect_err("there is no room for the index of the log");
        assert!(error.to_string().contains("no room left"), "{error}");
    });
}

/// Each change is appended to the log, although most only replace rows.
#[test]
fn on_a_full_disk_rows_are_still_replaced() {
    let Some(disk) = SmallDisk::mount("full::on_a_full_disk_rows_are_still_replaced") else { return };
    Runtime::new().unwrap().block_on(async {
        let leases = manager(&disk.0).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        leases.lock("often").acquire().await.unwrap().release().await.unwrap();
        disk.fill();
        for _ in 0..100 {
            leases.lock("often").acquire().await.unwrap().release().await.unwrap();
        }
        assert!(guard.verify().await.unwrap());
    });
}

/// Rows of new keys make the database larger than its file, which grows only when the log is copied into it.
async fn outgrow(leases: &LeaseManager) -> Vec<LeaseGuard> {
    let mut guards = Vec::new();
    for key in 0..8 {
        guards.push(leases.lock(&format!("key {key}")).info("x".repeat(2_000)).acquire().await.unwrap());
    }
    guards
}

/// By how much the file is shorter than the database.
fn shortage(database: &Connection, directory: &Path) -> u64 {
    let number = |pragma| database.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).unwrap();
    let needed = (number("page_count") * number("page_size")).unsigned_abs();
    needed.saturating_sub(fs::metadata(file(directory)).unwrap().len())
}

/// On a full disk it would be too late for the file to grow.
#[test]
fn on_a_full_disk_the_leases_of_many_new_keys_are_still_renewed() {
    let Some(disk) = SmallDisk::mount("full::on_a_full_disk_the_leases_of_many_new_keys_are_still_renewed") else {
        return;
    };
    Runtime::new().unwrap().block_on(async {
        let leases = manager(&disk.0).build().unwrap();
        let guards = outgrow(&leases).await;
        let database = connect(&disk.0);
        until("the file has grown", async || shortage(&database, &disk.0) == 0).await;
        disk.fill();
        for guard in guards {
            guard.extend(Duration::from_secs(30)).await.unwrap();
            assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
        }
    });
}

/// The thread of the store is never idle for long. SQLite itself would copy the log only after twice as many transactions.
#[test]
fn the_file_of_a_busy_store_grows_with_the_database() {
    let scratch = Scratch::new();
    Runtime::new().unwrap().block_on(async {
        let leases = manager(&scratch.0).build().unwrap();
        let _guards = outgrow(&leases).await;
        let database = connect(&scratch.0);
        for _ in 0..120 {
            leases.lock("often").acquire().await.unwrap().release().await.unwrap();
            if shortage(&database, &scratch.0) == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the file has not grown");
    });
}

/// More than a megabyte at once, and less than what SQLite copies by itself.
#[test]
fn the_file_grows_with_the_rows_of_hundreds_of_keys() {
    let scratch = Scratch::new();
    Runtime::new().unwrap().block_on(async {
        let leases = manager(&scratch.0).build().unwrap();
        let request = |key| leases.lock(&format!("key {key}")).info("x".repeat(4_000)).acquire();
        let guards = join_all((0..300).map(request)).await;
        assert!(guards.iter().all(Result::is_ok));
        let database = connect(&scratch.0);
        until("the file has grown", async || shortage(&database, &scratch.0) == 0).await;
    });
}

/// While an application reads, perhaps for hours, the log cannot be copied. Each attempt writes a file beside the database, which changes
/// the directory.
#[test]
fn while_somebody_reads_the_room_of_the_disk_is_seldom_tried() {
    let scratch = Scratch::new();
    Runtime::new().unwrap().block_on(async {
        let leases = manager(&scratch.0).build().unwrap();
        leases.lock("k").acquire().await.unwrap().release().await.unwrap();
        let reader = connect(&scratch.0);
        reader.execute_batch("BEGIN; SELECT count(*) FROM sqlite_schema").unwrap();
        let _guards = outgrow(&leases).await;
        assert!(shortage(&connect(&scratch.0), &scratch.0) > 0, "or nothing is to be copied");
        let mut changes = HashSet::new();
        for _ in 0..30 {
            leases.lock("often").acquire().await.unwrap().release().await.unwrap();
            // The thread is idle for long enough to check the file.
            tokio::time::sleep(Duration::from_millis(150)).await;
            changes.insert(fs::metadata(&scratch.0).unwrap().modified().unwrap());
        }
        assert!(changes.len() <= 5, "{} changes of the directory", changes.len());
        drop(reader);
        until("the file has grown", async || shortage(&connect(&scratch.0), &scratch.0) == 0).await;
    });
}

/// What the application has written is in the log, and more than the disk has room for in the file.
#[test]
fn a_database_that_outgrows_its_disk_leaves_room_for_heartbeats() {
    let Some(disk) = SmallDisk::mount("full::a_database_that_outgrows_its_disk_leaves_room_for_heartbeats") else {
        return;
    };
    Runtime::new().unwrap().block_on(async {
        let leases = manager(&disk.0).lease(Duration::from_secs(4)).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        let mut database = connect(&disk.0);
        database.execute_batch("CREATE TABLE notes (text TEXT)").unwrap();
        let transaction = database.transaction().unwrap();
        for _ in 0..32 {
            transaction.execute("INSERT INTO notes VALUES (?)", ["x".repeat(3_500)]).unwrap();
        }
        transaction.commit().unwrap();
        drop(database);
        // Longer than the thread of the store takes to check the file, and than the lease lasts without a heartbeat.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(9) {
            assert!(guard.is_valid(), "{:?}", leases.stats());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
}

/// A file system of 300 kB.
pub(crate) struct SmallDisk(pub(crate) PathBuf);

impl SmallDisk {
    /// If this user may mount nothing, another process runs the test as root of its own namespace, and this returns `None`.
    pub(crate) fn mount(test: &str) -> Option<Self> {
        let name = format!("leasehold-disk-{}-{}", std::process::id(), test.replace("::", "-"));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).ok()?;
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=300k", "leasehold"]).arg(&path).output();
        if mounted.is_ok_and(|mounted| mounted.status.success()) {
            return Some(Self(path));
        }
        drop(fs::remove_dir(&path));
        let namespace = || {
            let mut command = Command::new("unshare");
            command.args(["--user", "--map-root-user", "--mount"]);
            command
        };
        if namespace().arg("true").output().is_ok_and(|tried| tried.status.success()) {
            let program = std::env::current_exe().expect("it runs");
            let ran = namespace().arg(program).args(["--exact", test, "--nocapture"]).output().expect("it was found");
            let said = String::from_utf8_lossy(&ran.stdout);
            assert!(
                ran.status.success() && said.contains("1 passed"),
                "{said}{}",
                String::from_utf8_lossy(&ran.stderr)
            );
            return None;
        }
        skip("this user may not mount a small file system, not even in a namespace made by unshare");
        None
    }

    /// Leaves no room on it. Returns the file that takes the room.
    pub(crate) fn fill(&self) -> PathBuf {
        let ballast = self.0.join("ballast");
        fs::write(&ballast, vec![0; 1 << 20]).expect_err("the disk is small");
        ballast
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).output());
        drop(fs::remove_dir(&self.0));
    }
}
