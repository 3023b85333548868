//! Files that cannot be opened, or are lost on the way: each is told with its remedy, and nothing in it is touched.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    time::Duration,
};

use leasehold::{
    LostReason, Mode, StoreError,
    executor::process_clock,
    machine::{Applied, Batch, SessionId, StoreErrorKind},
    store::{SqliteStore, Store},
};
use rusqlite::Connection;
use tokio::runtime::Runtime;

use crate::{Other, Scratch, connect, file, leases::with_longer_leases, manager, say};

/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);

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
    let missing = scratch.0.join("missing/leases.db");
    for (path, remedy) in [(&scratch.0, "name a file in it"), (&missing, "directory must exist")] {
        let message = refusal(path);
        assert!(message.starts_with(path.to_str().unwrap()), "{message}");
        assert!(message.contains(remedy), "{message}");
    }
}

#[test]
fn a_file_of_another_kind_is_refused_and_kept() {
    let scratch = Scratch::new();
    let text = "a diary\n".repeat(1_000);
    fs::write(file(&scratch.0), &text).unwrap();
    let message = refusal(file(&scratch.0));
    assert!(message.contains("not an SQLite database"), "{message}");
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
fn a_table_that_somebody_dropped_is_not_made_anew_beside_the_others() {
    let scratch = Scratch::new();
    drop(SqliteStore::open(file(&scratch.0)).unwrap());
    let other = connect(&scratch.0);
    for table in ["leasehold_record", "leasehold_session", "leasehold_store"] {
        other.execute_batch(&format!("ALTER TABLE {table} RENAME TO elsewhere")).unwrap();
        let message = refusal(file(&scratch.0));
        assert!(message.contains(table) && message.contains("drop the others"), "{message}");
        let message = SqliteStore::open_read_only(file(&scratch.0), "leasehold").map(drop).unwrap_err().to_string();
        assert!(message.contains(table) && message.contains("nobody knows"), "who only looks: {message}");
        other.execute_batch(&format!("ALTER TABLE elsewhere RENAME TO {table}")).unwrap();
    }
    drop(SqliteStore::open(file(&scratch.0)).unwrap());
    let all = ["store", "record", "session"].map(|kind| format!("DROP TABLE leasehold_{kind};")).concat();
    other.execute_batch(&all).unwrap();
    drop(SqliteStore::open(file(&scratch.0)).unwrap());
}

#[test]
fn a_newer_format_is_refused_and_kept() {
    let scratch = Scratch::new();
    drop(SqliteStore::open(file(&scratch.0)).unwrap());
    connect(&scratch.0).execute("UPDATE leasehold_store SET version = 2", []).unwrap();
    let message = refusal(file(&scratch.0));
    assert!(message.contains("the format 2") && message.contains("update"), "{message}");
}

/// Whoever reads the message deletes the record of the key that it names.
#[test]
fn a_record_that_cannot_be_read_is_named_by_its_own_key() {
    let scratch = Scratch::new();
    Runtime::new().unwrap().block_on(async {
        let open = || {
            let store = SqliteStore::open(file(&scratch.0)).unwrap();
            leasehold::LeaseManager::builder(store, leasehold::executor::TokioExecutor::new()).build().unwrap()
        };
        let (one, other) = (open(), open());
        for key in ["a", "b", "c"] {
            one.lock(key).acquire().await.unwrap().release().await.unwrap();
        }
        let change = "UPDATE leasehold_record SET state = '{}' WHERE key = 'b'";
        assert_eq!(connect(&scratch.0).execute(change, []).unwrap(), 1);
        let keys = || other.lock_all([("a", Mode::Exclusive), ("b", Mode::Exclusive), ("c", Mode::Exclusive)]);
        let messages = [keys().try_acquire().await.map(drop), keys().acquire().await.map(drop)]
            .map(|refused| refused.unwrap_err().to_string());
        assert!(
            messages.iter().all(|message| message.contains("the key \"b\": the stored value is no lease record")),
            "{messages:?}"
        );
        assert!(one.list("a").await.unwrap().is_empty() && one.lock("c").try_acquire().await.unwrap().is_some());
    });
}

#[test]
fn a_prefix_that_begins_no_table_is_refused() {
    let scratch = Scratch::new();
    for prefix in ["", "1st", "my-app", "Jobs", "a\"; DROP TABLE x; --", "sqlite", "sqlite_x", &"x".repeat(41)] {
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

pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// Root may write everything, so another user tries.
#[test]
fn a_file_that_cannot_be_written_is_refused() {
    let scratch = Scratch::new();
    drop(SqliteStore::open(file(&scratch.0)).unwrap());
    // Another user may not be let into the folder that this program is in.
    let program = scratch.0.join("opener");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(file(&scratch.0), fs::Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o555)).unwrap();
    let said = Other::start_by(&program, "opener", &scratch, |command| {
        if is_root() {
            command.uid(65_534).gid(65_534);
        }
    })
    .hear();
    fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(said.contains("cannot be"), "{said}");
    assert!(said.contains("let this user write") || said.contains("must be allowed to write"), "{said}");
}

/// Nobody asks the store for anything meanwhile: a heartbeat comes once in a quarter of an hour.
#[test]
fn whose_file_is_deleted_or_replaced_is_told_although_nobody_asks() {
    let delete: fn(&Path) = |path| fs::remove_file(path).unwrap();
    let replace: fn(&Path) = |path| {
        let draft = path.with_extension("draft");
        drop(Connection::open(&draft).unwrap().execute_batch("CREATE TABLE t (a)"));
        fs::rename(&draft, path).unwrap();
    };
    for lose in [delete, replace] {
        let scratch = Scratch::new();
        Runtime::new().unwrap().block_on(async {
            let leases = manager(&scratch.0).lease(Duration::from_secs(3_600)).build().unwrap();
            let guard = leases.lock("k").acquire().await.unwrap();
            lose(&file(&scratch.0));
            let told = tokio::time::timeout(Duration::from_secs(60), guard.lost()).await;
            assert_eq!(told, Ok(LostReason::StoreFailed));
            assert!(!guard.is_valid(), "whoever opens the path now finds another file");
            let error = leases.lock("other").acquire().await.expect_err("nobody else could see it");
            assert!(error.to_string().contains("deleted or replaced"), "{error}");
            for looked in [leases.status("k").await.map(drop), leases.list("").await.map(drop)] {
                let error = looked.expect_err("the file of this store is gone");
                assert!(error.to_string().contains("deleted or replaced"), "{error}");
            }
        });
    }
}

/// SQLite would have a log of its own beside each name, and none of two holders would see the other.
#[test]
fn a_file_with_two_names_is_refused() {
    let scratch = Scratch::new();
    drop(SqliteStore::open(file(&scratch.0)).unwrap());
    let second = scratch.0.join("second.db");
    fs::hard_link(file(&scratch.0), &second).unwrap();
    for path in [file(&scratch.0), second] {
        let message = refusal(path);
        assert!(message.contains("2 names (hard links)"), "{message}");
    }
}

/// SQLite would keep its journal under the name of the directory, find none, and damage the application's data.
#[test]
fn a_prefix_takes_no_name_of_sqlites_own() {
    for prefix in ["journal", "wal", "shm"] {
        let scratch = Scratch::new();
        let store = SqliteStore::open_with_prefix(file(&scratch.0), prefix).unwrap();
        futures::executor::block_on(store.close());
        let user = connect(&scratch.0);
        user.execute_batch("PRAGMA journal_mode = DELETE; CREATE TABLE t (a); INSERT INTO t VALUES (1)").unwrap();
    }
}

/// To SQLite, such a name may be a URI.
#[test]
fn a_path_is_a_path() {
    let scratch = Scratch::new();
    let path = scratch.0.join("file:leases.db?mode=memory");
    drop(SqliteStore::open(&path).unwrap());
    assert!(path.exists());
}

/// A program that opens the URL, and one that takes it for a path, would not share leases.
#[test]
fn a_url_is_not_taken_for_a_path() {
    for (url, remedy) in [
        ("sqlite:leases.db", "store::from_url"),
        ("sqlite:///var/lib/app/leases.db", "store::from_url"),
        ("file:leases.db?mode=ro", "write the path alone"),
    ] {
        let message = refusal(url);
        assert!(message.contains(url) && message.contains(remedy), "{message}");
        assert!(!Path::new(url).exists(), "{url} was made");
    }
}

#[test]
fn a_file_in_utf_16_is_refused() {
    let scratch = Scratch::new();
    connect(&scratch.0).execute_batch("PRAGMA encoding = 'UTF-16'; CREATE TABLE t (a)").unwrap();
    let message = refusal(file(&scratch.0));
    assert!(message.contains("UTF-16"), "{message}");
}

/// Who reads in another journal mode keeps the file from being switched.
#[test]
fn a_file_in_another_journal_mode_that_is_read_is_named_as_such() {
    let scratch = Scratch::new();
    let user = connect(&scratch.0);
    user.execute_batch("CREATE TABLE t (a); BEGIN; SELECT * FROM t").unwrap();
    let error = SqliteStore::open(file(&scratch.0)).expect_err("it is read");
    assert!(error.retry && error.message.contains("PRAGMA journal_mode = WAL"), "{error}");
}

/// Such a connection keeps its lock when its transaction has ended.
#[test]
fn a_file_that_a_connection_has_for_itself_is_named_as_such() {
    let scratch = Scratch::new();
    drop(SqliteStore::open(file(&scratch.0)).unwrap());
    let user = connect(&scratch.0);
    user.execute_batch("PRAGMA locking_mode = exclusive; CREATE TABLE t (a)").unwrap();
    let error = SqliteStore::open(file(&scratch.0)).expect_err("nobody else can open it");
    assert!(error.retry && error.message.contains("locking_mode"), "{error}");
}

#[test]
fn users_of_the_file_may_use_the_directory_beside_it() {
    let scratch = Scratch::new();
    fs::write(file(&scratch.0), "").unwrap();
    fs::set_permissions(file(&scratch.0), fs::Permissions::from_mode(0o660)).unwrap();
    drop(SqliteStore::open(file(&scratch.0)).unwrap());
    let directory = scratch.0.join("leases.db-leasehold.d");
    assert_eq!(fs::metadata(directory).unwrap().permissions().mode() & 0o777, 0o770);
}

/// A transaction that its caller gave up is not applied later.
#[test]
fn a_locked_file_is_given_up_in_time_and_for_certain() {
    let scratch = Scratch::new();
    let store = SqliteStore::open(file(&scratch.0)).unwrap();
    let user = connect(&scratch.0);
    user.execute_batch("BEGIN IMMEDIATE").unwrap();
    let batch = Batch::new(SessionId(7), Vec::new());
    for limit in [Duration::ZERO, Duration::from_millis(100)] {
        let asked = store.transact(batch.clone(), process_clock(), limit);
        let error = futures::executor::block_on(asked).expect_err("somebody else writes");
        assert_eq!((error.applied, error.kind, error.retry), (Applied::No, StoreErrorKind::Busy, true), "{error}");
    }
    user.execute_batch("ROLLBACK").unwrap();
    futures::executor::block_on(store.transact(batch, process_clock(), Duration::MAX)).unwrap();
}

#[test]
fn a_store_that_is_closed_refuses_at_once_and_for_certain() {
    let scratch = Scratch::new();
    let store = SqliteStore::open(file(&scratch.0)).unwrap();
    let closing = store.close();
    let asked = store.keys("");
    let ((), answer) = futures::executor::block_on(futures::future::join(closing, asked));
    let error = answer.expect_err("it is closing");
    assert_eq!((error.kind, error.applied), (StoreErrorKind::Closed, Applied::No), "{error}");
}

#[test]
fn a_url_chooses_the_file_and_the_prefix() {
    let scratch = Scratch::new();
    let url = format!("sqlite://{}?prefix=jobs", file(&scratch.0).display());
    let store = Runtime::new().unwrap().block_on(leasehold::store::from_url(&url)).unwrap();
    drop(store);
    let sql = "SELECT count(*) FROM sqlite_master WHERE name LIKE 'jobs_%' AND type = 'table'";
    let tables: i64 = connect(&scratch.0).query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(tables, 3);
    let refused = Runtime::new().unwrap().block_on(leasehold::store::from_url("sqlite://app:secret@host/leases.db"));
    let message = refused.map(|_| ()).expect_err("it names a host").to_string();
    assert!(message.contains("names a file") && !message.contains("secret"), "{message}");
    for nothing in ["sqlite:", "sqlite://"] {
        let refused = Runtime::new().unwrap().block_on(leasehold::store::from_url(nothing));
        let message = refused.map(|_| ()).expect_err("it names nothing").to_string();
        assert!(message.contains("names no file after `sqlite:`; write sqlite:leases.db"), "{message}");
    }
}

/// A secret in a file often ends in a line break. As a part of the name it would make another file, and two processes would hold one key.
#[test]
fn a_url_with_a_line_break_at_its_end_names_no_other_file() {
    let scratch = Scratch::new();
    let url = format!("sqlite:{}", file(&scratch.0).display());
    for slip in [format!("{url}\n"), format!(" {url}"), format!("\"{url}\""), format!("{url}?prefix=jobs\r\n")] {
        let refused = Runtime::new().unwrap().block_on(leasehold::store::from_url(&slip));
        let error = refused.map(|_| ()).expect_err("it has a slip at an end");
        let says_so = error.message.contains("begins or ends with a space, a line break or a quotation mark");
        assert!(says_so && !error.retry, "{slip:?}: {error}");
    }
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0, "there is no new file");
}

/// Programs that start, hold something and end without a word, as some of cron's do.
#[test]
fn the_rows_of_programs_that_died_go_away() {
    futures::executor::block_on(with_longer_leases(Duration::from_secs(1), async |lease| dead_rows_go_away(lease)));
}

/// On a busy machine, the first row may go away before the last program has died, and the lease of the living program may be in doubt.
fn dead_rows_go_away(lease: Duration) -> Result<(), String> {
    let scratch = Scratch::new();
    let sessions = || {
        let sql = "SELECT count(*) FROM leasehold_session";
        connect(&scratch.0).query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let brief = || manager(&scratch.0).lease(lease).build().unwrap();
    for number in 0..3 {
        let runtime = Runtime::new().unwrap();
        let leases = brief();
        std::mem::forget(runtime.block_on(leases.lock(&number.to_string()).timeout(BUSY).acquire()).unwrap());
        // With its runtime, all that would renew or release ends.
        drop(runtime);
        std::mem::forget(leases);
    }
    if sessions() != 3 {
        return Err(format!("three programs left {} rows", sessions()));
    }
    Runtime::new().unwrap().block_on(async {
        let leases = brief();
        let guard = leases.lock("another").timeout(BUSY).acquire().await.unwrap();
        while sessions() > 1 {
            tokio::task::yield_now().await;
        }
        if guard.is_valid() { Ok(()) } else { Err(format!("{guard:?}")) }
    })
}

/// Each of these programs ends before it can see that another one is silent for a whole lease.
#[test]
fn programs_that_do_not_close_leave_no_more_than_a_few_rows_behind() {
    let scratch = Scratch::new();
    let patient = || manager(&scratch.0).lease(Duration::from_secs(3_600)).build().unwrap();
    let (living, long) = (Runtime::new().unwrap(), patient());
    let held = living.block_on(long.lock("held").acquire()).unwrap();
    for number in 0..40 {
        let (runtime, leases) = (Runtime::new().unwrap(), patient());
        let guard = runtime.block_on(leases.lock(&number.to_string()).acquire()).unwrap();
        // Without its runtime, nothing can release the lease any more.
        drop(runtime);
        drop((guard, leases));
    }
    let sessions = "SELECT count(*) FROM leasehold_session";
    let left: i64 = connect(&scratch.0).query_row(sessions, [], |row| row.get(0)).unwrap();
    assert!((1..10).contains(&left), "{left} rows");
    assert!(living.block_on(held.verify()).unwrap(), "a living session is not ended");
}

/// What keeps its files while it lives must not make them again once it was closed.
#[test]
fn a_store_that_was_closed_can_be_deleted() {
    Runtime::new().unwrap().block_on(async {
        for _ in 0..100 {
            let scratch = Scratch::new();
            let leases = manager(&scratch.0).build().unwrap();
            leases.lock("k").acquire().await.unwrap().release().await.unwrap();
            leases.close().await;
            fs::remove_dir_all(&scratch.0).expect("nobody makes files in it any more");
        }
    });
}

/// It may be the database of another program.
#[test]
fn who_opens_a_file_to_look_finds_its_holders_and_changes_nothing() {
    let scratch = Scratch::new();
    let other = connect(&scratch.0);
    other.execute_batch("CREATE TABLE diary (line)").unwrap();
    let look = || SqliteStore::open_read_only(file(&scratch.0), "leasehold").unwrap();
    assert!(look().is_none());
    let journal: String = other.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!((&*journal, fs::read_dir(&scratch.0).unwrap().count()), ("delete", 1));
    drop(other);
    Runtime::new().unwrap().block_on(async {
        let leases = manager(&scratch.0).build().unwrap();
        let _guard = leases.lock("k").info("me").acquire().await.unwrap();
        let watching = look().expect("there are leases");
        let watching = leasehold::LeaseManager::builder(watching, leasehold::executor::TokioExecutor::new());
        let watching = watching.build().unwrap();
        assert_eq!(watching.list("").await.unwrap()[0].holders[0].info, "me");
        assert!(watching.lock("other").try_acquire().await.is_err(), "it grants nothing");
    });
    assert!(SqliteStore::open_read_only(scratch.0.join("missing.db"), "leasehold").is_err());
    assert!(SqliteStore::open_read_only(file(&scratch.0), "other_prefix").unwrap().is_none());
}
