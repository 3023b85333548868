//! Manners towards the page: nothing is thrown at it, and nothing is left behind.

use std::{cell::Cell, rc::Rc, time::Duration};

use futures::FutureExt;
use js_sys::{Array, ArrayBuffer, Function, Reflect, WebAssembly::Memory, global};
use leasehold::{
    LeaseManager,
    executor::{Executor, WebExecutor},
    machine::{Body, Key, Message, SessionId, StoreId},
    signal::{BroadcastSignals, Inbox, Notice, Signals},
    store::{IndexedDbStore, Store},
};
use wasm_bindgen::prelude::*;
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::{
    indexed_db::{LIMIT, acquire, now},
    platform::{Replaced, done, fresh_name, indexed_db, settle, until},
};

/// Counts what reaches the page's error handlers, until it is dropped.
struct Complaints {
    count: Rc<Cell<u32>>,
    listener: Closure<dyn Fn()>,
}

const KINDS: [&str; 2] = ["error", "unhandledrejection"];

impl Complaints {
    fn listen() -> Self {
        let count = Rc::new(Cell::new(0));
        let counted = Rc::clone(&count);
        let complaints = Self { count, listener: Closure::new(move || counted.set(counted.get() + 1)) };
        complaints.call("addEventListener");
        complaints
    }

    fn call(&self, method: &str) {
        let method: Function = Reflect::get(&global(), &method.into()).unwrap().unchecked_into();
        for kind in KINDS {
            method.call2(&global(), &kind.into(), self.listener.as_ref()).unwrap();
        }
    }
}

impl Drop for Complaints {
    fn drop(&mut self) {
        self.call("removeEventListener");
    }
}

struct Deaf;

impl Inbox for Deaf {
    fn notice(&self, _: Notice) {}
}

fn fresh_session() -> SessionId {
    SessionId(WebExecutor::new().random())
}

/// Wakes, watches itself and a beacon that nobody raised, and gives up all of it before anything was granted.
fn wake_and_rest(signals: &BroadcastSignals, inbox: &Rc<dyn Inbox>) {
    let session = fresh_session();
    signals.wake(session, true, Rc::downgrade(inbox));
    signals.watch(1, session);
    signals.watch(2, fresh_session());
    signals.watch(2, session);
    signals.unwatch(1);
    signals.rest();
}

fn wasm_bytes() -> u32 {
    let buffer = wasm_bindgen::memory().unchecked_into::<Memory>().buffer();
    buffer.unchecked_into::<ArrayBuffer>().byte_length()
}

/// Has it done again and again, until that takes no more memory. What is left behind takes a page of it each time; what
/// another test still has to do, once.
pub(super) async fn takes_no_more_memory(again: impl AsyncFn()) {
    for round in 0..10 {
        let before = wasm_bytes();
        again().await;
        // At first, what is left behind may find room.
        if round >= 2 && wasm_bytes() == before {
            return;
        }
    }
    panic!("each time takes more than a page of memory");
}

#[test]
async fn nothing_is_thrown_at_the_page() {
    let complaints = Complaints::listen();
    let store = IndexedDbStore::new(&fresh_name("quiet"));
    // An open that is dropped, a transaction that is dropped, and one that fails.
    assert!(store.transact(acquire("k", 1), now(), LIMIT).now_or_never().is_none());
    store.transact(acquire("k", 1), now(), LIMIT).await.unwrap();
    assert!(store.transact(acquire("k", 2), now(), LIMIT).now_or_never().is_none());
    drop(store);
    let name = fresh_name("newer");
    let newer = done(&indexed_db().open_with_u32(&format!("leasehold:{name}"), 2).unwrap()).await.unwrap();
    IndexedDbStore::new(&name).transact(acquire("k", 1), now(), LIMIT).await.unwrap_err();
    newer.unchecked_into::<web_sys::IdbDatabase>().close();
    let (signals, inbox) = (BroadcastSignals::new(&name), Rc::new(Deaf) as Rc<dyn Inbox>);
    wake_and_rest(&signals, &inbox);
    // A message to who has just gone to rest.
    let others = BroadcastSignals::new(&name);
    others.wake(fresh_session(), false, Rc::downgrade(&inbox));
    let body = Body::Gone { holder: SessionId(1) };
    others.send(&Message { store: StoreId(1), key: Key::new("k").unwrap(), body });
    // A timer whose sleep is dropped, and which would fire before the end of this test.
    let _ = WebExecutor::new().sleep(Duration::from_millis(100)).now_or_never();
    settle().await;
    assert_eq!(complaints.count.get(), 0);
    // The counter itself works.
    drop(js_sys::Promise::reject(&"expected by a test".into()));
    until(async || complaints.count.get() == 1).await;
}

/// The browser may close a connection by force between the last answer and the end of the transaction.
#[test]
async fn a_list_that_is_aborted_after_its_last_answer_throws_nothing_at_the_page() {
    let complaints = Complaints::listen();
    let name = fresh_name("aborted list");
    let store = IndexedDbStore::new(&name);
    store.transact(acquire("k", 1), now(), LIMIT).await.unwrap();
    let aborts = "function (...given) {
        const request = original.apply(this, given);
        request.addEventListener('success', () => this.transaction.abort());
        return request;
    }";
    let aborted = Replaced::in_database(&format!("leasehold:{name}"), "IDBObjectStore", "getAllKeys", aborts);
    assert_eq!(store.keys("").await.unwrap().len(), 1);
    settle().await;
    drop(aborted);
    assert_eq!(complaints.count.get(), 0);
}

#[test]
async fn transactions_leave_no_memory_behind() {
    let store = IndexedDbStore::new(&fresh_name("memory"));
    takes_no_more_memory(async || {
        for _ in 0..500 {
            store.transact(acquire("k", 1), now(), LIMIT).await.unwrap();
        }
    })
    .await;
}

#[test]
async fn signals_leave_nothing_behind() {
    let (signals, inbox) = (BroadcastSignals::new(&fresh_name("left")), Rc::new(Deaf) as Rc<dyn Inbox>);
    for _ in 0..10 {
        wake_and_rest(&signals, &inbox);
    }
    signals.wake(fresh_session(), false, Rc::downgrade(&inbox));
    drop(signals);
    until(async || Rc::weak_count(&inbox) == 0).await;
}

/// The listeners that were added to anything while this stands, but for those that were removed again.
struct Listeners {
    added: Array,
    // Removed when they are dropped.
    _replaced: [Replaced; 2],
}

impl Listeners {
    fn watched() -> Self {
        let added = Array::new();
        Reflect::set(&global(), &"added".into(), &added).unwrap();
        // A listener that is added twice is there once.
        let adds = "function (...given) {
            if (!added.some((one) => one[0] === this && one[1] === given[0] && one[2] === given[1])) added.push([this, ...given]);
            return original.apply(this, given);
        }";
        // What was added before, by another test, is not there to be found.
        let removes = "function (...given) {
            const at = added.findIndex((one) => one[0] === this && one[1] === given[0] && one[2] === given[1]);
            if (at >= 0) added.splice(at, 1);
            return original.apply(this, given);
        }";
        let replaced = [("addEventListener", adds), ("removeEventListener", removes)];
        Self { added, _replaced: replaced.map(|(name, wrapper)| Replaced::method("EventTarget", name, wrapper)) }
    }

    fn count(&self) -> u32 {
        self.added.length()
    }
}

#[test]
async fn a_closed_manager_listens_to_the_page_no_more() {
    let listeners = Listeners::watched();
    let store = IndexedDbStore::new(&fresh_name("deaf"));
    let leases = LeaseManager::builder(store, WebExecutor::new()).build().unwrap();
    drop(leases.lock("k").acquire().await.unwrap());
    assert_ne!(listeners.count(), 0, "to the closing of the database, at least");
    leases.close().await;
    until(async || listeners.count() == 0).await;
}
