//! The whole house on the web adapters: leases of two managers that meet in one database.

use std::{cell::Cell, rc::Rc, time::Duration};

use futures::future::join;
use js_sys::global;
use leasehold::{
    AcquireError, LeaseManager, LeaseState, LostReason, Token,
    executor::{Executor, WeakShared, WebExecutor},
    machine::{FORMAT, Message, SessionId},
    signal::{Beacons, BroadcastSignals, Inbox, Signals},
    store::{IndexedDbStore, Reach, Store},
};
use wasm_bindgen::prelude::*;
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::platform::{
    Replaced, done, fresh_name, get_raw, indexed_db, locks, property, put_raw, session_row, settle, soon, until,
};

const TURNS: u32 = 25;

fn manager(name: &str) -> LeaseManager {
    LeaseManager::builder(IndexedDbStore::new(name), WebExecutor::new()).build().unwrap()
}

/// What two managers share, to see whether they exclude each other.
#[derive(Default)]
struct Table {
    held: Cell<bool>,
    last: Cell<Token>,
    turns: Cell<u32>,
}

impl Table {
    async fn take_turns(&self, leases: &LeaseManager) {
        for _ in 0..TURNS {
            let guard = soon(leases.lock("notes").acquire()).await.unwrap();
            assert!(!self.held.replace(true), "never two holders");
            assert!(guard.token() > self.last.replace(guard.token()), "tokens grow");
            WebExecutor::new().sleep(Duration::from_millis(1)).await;
            assert!(guard.is_valid());
            self.turns.set(self.turns.get() + 1);
            self.held.set(false);
            guard.release().await.unwrap();
        }
    }
}

async fn two_managers_take_turns(name: &str) {
    let (one, two, table) = (manager(name), manager(name), Table::default());
    join(table.take_turns(&one), table.take_turns(&two)).await;
    assert_eq!(table.turns.get(), 2 * TURNS);
    join(one.close(), two.close()).await;
    // Neither holds the database open.
    done(&indexed_db().delete_database(&format!("leasehold:{name}")).unwrap()).await.unwrap();
}

/// After a deletion another manager can be granted the lease in a new database.
#[test]
async fn a_deletion_is_reported_before_others_are_granted_the_lease() {
    let name = fresh_name("deletion");
    let (one, two) = (manager(&name), manager(&name));
    let guard = one.lock("k").acquire().await.unwrap();
    let mut watch = guard.watch();
    done(&indexed_db().delete_database(&format!("leasehold:{name}")).unwrap()).await.unwrap();
    assert!(!guard.is_valid(), "in doubt as soon as its connection makes way");
    let next = soon(two.lock("k").acquire()).await.unwrap();
    assert!(next.is_valid() && !guard.is_valid());
    assert_eq!(soon(guard.lost()).await, LostReason::StoreCleared, "no heartbeat is waited for");
    assert_ne!(watch.changed().await, LeaseState::Held);
    next.release().await.unwrap();
    join(one.close(), two.close()).await;
}

#[test]
async fn two_managers_take_turns_and_leave_nothing_open() {
    let name = fresh_name("turns");
    two_managers_take_turns(&name).await;
    until(async || locks(&format!("leasehold:{name}")).await.is_empty()).await;
}

#[test]
async fn they_do_so_in_an_insecure_context_too() {
    let _insecure = Replaced::new(&property(&global(), "navigator"), "locks", &JsValue::UNDEFINED);
    two_managers_take_turns(&fresh_name("insecure")).await;
}

/// Signals that can be ended from outside, as the browser ends those of a tab that crashed.
#[derive(Clone, Debug)]
struct Mortal(Rc<BroadcastSignals>);

impl Signals for Mortal {
    fn beacons(&self) -> Beacons {
        self.0.beacons()
    }
    fn wake(&self, session: SessionId, beacon: bool, inbox: WeakShared<dyn Inbox>) -> bool {
        self.0.wake(session, beacon, inbox)
    }
    fn rest(&self) {
        self.0.rest();
    }
    fn send(&self, message: &Message) {
        self.0.send(message);
    }
    fn watch(&self, watch: u64, session: SessionId) {
        self.0.watch(watch, session);
    }
    fn unwatch(&self, watch: u64) {
        self.0.unwatch(watch);
    }
}

#[test]
async fn a_holder_whose_beacon_fell_is_replaced_long_before_its_lease_is_over() {
    let store = IndexedDbStore::new(&fresh_name("crash"));
    let Reach::Named(database) = store.reach() else { panic!("the store has a name") };
    let heir = manager(database.strip_prefix("leasehold:").unwrap());
    let signals = Mortal(Rc::new(BroadcastSignals::new(&database)));
    // Longer than anybody waits here.
    let builder = LeaseManager::builder(store, WebExecutor::new()).lease(Duration::from_secs(120));
    let holder = builder.signals(signals.clone()).build().unwrap();
    let guard = holder.lock("notes").acquire().await.unwrap();
    // The beacon is raised with the first request, and shows in what is written after it stands.
    until(async || {
        assert!(guard.verify().await.unwrap());
        let row = get_raw(&database, session_row(holder.session())).await;
        row.as_string().unwrap().contains("\"beacon\":1,")
    })
    .await;
    let crash = async {
        settle().await;
        signals.rest();
    };
    let (taken, ()) = join(soon(heir.lock("notes").acquire()), crash).await;
    assert!(taken.unwrap().token() > guard.token());
    heir.close().await;
}

#[test]
async fn without_indexed_db_a_lease_is_unsupported() {
    let _none = Replaced::new(&global(), "indexedDB", &JsValue::UNDEFINED);
    let error = manager("none").lock("notes").acquire().await.unwrap_err();
    assert!(matches!(&error, AcquireError::Unsupported(error) if error.message.contains("memory")), "{error}");
}

#[test]
async fn a_record_of_a_newer_format_is_told_with_both_formats() {
    let name = fresh_name("format");
    let leases = manager(&name);
    leases.lock("first").acquire().await.unwrap().release().await.unwrap();
    let newer = format!(r#"{{"format":{}}}"#, FORMAT + 41);
    put_raw(&format!("leasehold:{name}"), "notes", &newer.into()).await;
    let error = leases.lock("notes").acquire().await.unwrap_err();
    assert_eq!(error, AcquireError::FormatTooNew { found: FORMAT + 41, known: FORMAT });
    leases.close().await;
}
