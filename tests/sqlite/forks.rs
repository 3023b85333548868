//! A process that a fork made has a copy of its parent's manager, with the session of the parent.

use std::{env, fs, path::Path, time::Duration};

use rusqlite::TransactionBehavior;
use tokio::{runtime::Runtime, time::timeout};

use crate::{Other, Scratch, connect, manager, say, told, wall_clock::preloaded};

/// Short enough that a test can wait for a heartbeat.
const LEASE: Duration = Duration::from_secs(4);
/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);
const WHY: &str = "this process was forked after the lease manager was built, and the leases belong to its parent; build a manager after \
    the fork";

/// The other process: holds a key, and goes on as a copy of itself.
pub(crate) fn go_on_as_a_copy(directory: &Path) {
    Runtime::new().unwrap().block_on(async {
        let leases = manager(directory).lease(LEASE).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        say("held");
        told().next();
        say(&leases.lock("another").try_acquire().await.unwrap_err().to_string());
        say(&leases.list("").await.unwrap_err().to_string());
        let mut database = connect(directory);
        let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        say(&guard.fence(&transaction).into_inner().unwrap_err().to_string());
        drop(transaction);
        say(timeout(BUSY, guard.lost()).await.map_or("it still holds", |reason| reason.name()));
        leases.close().await;
        say("closed");
    });
}

/// Over a server, both processes were granted the same lease, since they read each other's answers.
#[test]
fn a_forked_copy_of_a_manager_uses_neither_its_store_nor_its_leases() {
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
    assert_eq!(session(), parent, "the copy ends nothing of its parent");
}
