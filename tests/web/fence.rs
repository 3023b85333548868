//! Leases in the user's own database, and writes to it that only their holder can make.

use std::{cell::RefCell, rc::Rc, time::Duration};

use futures::{FutureExt, channel::oneshot};
use js_sys::{Array, Function, Reflect};
use leasehold::{
    FenceError, LeaseGuard, LeaseManager, LostReason, ReleaseOutcome,
    executor::{Executor, WebExecutor},
    store::{IndexedDbStore, Reach, Store, contract},
};
use wasm_bindgen::prelude::*;
use wasm_bindgen_test::wasm_bindgen_test as test;
use web_sys::{IdbDatabase, IdbObjectStore, IdbOpenDbRequest, IdbTransaction, IdbTransactionMode};

use super::manners::takes_no_more_memory;
use super::platform::{Replaced, done, fresh_name, indexed_db, property, settle, soon};

/// Opens a database of the user's, with notes and, if wanted, leases.
async fn open(name: &str, version: u32, leases: bool) -> IdbDatabase {
    let request = indexed_db().open_with_u32(name, version).unwrap();
    let opening = request.clone();
    let upgrade = Closure::<dyn Fn()>::new(move || {
        let database: IdbDatabase = opening.result().unwrap().unchecked_into();
        if !database.object_store_names().contains("notes") {
            database.create_object_store("notes").unwrap();
        }
        if leases {
            IndexedDbStore::upgrade(&database).unwrap();
        }
    });
    IdbOpenDbRequest::set_onupgradeneeded(&request, Some(upgrade.as_ref().unchecked_ref()));
    done(&request).await.unwrap().unchecked_into()
}

/// A tab of the user's: its connection, and the leases in it.
struct Desk {
    database: IdbDatabase,
    leases: LeaseManager,
}

impl Desk {
    async fn at(name: &str) -> Self {
        let database = open(name, 1, true).await;
        let store = IndexedDbStore::attach(database.clone()).unwrap();
        // So long that it is never renewed by itself while a test looks.
        let builder = LeaseManager::builder(store, WebExecutor::new()).lease(Duration::from_secs(600));
        Self { database, leases: builder.build().unwrap() }
    }

    async fn hold(&self) -> LeaseGuard {
        soon(self.leases.lock("k").acquire()).await.unwrap()
    }

    fn begin(&self) -> IdbTransaction {
        begin(&self.database, &["notes", "leasehold"], IdbTransactionMode::Readwrite)
    }

    /// What the note says; nothing if nobody wrote it.
    async fn note(&self) -> Option<String> {
        let transaction = begin(&self.database, &["notes"], IdbTransactionMode::Readonly);
        done(&notes(&transaction).get(&1.into()).unwrap()).await.unwrap().as_string()
    }

    /// The record of the key.
    async fn record(&self) -> String {
        let transaction = begin(&self.database, &["leasehold"], IdbTransactionMode::Readonly);
        let leases = transaction.object_store("leasehold").unwrap();
        done(&leases.get(&"k".into()).unwrap()).await.unwrap().as_string().unwrap()
    }
}

/// When the guard will no longer be valid, unless it is renewed.
fn valid_until_ms(guard: &LeaseGuard) -> u128 {
    let now = || WebExecutor::new().now().monotonic;
    loop {
        let (before, left) = (now(), guard.remaining());
        // Both in the same millisecond.
        if now() == before {
            return u128::from(before.as_ms()) + left.as_millis();
        }
    }
}

/// Until the clock shows another time.
async fn a_moment() {
    WebExecutor::new().sleep(Duration::from_millis(1)).await;
}

async fn desk(test: &str) -> Desk {
    Desk::at(&fresh_name(test)).await
}

fn begin(database: &IdbDatabase, stores: &[&str], mode: IdbTransactionMode) -> IdbTransaction {
    let names: Array = stores.iter().map(|name| JsValue::from(*name)).collect();
    database.transaction_with_str_sequence_and_mode(&names, mode).unwrap()
}

fn notes(transaction: &IdbTransaction) -> IdbObjectStore {
    transaction.object_store("notes").unwrap()
}

fn write(transaction: &IdbTransaction, text: &str) {
    drop(notes(transaction).put_with_key(&text.into(), &1.into()).unwrap());
}

/// Calls `commit()` as the page's own code would.
fn commit(transaction: &IdbTransaction) {
    let commit: Function = Reflect::get(transaction, &"commit".into()).unwrap().unchecked_into();
    commit.call0(transaction).unwrap();
}

/// How a transaction ends: "complete" or "abort".
fn end(transaction: &IdbTransaction) -> impl Future<Output = String> + use<> {
    let (sender, end) = oneshot::channel();
    let sender = RefCell::new(Some(sender));
    let listener = Rc::new(Closure::<dyn Fn(web_sys::Event)>::new(move |event: web_sys::Event| {
        if let Some(sender) = sender.take() {
            let _ = sender.send(event.type_());
        }
    }));
    for event in ["complete", "abort"] {
        let function = (*listener).as_ref().unchecked_ref();
        transaction.add_event_listener_with_callback(event, function).unwrap();
    }
    async move {
        let end = soon(end).await.unwrap();
        drop(listener);
        end
    }
}

#[test]
async fn a_current_lease_writes() {
    let desk = desk("current").await;
    let guard = desk.hold().await;
    let mut transaction = desk.begin();
    let (ended, fenced) = (end(&transaction), guard.fence(&mut transaction));
    write(&transaction, "mine");
    soon(fenced).await.unwrap();
    assert_eq!(ended.await, "complete");
    assert_eq!(desk.note().await.as_deref(), Some("mine"));
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
}

#[test]
async fn who_waits_for_the_fence_goes_on_in_the_same_transaction() {
    let desk = desk("await").await;
    let guard = desk.hold().await;
    let transaction = desk.begin();
    let ended = end(&transaction);
    guard.fence(&transaction).await.unwrap();
    write(&transaction, "after");
    assert_eq!(ended.await, "complete");
    assert_eq!(desk.note().await.as_deref(), Some("after"));
}

/// Its own page was told nothing: the thief's message does not reach a manager that sees no events.
#[test]
async fn an_overtaken_guard_writes_nothing() {
    let name = fresh_name("stale");
    let (slow, fast) = (Desk::at(&name).await, Desk::at(&name).await);
    for commits in [false, true] {
        for waits in [false, true] {
            let guard = slow.hold().await;
            let thief = soon(fast.leases.lock("k").steal()).await.unwrap();
            let transaction = slow.begin();
            let ended = end(&transaction);
            let fenced = guard.fence(&transaction);
            if waits {
                assert_eq!(fenced.await, Err(FenceError::Lost(LostReason::Stolen)));
                assert!(transaction.object_store("notes").is_err(), "it is over by now");
            } else {
                write(&transaction, "late");
                if commits {
                    commit(&transaction);
                }
                assert_eq!(soon(fenced).await, Err(FenceError::Lost(LostReason::Stolen)));
            }
            assert_eq!(ended.await, "abort");
            assert_eq!(slow.note().await, None);
            let own = fast.begin();
            let ended = end(&own);
            drop(thief.fence(&own));
            write(&own, "new");
            commit(&own);
            assert_eq!(ended.await, "complete", "the thief's lease is the current one");
            assert_eq!(slow.note().await.as_deref(), Some("new"));
            let tidy = begin(&fast.database, &["notes"], IdbTransactionMode::Readwrite);
            done(&notes(&tidy).clear().unwrap()).await.unwrap();
            thief.release().await.unwrap();
        }
    }
}

#[test]
async fn commit_is_the_browsers_own_again_when_all_fences_have_answered() {
    let desk = desk("commit").await;
    let (one, two) = (desk.hold().await, soon(desk.leases.lock("other").acquire()).await.unwrap());
    let transaction = desk.begin();
    let ended = end(&transaction);
    let own = || js_sys::Object::has_own(&transaction, &"commit".into());
    let fences = [one.fence(&transaction), two.fence(&transaction)];
    assert!(own());
    write(&transaction, "both");
    commit(&transaction);
    for fence in fences {
        soon(fence).await.unwrap();
    }
    assert!(!own());
    assert_eq!(ended.await, "complete");
    assert_eq!(desk.note().await.as_deref(), Some("both"));
}

#[test]
async fn of_two_leases_one_that_is_gone_is_enough_to_write_nothing() {
    let name = fresh_name("two");
    let (slow, fast) = (Desk::at(&name).await, Desk::at(&name).await);
    let (kept, lost) = (slow.hold().await, soon(slow.leases.lock("other").acquire()).await.unwrap());
    let _thief = soon(fast.leases.lock("other").steal()).await.unwrap();
    let transaction = slow.begin();
    let ended = end(&transaction);
    let fences = [kept.fence(&transaction), lost.fence(&transaction)];
    write(&transaction, "half");
    commit(&transaction);
    let [first, second] = fences.map(|fence| fence.map(|verdict| verdict.is_ok()));
    assert!(soon(first).await);
    assert!(!soon(second).await);
    assert_eq!(ended.await, "abort");
    assert_eq!(slow.note().await, None);
}

#[test]
async fn a_guard_that_was_given_back_writes_nothing() {
    let desk = desk("released").await;
    // The lease lingers: the record is the same, and the next guard is of the same grant.
    let guard = desk.hold().await;
    guard.release().await.unwrap();
    let next = desk.hold().await;
    let transaction = desk.begin();
    let ended = end(&transaction);
    assert_eq!(soon(guard.fence(&transaction)).await, Err(FenceError::Lost(LostReason::Expired)));
    assert_eq!(ended.await, "abort");

    // Given back while it is checked.
    a_moment().await;
    let transaction = desk.begin();
    let (ended, fenced) = (end(&transaction), next.fence_and_renew(&transaction));
    write(&transaction, "late");
    drop(next.release());
    let heir = desk.hold().await;
    let until = valid_until_ms(&heir);
    assert_eq!(soon(fenced).await, Err(FenceError::Lost(LostReason::Expired)));
    assert_eq!(ended.await, "abort");
    assert_eq!(desk.note().await, None);
    assert!(heir.is_valid());
    assert_eq!(valid_until_ms(&heir), until, "nothing was renewed");
}

#[test]
async fn a_renewal_goes_with_the_write_or_not_at_all() {
    let desk = desk("renew").await;
    let guard = desk.hold().await;
    let before = desk.record().await;
    for aborts in [true, false] {
        a_moment().await;
        let until = valid_until_ms(&guard);
        let transaction = desk.begin();
        let (ended, fenced) = (end(&transaction), guard.fence_and_renew(&transaction));
        soon(fenced).await.unwrap();
        write(&transaction, "renewed");
        if aborts {
            transaction.abort().unwrap();
        }
        assert_eq!(ended.await, if aborts { "abort" } else { "complete" });
        assert_eq!(desk.record().await == before, aborts, "the record has the renewal if the note is written");
        assert_eq!(valid_until_ms(&guard) > until, !aborts);
    }
}

async fn elsewhere() -> Desk {
    desk("elsewhere").await
}

#[test]
async fn what_cannot_be_checked_is_not_written() {
    let name = fresh_name("misuse");
    let desk = Desk::at(&name).await;
    let guard = desk.hold().await;
    let says = async |guard: &LeaseGuard, transaction: &IdbTransaction, words: &str| {
        let verdict = soon(guard.fence(transaction)).await;
        assert!(matches!(&verdict, Err(FenceError::Misuse(text)) if text.contains(words)), "{words}: {verdict:?}");
    };

    let readonly = begin(&desk.database, &["notes", "leasehold"], IdbTransactionMode::Readonly);
    let ended = end(&readonly);
    says(&guard, &readonly, "\"readwrite\"").await;
    assert_eq!(ended.await, "abort");

    let narrow = begin(&desk.database, &["notes"], IdbTransactionMode::Readwrite);
    let ended = end(&narrow);
    write(&narrow, "unchecked");
    says(&guard, &narrow, "\"leasehold\"").await;
    assert_eq!(ended.await, "abort");

    let other = elsewhere().await;
    let elsewhere = other.begin();
    let ended = end(&elsewhere);
    write(&elsewhere, "unchecked");
    says(&guard, &elsewhere, "attach").await;
    assert_eq!(ended.await, "abort");

    let own = LeaseManager::builder(IndexedDbStore::new(&name), WebExecutor::new()).build().unwrap();
    let foreign = soon(own.lock("k").acquire()).await.unwrap();
    let transaction = desk.begin();
    let ended = end(&transaction);
    says(&foreign, &transaction, "attach").await;
    assert_eq!(ended.await, "abort");
    own.close().await;

    let over = desk.begin();
    let ended = end(&over);
    write(&over, "before");
    assert_eq!(ended.await, "complete");
    says(&guard, &over, "over").await;

    let committing = desk.begin();
    write(&committing, "before");
    commit(&committing);
    says(&guard, &committing, "before commit()").await;
    assert_eq!(desk.note().await.as_deref(), Some("before"));
    assert_eq!(other.note().await, None);
}

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

#[test]
async fn a_wiped_database_takes_nothing_from_before() {
    let desk = desk("wiped").await;
    let guard = desk.hold().await;
    let wipe = begin(&desk.database, &["leasehold"], IdbTransactionMode::Readwrite);
    done(&wipe.object_store("leasehold").unwrap().clear().unwrap()).await.unwrap();
    let transaction = desk.begin();
    let (ended, fenced) = (end(&transaction), guard.fence(&transaction));
    write(&transaction, "late");
    assert_eq!(soon(fenced).await, Err(FenceError::Lost(LostReason::StoreCleared)));
    assert_eq!(ended.await, "abort");
    assert_eq!(soon(guard.lost()).await, LostReason::StoreCleared, "the guard learns of it");
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
async fn a_transaction_that_ends_before_it_was_checked_says_so() {
    let desk = desk("aborted").await;
    let guard = desk.hold().await;
    let transaction = desk.begin();
    let fenced = guard.fence(&transaction);
    transaction.abort().unwrap();
    let verdict = soon(fenced).await;
    assert!(matches!(&verdict, Err(FenceError::Store(error)) if error.message.contains("aborted")), "{verdict:?}");
    assert!(guard.verify().await.unwrap());
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
    database.close();
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

/// A failed read does not abort the transaction if a handler of the page says so.
#[test]
async fn a_read_that_failed_is_no_empty_record() {
    let name = fresh_name("unread");
    let (holder, other) = (Desk::at(&name).await, Desk::at(&name).await);
    let guard = holder.hold().await;
    let calm = Closure::<dyn Fn(web_sys::Event)>::new(|event: web_sys::Event| event.prevent_default());
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

#[test]
async fn of_two_renewals_in_one_transaction_both_are_written() {
    let name = fresh_name("both");
    let (one, two) = (Desk::at(&name).await, Desk::at(&name).await);
    let hold = async |desk: &Desk| soon(desk.leases.lock("k").shared().acquire()).await.unwrap();
    let guards = [hold(&one).await, hold(&two).await];
    let beats = |record: &str| record.matches("\"beat\":1,").count();
    let before = one.record().await;
    assert_eq!(beats(&before), 2, "{before}");
    let transaction = one.begin();
    let ended = end(&transaction);
    let fences = guards.each_ref().map(|guard| guard.fence_and_renew(&transaction));
    for fence in fences {
        soon(fence).await.unwrap();
    }
    assert_eq!(ended.await, "complete");
    let after = one.record().await;
    assert_eq!(beats(&after), 0, "{after}");
}

/// A failed write does not abort the transaction if a handler of the page says so.
#[test]
async fn a_renewal_that_failed_to_be_written_ends_the_transaction() {
    let desk = desk("unwritten").await;
    let guard = desk.hold().await;
    let calm = Closure::<dyn Fn(web_sys::Event)>::new(|event: web_sys::Event| event.prevent_default());
    desk.database.add_event_listener_with_callback("error", calm.as_ref().unchecked_ref()).unwrap();
    a_moment().await;
    let until = valid_until_ms(&guard);
    let transaction = desk.begin();
    let (ended, fenced) = (end(&transaction), guard.fence_and_renew(&transaction));
    let fails = "function (value, key) { return key === 'k' ? this.add(value, key) : original.call(this, value, key) }";
    let failing = Replaced::in_database(&desk.database.name(), "IDBObjectStore", "put", fails);
    soon(fenced).await.unwrap();
    drop(failing);
    assert_eq!(ended.await, "abort");
    assert_eq!(valid_until_ms(&guard), until, "nothing was renewed");
}

#[test]
async fn fences_leave_no_memory_behind() {
    let desk = desk("memory").await;
    let guard = desk.hold().await;
    takes_no_more_memory(async || {
        for turn in 0..300 {
            let transaction = desk.begin();
            let (ended, fenced) = (end(&transaction), guard.fence_and_renew(&transaction));
            match turn % 3 {
                0 => drop(soon(fenced).await),
                1 => commit(&transaction),
                _ => transaction.abort().unwrap(),
            }
            ended.await;
        }
    })
    .await;
}
