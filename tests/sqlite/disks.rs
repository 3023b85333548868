//! Disks that take no more: each is told with its remedy.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use leasehold::{
    AcquireError, FenceError,
    machine::StoreErrorKind,
    store::{SqliteStore, Store},
};
use nix::errno::Errno;
use rusqlite::TransactionBehavior;
use tokio::runtime::Runtime;

use crate::{
    Other, Scratch, connect, file, full::SmallDisk, manager, say, skipped::leave_out, told, wall_clock::preloaded,
};

/// So long that no heartbeat comes in between.
const LONG_LEASE: Duration = Duration::from_secs(3_600);

/// The other process: tries to acquire one key more, each time that it is told.
pub(crate) fn acquire_when_told(directory: &Path) {
    Runtime::new().unwrap().block_on(async {
        let leases = manager(directory).lease(LONG_LEASE).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        say("held");
        for name in told() {
            assert!(guard.is_valid());
            match leases.lock(&name).timeout(Duration::from_secs(1)).acquire().await {
                Ok(more) => {
                    std::mem::forget(more);
                    say("granted");
                }
                Err(AcquireError::Quota(error)) => say(&format!("Quota: {error}")),
                Err(error) => say(&error.to_string()),
            }
        }
    });
}

/// The other process: fences two transactions, each when it is told to. Both have written more than the cache of their connection holds.
pub(crate) fn fence_when_told(directory: &Path) {
    Runtime::new().unwrap().block_on(async {
        let leases = manager(directory).lease(LONG_LEASE).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        let mut database = connect(directory);
        database.execute_batch("PRAGMA cache_size = 10; CREATE TABLE notes (text TEXT)").unwrap();
        let mut fence = |begun: fn()| {
            let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
            for _ in 0..50 {
                transaction.execute("INSERT INTO notes VALUES (?)", ["long".repeat(1_000)]).unwrap();
            }
            begun();
            match guard.fence(&transaction).into_inner() {
                Ok(_) => say("granted"),
                Err(FenceError::Store(error)) => say(&format!("{:?}: {error}", error.kind)),
                Err(error) => say(&error.to_string()),
            }
        };
        fence(|| {
            say("held");
            told().next();
        });
        told().next();
        fence(|| ());
    });
}

/// What a process in this role says when its writes fail with this error. After that they succeed again.
fn told_of(role: &str, errno: Errno) -> Option<String> {
    let scratch = Scratch::new();
    let library = preloaded("refused_writes", &scratch)?;
    let why: PathBuf = scratch.0.join("why");
    let program = env::current_exe().expect("this test is a file");
    let mut other = Other::start_by(&program, role, &scratch, |command| {
        command.env("LD_PRELOAD", library).env("LEASEHOLD_TEST_REFUSES", &why);
    });
    assert_eq!(other.hear(), "held");
    fs::write(&why, (errno as i32).to_string()).unwrap();
    let said = other.ask("more");
    fs::remove_file(why).unwrap();
    assert_eq!(other.ask("again"), "granted");
    let names: Vec<_> = fs::read_dir(&scratch.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().contains("probe")), "{names:?}");
    Some(said)
}

#[test]
fn the_error_names_a_quota_that_is_used_up() {
    let Some(said) = told_of("one more", Errno::EDQUOT) else { return };
    assert!(said.starts_with("Quota: ") && said.contains("raise the quota"), "{said}");
}

/// The fence reads rows. To make room for them in its cache, SQLite writes others to the disk.
#[test]
fn a_fence_names_a_quota_that_is_used_up() {
    let Some(said) = told_of("fences", Errno::EDQUOT) else { return };
    assert!(said.starts_with("Quota: ") && said.contains("raise the quota"), "{said}");
}

/// As after an error of the disk.
#[test]
fn the_error_names_a_file_system_that_became_read_only() {
    let Some(said) = told_of("one more", Errno::EROFS) else { return };
    assert!(said.contains("read-only") && said.contains("mount it for writing"), "{said}");
}

#[test]
fn opening_a_file_names_a_read_only_file_system() {
    let Some(disk) = SmallDisk::mount("disks::opening_a_file_names_a_read_only_file_system") else { return };
    Runtime::new().unwrap().block_on(SqliteStore::open(file(&disk.0)).unwrap().close());
    let mounted = Command::new("mount").args(["-o", "remount,ro"]).arg(&disk.0).status();
    assert!(mounted.is_ok_and(|status| status.success()), "it is mounted anew");
    for path in [file(&disk.0), disk.0.join("new.db")] {
        let error = SqliteStore::open(path).expect_err("nobody may write");
        assert!(error.message.contains("mount it for writing"), "{error}");
        assert_eq!((error.kind, error.retry), (StoreErrorKind::Unsupported, false), "{error}");
    }
}

/// SQLite makes its log and the index of that anew, and says only that it failed.
#[test]
fn opening_a_file_names_a_full_disk() {
    let Some(disk) = SmallDisk::mount("disks::opening_a_file_names_a_full_disk") else { return };
    Runtime::new().unwrap().block_on(SqliteStore::open(file(&disk.0)).unwrap().close());
    disk.fill();
    for path in [file(&disk.0), disk.0.join("new.db")] {
        let error = SqliteStore::open(path).expect_err("there is no room for its log");
        assert!(error.message.contains("no room left on the disk"), "{error}");
        assert_eq!((error.kind, error.retry), (StoreErrorKind::Quota, true), "{error}");
        assert!(error.to_string().contains("(not applied; make room)"), "{error}");
    }
}

/// A container that has the file without its folder would keep a log of its own, and never see who holds what.
#[test]
fn a_file_that_is_mounted_without_its_folder_is_refused() {
    let may_mount = Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|status| status.success());
    if !may_mount {
        return leave_out("only root can mount a file, and not in every container");
    }
    let (outside, inside) = (Scratch::new(), Scratch::new());
    drop(SqliteStore::open(file(&outside.0)).unwrap());
    fs::write(file(&inside.0), "").unwrap();
    let opened_with = |mounts: &[[&Path; 2]]| {
        let mount =
            "while test \"$1\" != --; do mount --bind \"$1\" \"$2\" && shift 2 || exit; done; shift; exec \"$@\"";
        let change = |command: &mut Command| {
            command
                .args(["--mount", "sh", "-c", mount, "sh"])
                .args(mounts.concat())
                .arg("--")
                .arg(env::current_exe().unwrap());
        };
        Other::start_by(Path::new("unshare"), "opener", &inside, change).hear()
    };
    let (of_outside, of_inside) = (file(&outside.0), file(&inside.0));
    let told = opened_with(&[[&of_outside, &of_inside]]);
    assert!(told.contains("mount the folder instead"), "{told}");
    assert_eq!(opened_with(&[[&outside.0, &inside.0]]), "opened");
    // A process with another directory of beacons would take living holders for dead.
    drop(SqliteStore::open(&of_inside).unwrap());
    let told = opened_with(&[[&outside.0, &inside.0.join("leases.db-leasehold.d")]]);
    assert!(told.contains("unmount it"), "{told}");
    assert_eq!(opened_with(&[[&of_inside, &of_inside]]), "opened", "it has other options, and is in its folder");
    let other = Scratch::new();
    fs::write(file(&other.0), "").unwrap();
    let hidden = opened_with(&[[&file(&other.0), &of_inside], [&outside.0, &inside.0]]);
    assert_eq!(hidden, "opened", "nobody sees the file that is mounted alone");
}

/// In a container, a link to /run or /tmp leads to a directory of its own. Then a waiter took a living holder for dead after 2.5 s.
#[test]
fn a_link_in_place_of_the_directory_of_beacons_is_refused() {
    let (scratch, other) = (Scratch::new(), Scratch::new());
    let store = SqliteStore::open(file(&scratch.0)).unwrap();
    Runtime::new().unwrap().block_on(store.close());
    let directory = scratch.0.join("leases.db-leasehold.d");
    fs::remove_dir(&directory).unwrap();
    for to in [&other.0, &scratch.0.join("missing")] {
        symlink(to, &directory).unwrap();
        let error = SqliteStore::open(file(&scratch.0)).expect_err("others may meet elsewhere");
        assert!(!error.retry && error.message.contains("put a directory in its place"), "{error}");
        fs::remove_file(&directory).unwrap();
    }
    SqliteStore::open(file(&scratch.0)).unwrap();
}
