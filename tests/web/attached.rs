//! Leases in the user's own database: its connection stays the user's.

use std::{cell::Cell, rc::Rc, time::Duration};

use futures::FutureExt;
use js_sys::{Function, Object};
use leasehold::{
    LeaseManager, LostReason,
    executor::WebExecutor,
    store::{IndexedDbStore, Reach, Store, contract},
};
use wasm_bindgen::prelude::*;
use wasm_bindgen_test::wasm_bindgen_test as test;
use web_sys::{Event, IdbDatabase, IdbTransactionMode};

use super::{
    desk::{Desk, begin, end, open, write},
    indexed_db::{LIMIT, acquire, granted, now},
    platform::{Replaced, done, fresh_name, indexed_db, property, settle, soon, until},
    sessions::{another, release},
};

#[test]
async fn another_connection_to_the_same_database_will_do() {
    let name = fresh_name("connections");
    let desk = Desk::at(&name).await;
    let guard = desk.hold().await;
    let other = open(&name, 1, true).await;
    let transaction = begin(&other, &["notes", "leasehold"], IdbTransactionMode::Readwrite);
    let (ended, fenced) = (end(&transaction), guard.fence(&transaction));
    write(&transaction, "mine");
    soon(fenced).await.unwrap();
    assert_eq!(ended.await, "complete");
}

/// A page that is frozen with a transaction open would keep all others from writing for a minute.
#[test]
async fn a_suspension_ends_the_transaction() {
    let name = fresh_name("suspended");
    let (frozen, other) = (Desk::at(&name).await, Desk::at(&name).await);
    let guard = frozen.hold().await;
    let transaction = frozen.begin();
    let ended = end(&transaction);
    guard.fence(&transaction).await.unwrap();
    write(&transaction, "frozen");
    frozen.leases.suspend();
    assert!(transaction.object_store("notes").is_err(), "it is aborted at once");
    assert_eq!(ended.await, "abort");
    assert_eq!(other.note().await, None);
    let next = other.hold().await;
    assert!(next.token() > guard.token());
}

#[test]
async fn without_the_object_store_attach_says_how_to_make_it() {
    let name = fresh_name("bare");
    let bare = open(&name, 1, false).await;
    let error = IndexedDbStore::attach(bare.clone()).unwrap_err();
    assert!(
        ["createStore(db)", "onupgradeneeded", "Dexie", &name].iter().all(|word| error.message.contains(word)),
        "{error}"
    );
    bare.close();
    // Made later, and made once.
    for version in [2, 3] {
        let database = open(&name, version, true).await;
        assert!(IndexedDbStore::attach(database.clone()).is_ok());
        database.close();
    }
}

#[test]
async fn the_connection_stays_the_users() {
    let name = fresh_name("guest");
    let desk = Desk::at(&name).await;
    let store = IndexedDbStore::attach(desk.database.clone()).unwrap();
    assert_eq!(store.reach(), Reach::Named(["leasehold@", &name].concat()));
    let handlers = || [desk.database.onclose(), desk.database.onversionchange()];
    assert_eq!(handlers(), [None, None]);
    drop(store);
    let guard = desk.hold().await;
    desk.leases.close().await;
    assert_eq!(desk.note().await, None, "it is still open");
    drop(guard);
    // Nobody else closes it either: who wants to delete the database waits for the user.
    let delete = indexed_db().delete_database(&name).unwrap();
    settle().await;
    assert_eq!(property(&delete, "readyState"), "pending");
    desk.database.close();
    done(&delete).await.unwrap();
}

#[test]
async fn a_closed_connection_is_told_for_good() {
    let database = open(&fresh_name("closed"), 1, true).await;
    let builder = LeaseManager::builder(IndexedDbStore::attach(database.clone()).unwrap(), WebExecutor::new());
    let leases = builder.heartbeat(Duration::from_millis(500)).build().unwrap();
    let guard = soon(leases.lock("k").acquire()).await.unwrap();
    // A borrowed method is not heard: the next heartbeat finds the connection closed.
    let prototype = property(&property(&js_sys::global(), "IDBDatabase"), "prototype");
    let close: Function = property(&prototype, "close").unchecked_into();
    close.call0(&database).unwrap();
    let error = guard.verify().await.unwrap_err();
    assert!(error.message.contains("attach") && !error.retry, "{error}");
    assert_eq!(soon(guard.lost()).await, LostReason::StoreFailed);
    assert!(soon(leases.lock("other").acquire()).await.is_err());
}

#[test]
async fn it_keeps_the_contract_of_all_stores_as_a_guest() {
    let name = fresh_name("guests");
    contract::all(async || IndexedDbStore::attach(open(&name, 1, true).await).unwrap()).await;
}

/// No event tells of it. The lease would last ten minutes.
#[test]
async fn a_call_of_close_is_heard_at_once_and_others_are_granted() {
    let name = fresh_name("hung-up");
    let (desk, other) = (Desk::at(&name).await, Desk::at(&name).await);
    let guard = desk.hold().await;
    let mut waits = Box::pin(other.leases.lock("k").acquire());
    settle().await;
    assert!((&mut waits).now_or_never().is_none());
    desk.database.close();
    assert_eq!(guard.lost().now_or_never(), Some(LostReason::StoreFailed));
    assert!(!guard.is_valid());
    let next = soon(waits).await.unwrap();
    assert!(next.token() > guard.token());
    let error = soon(desk.leases.lock("other").acquire()).await.unwrap_err().to_string();
    assert!(error.contains("attach a new lease manager"), "{error}");
    // Closing once more is closing once.
    desk.database.close();
}

/// Whoever wants to upgrade waits for the connection, not for the leases: they are its owner's as long as it is open.
#[test]
async fn a_wish_to_upgrade_costs_the_leases_only_with_the_connection() {
    let name = fresh_name("upgraded");
    let desk = Desk::at(&name).await;
    let guard = desk.hold().await;
    let asked = Rc::new(Cell::new(false));
    let on_version_change = Closure::<dyn Fn()>::new({
        let asked = Rc::clone(&asked);
        move || asked.set(true)
    });
    desk.database.set_onversionchange(Some(on_version_change.as_ref().unchecked_ref()));
    let upgrade = indexed_db().open_with_u32(&name, 2).unwrap();
    until(async || asked.get()).await;
    settle().await;
    assert!(guard.verify().await.unwrap(), "the connection is still open");
    desk.database.close();
    assert_eq!(guard.lost().now_or_never(), Some(LostReason::StoreFailed));
    let upgraded: IdbDatabase = done(&upgrade).await.unwrap().unchecked_into();
    let leases = LeaseManager::builder(IndexedDbStore::attach(upgraded.clone()).unwrap(), WebExecutor::new());
    let leases = leases.lease(Duration::from_secs(600)).build().unwrap();
    let next = soon(leases.lock("k").acquire()).await.unwrap();
    assert!(next.token() > guard.token());
    upgraded.close();
}

#[test]
async fn the_call_of_close_is_the_browsers_again_when_the_store_has_gone() {
    let database = open(&fresh_name("hidden"), 1, true).await;
    let is_own = || Object::has_own(&database, &"close".into());
    let attach = || IndexedDbStore::attach(database.clone()).unwrap();
    let (one, two) = (attach(), attach());
    assert!(is_own());
    drop(two);
    drop(one);
    assert!(!is_own());
    let (one, two, three) = (attach(), attach(), attach());
    drop(two);
    drop(one);
    drop(three);
    assert!(!is_own());
    // Whichever goes first, the call still closes.
    let (one, two) = (attach(), attach());
    drop(one);
    drop(two);
    database.close();
    assert!(database.transaction_with_str("leasehold").is_err());
}

#[test]
async fn what_cannot_keep_leases_is_refused_at_once() {
    for wrong in [r#"{ "keyPath": "id" }"#, r#"{ "autoIncrement": true }"#] {
        let name = fresh_name("keyed");
        let options = js_sys::JSON::parse(wrong).unwrap();
        let request = indexed_db().open(&name).unwrap();
        let opening = request.clone();
        let upgrade = Closure::<dyn Fn()>::new(move || {
            let database = opening.result().unwrap();
            let create: Function = property(&database, "createObjectStore").unchecked_into();
            create.call2(&database, &"leasehold".into(), &options).unwrap();
        });
        request.set_onupgradeneeded(Some(upgrade.as_ref().unchecked_ref()));
        let database: IdbDatabase = done(&request).await.unwrap().unchecked_into();
        let error = IndexedDbStore::attach(database.clone()).unwrap_err();
        let words = [&name, "keyPath", "autoIncrement", "createStore(db)", "leasehold: \"\""];
        assert!(!error.retry && words.iter().all(|word| error.message.contains(word)), "{error}");
        database.close();
        let closed = IndexedDbStore::attach(database).unwrap_err();
        assert!(closed.message.contains("is closed"), "{closed}");
    }
}

/// A failed read does not abort the transaction if a handler of the page says so.
#[test]
async fn a_read_that_failed_is_no_empty_record() {
    let name = fresh_name("unread");
    let (holder, other) = (Desk::at(&name).await, Desk::at(&name).await);
    let guard = holder.hold().await;
    let calm = Closure::<dyn Fn(Event)>::new(|event: Event| event.prevent_default());
    other.database.add_event_listener_with_callback("error", calm.as_ref().unchecked_ref()).unwrap();
    let before = holder.record().await;
    // Of the two reads of a connection's first transaction, this one is no longer the last.
    let fails = "function (key) { return key === 'k' ? this.add(1, ['store']) : original.call(this, key) }";
    let failing = Replaced::in_database(&name, "IDBObjectStore", "get", fails);
    let granted = soon(other.leases.lock("k").try_acquire()).await;
    drop(failing);
    assert!(!matches!(granted, Ok(Some(_))), "{granted:?}");
    assert_eq!(holder.record().await, before);
    assert!(guard.verify().await.unwrap());
}

/// The same goes for a list: whoever waits for it learns at once that the browser could not read.
#[test]
async fn a_list_that_failed_says_so_at_once() {
    let name = fresh_name("unlisted");
    let desk = Desk::at(&name).await;
    let _guard = desk.hold().await;
    let calm = Closure::<dyn Fn(Event)>::new(|event: Event| event.prevent_default());
    desk.database.add_event_listener_with_callback("error", calm.as_ref().unchecked_ref()).unwrap();
    // That row exists already, so the browser refuses to add it.
    let fails = "function () { return this.add(1, ['store']) }";
    for read in ["getAll", "getAllKeys"] {
        let failing = Replaced::in_database(&name, "IDBObjectStore", read, fails);
        let listed = soon(desk.leases.list("")).await;
        drop(failing);
        let said = listed.unwrap_err().to_string();
        assert!(said.contains("ConstraintError"), "{read}: {said}");
    }
    assert_eq!(soon(desk.leases.list("")).await.unwrap().len(), 1);
}

/// A page that is frozen in the middle of a transaction of its own would keep all others waiting just as well.
#[test]
async fn a_suspension_ends_what_the_context_itself_has_under_way() {
    let name = fresh_name("own");
    let (frozen, other) = (Desk::at(&name).await, Desk::at(&name).await);
    let guard = frozen.hold().await;
    let before = frozen.record().await;
    assert!(guard.verify().now_or_never().is_none(), "it is under way");
    let listing = frozen.leases.list("");
    let mut listing = Box::pin(listing);
    assert!((&mut listing).now_or_never().is_none(), "it is under way");
    frozen.leases.suspend();
    // In the order in which they began.
    assert_eq!(other.record().await, before, "nothing was renewed");
    assert!(soon(listing).await.is_err());
    let next = other.hold().await;
    assert!(next.token() > guard.token());
    frozen.leases.wake();
    drop(next.release());
    drop(frozen.hold().await);
}

/// A handler of the user's may have a transaction go on of which a write failed.
#[test]
async fn a_write_that_failed_grants_nothing_whatever_the_user_hears() {
    for has_commit in [true, false] {
        let name = fresh_name("failed write");
        let database = open(&name, 1, true).await;
        let store = IndexedDbStore::attach(database.clone()).unwrap();
        let held = granted(store.transact(acquire("k", 2), now(), LIMIT).await);
        store.transact(release("k", 2, 1, &held), now(), LIMIT).await.unwrap();
        let prevents = Closure::<dyn Fn(Event)>::new(|event: Event| event.prevent_default());
        database.set_onerror(Some(prevents.as_ref().unchecked_ref()));
        // The row exists.
        let fails = "function (...given) { return this.add(...given) }";
        let failing = Replaced::in_database(&name, "IDBObjectStore", "put", fails);
        let missing = (!has_commit).then(|| {
            Replaced::in_database(&name, "IDBTransaction", "commit", "function () { throw new TypeError('missing') }")
        });
        let result = soon(store.transact(another("k", 2, 2), now(), LIMIT)).await;
        drop((failing, missing));
        assert!(result.is_err(), "with commit(): {has_commit}, {result:?}");
        granted(store.transact(another("k", 2, 3), now(), LIMIT).await);
    }
}
