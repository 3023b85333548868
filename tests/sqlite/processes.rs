//! Real processes that share a file.

use std::{
    path::Path,
    sync::Mutex,
    time::{Duration, Instant},
};

use leasehold::{AcquireError, FenceError, LeaseState, executor::TokioExecutor};
use rusqlite::{Connection, TransactionBehavior};
use tokio::{
    runtime::{Builder, Runtime},
    task::spawn_blocking,
    time::timeout,
};

use crate::{Other, Scratch, connect, manager, say, told};

/// Longer than an eviction by a beacon takes, and much shorter than a lease.
const PATIENCE: Duration = Duration::from_secs(2);
/// Long enough that nobody waits here for its end.
const LONG_LEASE: Duration = Duration::from_secs(3_600);
/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);

/// The other process: holds the key until it is told to say whether it still does.
pub(crate) fn hold(directory: &Path) {
    let runtime = Runtime::new().unwrap();
    let leases = manager(directory).lease(LONG_LEASE).build().unwrap();
    let guard = runtime.block_on(leases.lock("k").acquire()).unwrap();
    say("held");
    told().for_each(|_| say(&format!("valid: {}", guard.is_valid())));
}

/// Nothing is chosen but the file.
#[test]
fn a_process_that_dies_is_replaced_at_once_and_a_living_one_never() {
    let scratch = Scratch::new();
    let mut holder = Other::start("holder", &scratch);
    assert_eq!(holder.hear(), "held");
    Runtime::new().unwrap().block_on(async {
        let leases = manager(&scratch.0).lease(LONG_LEASE).build().unwrap();
        let early = leases.lock("k").timeout(PATIENCE).acquire().await;
        assert!(matches!(early, Err(AcquireError::Timeout { .. })), "{early:?}");
        assert_eq!(holder.ask("still?"), "valid: true");
        holder.kill();
        assert!(leases.lock("k").timeout(BUSY).acquire().await.unwrap().is_valid());
    });
}

/// The other process: holds the key until the system asks it to end.
pub(crate) fn hold_until_shutdown(directory: &Path) {
    // With one thread only, the task that listens for signals begins before the key is granted.
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let leases = manager(directory).lease(LONG_LEASE).build().unwrap();
        leases.close_when(TokioExecutor::shutdown_signal());
        let guard = leases.lock("k").acquire().await.unwrap();
        say("held");
        say(timeout(BUSY, guard.lost()).await.map_or("it still holds", |reason| reason.name()));
        leases.close().await;
    });
}

/// A process that dies without closing its manager leaves the row of its session behind.
#[test]
fn a_process_that_the_system_asks_to_end_releases_what_it_holds() {
    for signal in ["-TERM", "-INT"] {
        let scratch = Scratch::new();
        let mut holder = Other::start("until shutdown", &scratch);
        assert_eq!(holder.hear(), "held");
        holder.signal(signal);
        assert_eq!(holder.try_hear().as_deref(), Some("Closed"), "{signal}");
        assert!(holder.ended_well(), "{signal}");
        let sessions = "SELECT count(*) FROM leasehold_session";
        let left: i64 = connect(&scratch.0).query_row(sessions, [], |row| row.get(0)).unwrap();
        assert_eq!(left, 0, "{signal}");
    }
}

/// The other process: waits for the key each time that it is told, and says with which token it came.
pub(crate) fn wait(directory: &Path) {
    let runtime = Runtime::new().unwrap();
    let leases = manager(directory).lease(LONG_LEASE).build().unwrap();
    told().for_each(|_| {
        let guard = runtime.block_on(leases.lock("k").timeout(BUSY).acquire()).unwrap();
        say(&format!("token {}", guard.token().as_u64()));
        runtime.block_on(guard.release()).unwrap();
    });
}

/// By messages alone: a waiter would look only once in a third of an hour.
#[test]
fn a_waiting_process_is_woken_by_the_release() {
    let scratch = Scratch::new();
    let waiter = Mutex::new(Other::start("waiter", &scratch));
    Runtime::new().unwrap().block_on(async {
        let leases = manager(&scratch.0).lease(LONG_LEASE).build().unwrap();
        let mut last = 0;
        for _ in 0..20 {
            let guard = leases.lock("k").timeout(BUSY).acquire().await.unwrap();
            let own = guard.token().as_u64();
            assert!(own > last, "tokens grow: {own} after {last}");
            waiter.lock().unwrap().tell("wait");
            while leases.status("k").await.unwrap().queue.is_empty() {
                tokio::task::yield_now().await;
            }
            guard.release().await.unwrap();
            let said = waiter.lock().unwrap().hear();
            last = said.strip_prefix("token ").unwrap().parse().unwrap();
            assert!(last > own, "tokens grow: {last} after {own}");
        }
    });
}

/// A beacon that is missing counts as gone only after more than that.
const SOON: Duration = Duration::from_secs(2);

/// Asserts that an end is seen at once. A machine that is busy for a moment may be late each time but one.
fn assert_seen_soon(replace: impl AsyncFn(&Scratch) -> Duration) {
    let scratch = Scratch::new();
    Runtime::new().unwrap().block_on(async {
        for _ in 0..5 {
            if replace(&scratch).await < SOON {
                return;
            }
        }
        panic!("the end was seen late each time");
    });
}

#[test]
fn a_killed_waiter_is_seen_to_be_dead_at_once_though_another_context_has_ended_meanwhile() {
    assert_seen_soon(evicting_a_swept_waiter);
}

/// How long it takes to be granted a lease that was handed to a dead waiter.
async fn evicting_a_swept_waiter(scratch: &Scratch) -> Duration {
    let leases = manager(&scratch.0).lease(LONG_LEASE).build().unwrap();
    let guard = leases.lock("k").acquire().await.unwrap();
    let mut waiter = Other::start("waiter", scratch);
    waiter.tell("wait");
    while leases.status("k").await.unwrap().queue.is_empty() {
        tokio::task::yield_now().await;
    }
    waiter.kill();
    let another = manager(&scratch.0).build().unwrap();
    drop(another.lock("other").acquire().await.unwrap());
    another.close().await;
    // It sweeps on a thread of its own, after its end.
    tokio::time::sleep(Duration::from_millis(300)).await;
    guard.release().await.unwrap();
    let began = Instant::now();
    drop(leases.lock("k").timeout(BUSY).acquire().await.unwrap());
    began.elapsed()
}

/// The holder has ended well, and only its beacon can show that.
#[test]
fn a_holder_that_ends_while_another_program_locks_the_file_is_seen_to_have_ended_at_once() {
    assert_seen_soon(replacing_an_unwritten_end);
}

/// How long it takes to be granted the lease of a context that could not write its end.
async fn replacing_an_unwritten_end(scratch: &Scratch) -> Duration {
    let builder = || manager(&scratch.0).lease(LONG_LEASE);
    let holder = builder().store_timeout(Duration::from_millis(300)).build().unwrap();
    let guard = holder.lock("k").acquire().await.unwrap();
    let mut database = notes(&scratch.0);
    let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    holder.close().await;
    drop((guard, holder));
    transaction.rollback().unwrap();
    let began = Instant::now();
    let others = builder().build().unwrap();
    assert_eq!(others.status("k").await.unwrap().holders.len(), 1, "its end was written");
    drop(others.lock("k").timeout(BUSY).acquire().await.unwrap());
    others.close().await;
    began.elapsed()
}

const SHORT_LEASE: Duration = Duration::from_secs(2);

fn notes(directory: &Path) -> Connection {
    let connection = connect(directory);
    connection.execute_batch("CREATE TABLE IF NOT EXISTS notes (text TEXT)").unwrap();
    connection
}

/// The other process: takes the key, and when it is told, writes what it is told under a fence.
pub(crate) fn write(directory: &Path) {
    let runtime = Runtime::new().unwrap();
    let leases = manager(directory).lease(SHORT_LEASE).build().unwrap();
    let guard = runtime.block_on(leases.lock("k").acquire()).unwrap();
    let mut database = notes(directory);
    say("held");
    for note in told() {
        let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        let fenced = runtime.block_on(guard.fence(&transaction));
        let inserted = transaction.execute("INSERT INTO notes VALUES (?1)", [note]);
        let committed = transaction.commit();
        say(&match fenced {
            Ok(_) => format!("written: {}", inserted.is_ok() && committed.is_ok()),
            Err(FenceError::Lost { reason, .. }) => {
                format!("lost: {}, committed: {}", reason.name(), committed.is_ok())
            }
            Err(other) => other.to_string(),
        });
    }
}

/// Stopped within a write, it would keep all others from the file.
fn stop_between_writes(other: &Other, scratch: &Scratch) {
    let mut database = connect(&scratch.0);
    database.busy_timeout(Duration::ZERO).unwrap();
    loop {
        other.stop();
        if database.transaction_with_behavior(TransactionBehavior::Immediate).is_ok() {
            return;
        }
        other.go_on();
    }
}

/// Its beacon stands all the time, for it lives: only its silence tells.
#[test]
fn a_process_that_is_stopped_past_its_lease_cannot_write() {
    let scratch = Scratch::new();
    let mut writer = Other::start("writer", &scratch);
    assert_eq!(writer.hear(), "held");
    assert_eq!(writer.ask("before"), "written: true");
    stop_between_writes(&writer, &scratch);
    let runtime = Runtime::new().unwrap();
    let leases = manager(&scratch.0).lease(SHORT_LEASE).build().unwrap();
    let guard = runtime.block_on(leases.lock("k").timeout(BUSY).acquire()).unwrap();
    writer.go_on();
    let said = writer.ask("after");
    assert!(said.starts_with("lost: ") && said.ends_with("committed: false"), "{said}");
    let notes: Vec<String> = {
        let database = notes(&scratch.0);
        let mut all = database.prepare("SELECT text FROM notes").unwrap();
        all.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    assert_eq!(notes, ["before"]);
    // On a busy machine, the lease may be in doubt.
    assert!(!matches!(guard.watch().state(), LeaseState::Lost(_)), "{guard:?}");
}

/// The other process: asks once, and says what it got.
pub(crate) fn contend(directory: &Path) {
    Runtime::new().unwrap().block_on(async {
        let leases = manager(directory).build().unwrap();
        match leases.lock("k").try_acquire().await {
            Ok(Some(_)) => say("granted"),
            Ok(None) => say("taken"),
            Err(error) => say(&error.to_string()),
        }
    });
}

/// A process that is stopped while SQLite's write lock is its own blocks the others, and nothing is granted twice.
#[test]
fn whoever_holds_the_write_lock_is_waited_for() {
    let scratch = Scratch::new();
    Runtime::new().unwrap().block_on(async {
        let leases = manager(&scratch.0).build().unwrap();
        drop(leases.lock("k").acquire().await.unwrap());
        let mut database = notes(&scratch.0);
        let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        let mut contestant = Other::start("contestant", &scratch);
        let (sender, mut said) = tokio::sync::oneshot::channel();
        let hearing = spawn_blocking(move || drop(sender.send(contestant.hear())));
        assert!(timeout(Duration::from_millis(300), &mut said).await.is_err(), "it waits");
        transaction.commit().unwrap();
        assert_eq!(said.await.unwrap(), "granted");
        hearing.await.unwrap();
    });
}
