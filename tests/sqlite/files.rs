//! Files that cannot be opened, or are lost on the way: each is told with its remedy, and nothing in it is touched.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use leasehold::{LostReason, StoreError, store::SqliteStore};
use rusqlite::Connection;
use tokio::runtime::Runtime;

use crate::{Other, Scratch, connect, file, manager, say};

fn refusal(path: impl AsRef<Path>) -> String {
    let error: StoreError = SqliteStore::open(path).expect_err("it is refused");
    assert!(!error.retry, "{error}");
    error.message
}

#[test]
fn what_no_other_process_could_open_is_refused() {
    for path in ["", ":memory:"] {
        let message = refusal(path);
        assert!(message.contains("MemoryStore"), "{message}");
    }
}

#[test]
fn a_path_that_leads_to_no_file_is_refused_by_name() {
    let scratch = Scratch::new();
    for path in [scratch.0.clone(), scratch.0.join("missing/leases.db")] {
        let message = refusal(&path);
        assert!(message.starts_with(path.to_str().unwrap()), "{message}");
        assert!(message.contains("directory must exist"), "{message}");
    }
}

#[test]
fn a_file_of_another_kind_is_refused_and_kept() {
    let scratch = Scratch::new();
    let text = "a diary\n".repeat(1_000);
    fs::write(file(&scratch.0), &text).unwrap();
    let message = refusal(file(&scratch.0));
    assert!(message.contains("no SQLite database"), "{message}");
    assert_eq!(fs::read_to_string(file(&scratch.0)).unwrap(), text);
}

#[test]
fn a_table_of_another_program_is_refused_and_kept() {
    let scratch = Scratch::new();
    let other = connect(&scratch.0);
    other
        .execute_batch("CREATE TABLE Leasehold_Record (tenant, rent); INSERT INTO leasehold_record VALUES (1, 2)")
        .unwrap();
    let message = refusal(file(&scratch.0));
    assert!(message.contains("leasehold_record (tenant,rent)"), "{message}");
    assert!(message.contains("open_with_prefix"), "{message}");
    let tables: i64 = other.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0)).unwrap();
    assert_eq!(tables, 1, "nothing was made beside it");
    SqliteStore::open_with_prefix(file(&scratch.0), "locks").unwrap();
}

#[test]
fn a_newer_format_is_refused_and_kept() {
    let scratch = Scratch::new();
    drop(SqliteStore::open(file(&scratch.0)).unwrap());
    connect(&scratch.0).execute("UPDATE leasehold_store SET version = 2", []).unwrap();
    let message = refusal(file(&scratch.0));
    assert!(message.contains("the format 2") && message.contains("update"), "{message}");
}

#[test]
fn a_prefix_that_begins_no_table_is_refused() {
    let scratch = Scratch::new();
    for prefix in ["", "1st", "my-app", "a\"; DROP TABLE x; --", "sqlite_x", &"x".repeat(41)] {
        let error = SqliteStore::open_with_prefix(file(&scratch.0), prefix).expect_err("it is refused");
        assert!(error.message.contains(&format!("{prefix:?}")), "{error}");
    }
    assert!(!file(&scratch.0).exists(), "no file is made for it");
}

#[test]
fn two_prefixes_are_two_stores() {
    let scratch = Scratch::new();
    Runtime::new().unwrap().block_on(async {
        let open = |prefix| {
            let store = SqliteStore::open_with_prefix(file(&scratch.0), prefix).unwrap();
            leasehold::LeaseManager::builder(store, leasehold::executor::TokioExecutor::new()).build().unwrap()
        };
        let (one, other) = (open("one"), open("other"));
        let guard = one.lock("k").acquire().await.unwrap();
        assert!(other.lock("k").try_acquire().await.unwrap().is_some());
        assert!(guard.is_valid());
    });
}

/// The other process: opens the file, and says what came of it.
pub(crate) fn open_as_told(directory: &Path) {
    say(&SqliteStore::open(file(directory)).map_or_else(|error| error.to_string(), |_| "opened".into()));
}

/// Root may write everything, so another user tries.
#[test]
fn a_file_that_cannot_be_written_is_refused() {
    let scratch = Scratch::new();
    drop(SqliteStore::open(file(&scratch.0)).unwrap());
    fs::set_permissions(file(&scratch.0), fs::Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o555)).unwrap();
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    let said = Other::start_by("opener", &scratch, |command| {
        if is_root {
            command.uid(65_534).gid(65_534);
        }
    })
    .hear();
    fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(said.contains("cannot be"), "{said}");
    assert!(said.contains("let this user write") || said.contains("must be allowed to write"), "{said}");
}

#[test]
fn a_file_that_is_deleted_or_replaced_takes_its_leases_along_at_once() {
    let delete: fn(&Path) = |path| fs::remove_file(path).unwrap();
    let replace: fn(&Path) = |path| {
        let draft = path.with_extension("draft");
        drop(Connection::open(&draft).unwrap().execute_batch("CREATE TABLE t (a)"));
        fs::rename(&draft, path).unwrap();
    };
    for lose in [delete, replace] {
        let scratch = Scratch::new();
        Runtime::new().unwrap().block_on(async {
            let leases = manager(&scratch.0).build().unwrap();
            let guard = leases.lock("k").acquire().await.unwrap();
            lose(&file(&scratch.0));
            let error = leases.lock("other").acquire().await.expect_err("nobody else could see it");
            assert!(error.to_string().contains("deleted or replaced"), "{error}");
            assert!(!guard.is_valid(), "whoever opens the path now finds another file");
            assert_eq!(guard.lost().await, LostReason::StoreFailed);
        });
    }
}

/// What is full is told as such, and passes when there is room again.
#[test]
fn a_full_disk_is_told_and_what_is_held_stays() {
    let Some(disk) = SmallDisk::mount() else { return };
    let scratch = &disk.0;
    Runtime::new().unwrap().block_on(async {
        let leases = manager(scratch).lease(Duration::from_secs(3_600)).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        let ballast = scratch.join("ballast");
        fs::write(&ballast, vec![0; 1 << 20]).expect_err("the disk is small");
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

/// A file system of 300 kB.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let path = std::env::temp_dir().join(format!("leasehold-disk-{}", std::process::id()));
        fs::create_dir_all(&path).ok()?;
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=300k", "leasehold"]).arg(&path).output();
        if mounted.is_ok_and(|mounted| mounted.status.success()) {
            return Some(Self(path));
        }
        println!("SKIPPED: a small file system can only be mounted by root");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).output());
        drop(fs::remove_dir(&self.0));
    }
}
