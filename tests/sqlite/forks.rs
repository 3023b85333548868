//! A process that a fork made has a copy of its parent's manager, with the session of the parent.

use std::{
    env,
    ffi::OsString,
    fs,
    os::unix::{fs::DirEntryExt as _, process::parent_id},
    path::Path,
    process,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use leasehold::{
    LeaseManager,
    executor::TokioExecutor,
    machine::{Message, SessionId},
    signal::{Beacons, Inbox, Signals},
    store::MemoryStore,
};

use rusqlite::TransactionBehavior;
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};

use crate::{Other, Scratch, connect, manager, say, told, wall_clock::preloaded};

/// Short enough that a test can wait for a heartbeat.
const LEASE: Duration = Duration::from_secs(4);
/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);
const WHY: &str = "this process was forked after the lease manager was built, and the leases belong to its parent; build a manager after \
    the fork";

/// Signals that count their calls. They stand for signals that share a connection with the parent.
#[derive(Clone, Debug, Default)]
struct Counted(Arc<AtomicU64>);

impl Counted {
    fn count(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn so_far(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Signals for Counted {
    fn beacons(&self) -> Beacons {
        Beacons::All
    }

    fn wake(&self, _: SessionId, _: bool, _: Weak<dyn Inbox>) -> bool {
        self.count();
        false
    }

    fn rest(&self) {
        self.count();
    }

    fn send(&self, _: &Message) {
        self.count();
    }

    fn watch(&self, _: u64, _: SessionId) {
        self.count();
    }

    fn unwatch(&self, _: u64) {
        self.count();
    }
}

/// The other process: holds a key, and goes on as a copy of itself.
pub(crate) fn go_on_as_a_copy(directory: &Path) {
    Runtime::new().unwrap().block_on(async {
        let signals = Counted::default();
        let leases = manager(directory).lease(LEASE).signals(signals.clone()).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        say("held");
        told().next();
        let before = signals.so_far();
        say(&leases.lock("another").try_acquire().await.unwrap_err().to_string());
        say(&leases.list("").await.unwrap_err().to_string());
        let mut database = connect(directory);
        let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        say(&guard.fence(&transaction).into_inner().unwrap_err().to_string());
        drop(transaction);
        say(timeout(BUSY, guard.lost()).await.map_or("it still holds", |reason| reason.name()));
        leases.close().await;
        say("closed");
        drop((guard, leases));
        say(&format!("{} signals", signals.so_far() - before));
    });
}

/// Over a server, both processes were granted the same lease, since they read each other's answers.
#[test]
fn a_forked_copy_of_a_manager_uses_neither_its_store_nor_its_leases_nor_its_signals() {
    let scratch = Scratch::new();
    let Some(library) = preloaded("forked", &scratch) else { return };
    let sign = scratch.0.join("forked");
    let program = env::current_exe().expect("this test is a file");
    let mut copy = Other::start_by(&program, "copy", &scratch, |command| {
        command.env("LD_PRELOAD", library).env("LEASEHOLD_TEST_FORKED", &sign);
    });
    assert_eq!(copy.hear(), "held");
    let session = || -> String {
        connect(&scratch.0).query_row("SELECT id FROM leasehold_session", [], |row| row.get(0)).unwrap()
    };
    let parent = session();
    fs::write(&sign, "").expect("the folder is ours");
    for refused in [copy.ask("fork"), copy.hear(), copy.hear()] {
        assert!(refused.contains(WHY), "{refused}");
    }
    assert_eq!(copy.hear(), "StoreFailed");
    assert_eq!(copy.hear(), "closed");
    assert_eq!(copy.hear(), "0 signals", "its signals share the connection of its parent");
    assert_eq!(session(), parent, "the copy ends nothing of its parent");
}

/// Sooner than a store that does not answer is given up.
const SOON: Duration = Duration::from_secs(6);
/// Longer than any test.
const LONG_LEASE: Duration = Duration::from_secs(1_000);

/// Signals that keep a thread at work from the moment it wakes them, as long as the parent lives.
#[derive(Clone, Debug, Default)]
struct Busy(Arc<AtomicBool>);

impl Signals for Busy {
    fn beacons(&self) -> Beacons {
        Beacons::All
    }

    fn wake(&self, _: SessionId, _: bool, _: Weak<dyn Inbox>) -> bool {
        self.0.store(true, Ordering::SeqCst);
        loop {
            thread::park();
        }
    }

    fn rest(&self) {}

    fn send(&self, _: &Message) {}

    fn watch(&self, _: u64, _: SessionId) {}

    fn unwatch(&self, _: u64) {}
}

/// A manager in memory whose work a thread of this process has begun, and never ends.
fn at_work() -> LeaseManager {
    let busy = Busy::default();
    let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).signals(busy.clone()).build().unwrap();
    let asking = leases.clone();
    thread::spawn(move || runtime().block_on(asking.lock("another").acquire()));
    while !busy.0.load(Ordering::SeqCst) {
        thread::yield_now();
    }
    leases
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// The other process: builds its managers too early, before it forks. The copy asks for a lease while its parent holds one.
pub(crate) fn fork_too_late(directory: &Path) {
    let leases = manager(directory).lease(LONG_LEASE).build().unwrap();
    let here = at_work();
    let (held, asked) = (directory.join("held"), directory.join("asked"));
    if parent_id() == 0 {
        until_exists(&held);
        let before = signs(directory);
        runtime().block_on(async {
            // Nothing here may panic: nobody would end the process.
            say(&format!("{:?}", leases.lock("another").try_acquire().await));
            let guard = timeout(SOON, here.lock("k").acquire()).await;
            say(&format!(
                "{} {}",
                matches!(guard, Ok(Ok(_))),
                timeout(SOON, here.list("")).await.is_ok_and(|list| list.is_ok())
            ));
            say(&format!("{:?}", timeout(SOON, leases.close()).await));
        });
        told().next();
        drop((leases, here));
        say(if signs(directory) == before { "nothing has changed" } else { "it has changed the signs of its parent" });
        // The copy has no thread that could end the process.
        process::exit(0);
    }
    let runtime = runtime();
    let guard = runtime.block_on(leases.lock("k").acquire()).unwrap();
    say("held");
    fs::write(held, "").unwrap();
    until_exists(&asked);
    say(&format!("holds: {:?}", runtime.block_on(guard.verify())));
}

fn until_exists(path: &Path) {
    while !path.exists() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// By which files others see and reach the processes that use the leases.
fn signs(directory: &Path) -> Vec<(OsString, u64)> {
    let entries = fs::read_dir(directory.join("leases.db-leasehold.d")).unwrap();
    let mut signs: Vec<_> = entries.map(|entry| entry.unwrap()).map(|entry| (entry.file_name(), entry.ino())).collect();
    signs.sort_unstable();
    signs
}

/// The copy has the ids of its parent. So it put its beacon and its socket into the place of its parent's. When the copy ended, its beacon
/// fell, and whoever had seen it took the lease away from the parent.
#[test]
fn a_forked_copy_of_a_manager_leaves_the_beacon_of_its_parent_alone() {
    let scratch = Scratch::new();
    let Some(library) = preloaded("forked", &scratch) else { return };
    let program = env::current_exe().expect("this test is a file");
    let mut parent = Other::start_by(&program, "too late", &scratch, |command| {
        command.env("LD_PRELOAD", library);
    });
    assert_eq!(parent.hear(), "held");
    let refused = parent.hear();
    assert!(refused.contains(WHY), "{refused}");
    assert_eq!(
        parent.hear(),
        "true true",
        "a copy of a store in memory works, although the thread at work is the parent's"
    );
    assert_eq!(parent.hear(), "Ok(())", "the thread of the store, and the connections to a server, are the parent's");
    assert_eq!(parent.ask("end"), "nothing has changed");
    fs::write(scratch.0.join("asked"), "").unwrap();
    assert_eq!(parent.hear(), "holds: Ok(true)");
}
