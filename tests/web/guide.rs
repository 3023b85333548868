//! The code of docs/rust-in-the-browser.md, which tests/documents.rs compares with it, and what it does.

use std::{cell::Cell, time::Duration};

use futures::{
    channel::oneshot,
    future::{Either, pending, select},
};
use js_sys::{Array, Promise, Reflect, global};
use leasehold::{
    AcquireError, LeaseGuard, LeaseManager,
    executor::WebExecutor,
    store::{FenceError, IndexedDbStore},
};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::{IdbDatabase, IdbFactory, IdbOpenDbRequest, IdbRequest, IdbTransaction, IdbTransactionMode};

// The tests alone use the rest.
use std::{cell::RefCell, rc::Rc};

use leasehold::LostReason;
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::platform::{fresh_name, soon, until};

thread_local! {
    /// The only manager of this thread: of the page, or of a worker.
    static LEASES: LeaseManager = LeaseManager::builder(IndexedDbStore::new("my-app"), WebExecutor::new())
        .build()
        .expect("the default options fit each other");
}

fn leases() -> LeaseManager {
    LEASES.with(LeaseManager::clone)
}

async fn refresh_once() -> Result<(), AcquireError> {
    let guard = leases().lock("token").timeout(Duration::from_secs(10)).acquire().await?;
    // … look whether another tab has refreshed it meanwhile; if not, do it …
    drop(guard);
    Ok(())
}

async fn answer_of(request: &IdbRequest) -> Result<JsValue, JsValue> {
    let answered = Promise::new(&mut |resolve, reject| {
        request.set_onsuccess(Some(&resolve));
        request.set_onerror(Some(&reject));
    });
    JsFuture::from(answered).await?;
    request.result()
}

async fn open(name: &str) -> Result<IdbDatabase, JsValue> {
    // In pages and in workers.
    let factory: IdbFactory = Reflect::get(&global(), &"indexedDB".into())?.unchecked_into();
    let request: IdbOpenDbRequest = factory.open_with_u32(name, 1)?;
    let upgrading = request.clone();
    let upgrade = Closure::<dyn Fn()>::new(move || {
        let database: IdbDatabase = upgrading.result().expect("it is open").unchecked_into();
        database.create_object_store("notes").expect("it is new");
        IndexedDbStore::upgrade(&database).expect("an upgrade may make object stores");
    });
    request.set_onupgradeneeded(Some(upgrade.as_ref().unchecked_ref()));
    Ok(answer_of(&request).await?.unchecked_into())
}

async fn save(database: &IdbDatabase, guard: &LeaseGuard, text: &str) -> Result<bool, FenceError> {
    let stores = Array::of2(&"notes".into(), &"leasehold".into());
    let transaction = database
        .transaction_with_str_sequence_and_mode(&stores, IdbTransactionMode::Readwrite)
        .expect("the database is open");
    guard.fence(&transaction).await?;
    let notes = transaction.object_store("notes").expect("it is in the scope");
    notes.put_with_key(&text.into(), &"draft".into()).expect("the transaction is active");
    Ok(committed(&transaction).await)
}

/// Waits until the transaction ends: `true` if it committed, `false` if it was aborted, for example because the disk is full.
async fn committed(transaction: &IdbTransaction) -> bool {
    let ended = Promise::new(&mut |complete, abort| {
        transaction.set_oncomplete(Some(&complete));
        transaction.set_onabort(Some(&abort));
    });
    JsFuture::from(ended).await.is_ok()
}

async fn lead(leases: &LeaseManager, stop: oneshot::Receiver<()>, led: &Cell<u32>) -> Result<(), AcquireError> {
    let leading = Box::pin(leases.lock("leader").share_in_process().elect(async |_lease| {
        led.set(led.get() + 1);
        pending::<()>().await;
    }));
    match select(leading, stop).await {
        Either::Left((ended, _)) => ended,
        // Dropping the election releases the lease, and the next tab leads.
        Either::Right(_) => Ok(()),
    }
}

async fn take_the_lead(leases: &LeaseManager, begun: impl Future<Output = ()>) -> Result<(), AcquireError> {
    let stolen = leases.lock("leader").share_in_process().steal().await?;
    // Meanwhile the election of this page gets a share of the stolen lease. It keeps the lease when this guard is dropped.
    begun.await;
    drop(stolen);
    Ok(())
}

#[test]
async fn a_page_has_one_manager() {
    soon(refresh_once()).await.unwrap();
    assert_eq!(leases().session(), leases().session());
}

#[test]
async fn the_database_takes_fenced_writes() {
    let name = fresh_name("guide");
    let database = soon(open(&name)).await.unwrap();
    let store = IndexedDbStore::attach(database.clone()).unwrap();
    let leases = LeaseManager::builder(store, WebExecutor::new()).build().unwrap();
    let guard = soon(leases.lock("notes").acquire()).await.unwrap();
    assert!(soon(save(&database, &guard, "mine")).await.unwrap());
    let thief = soon(leases.lock("notes").steal()).await.unwrap();
    let refused = soon(save(&database, &guard, "late")).await.unwrap_err();
    assert!(matches!(refused, FenceError::Lost { reason: LostReason::Stolen, .. }), "{refused}");
    let look = database.transaction_with_str("notes").unwrap().object_store("notes").unwrap().get(&"draft".into());
    assert_eq!(soon(answer_of(&look.unwrap())).await.unwrap().as_string().as_deref(), Some("mine"));
    drop(thief);
}

/// Two managers stand for two tabs.
#[test]
async fn an_election_is_stolen_and_stepped_down_from() {
    let name = fresh_name("guide-lead");
    let tab = || LeaseManager::builder(IndexedDbStore::new(&name), WebExecutor::new()).build().unwrap();
    let (one, other) = (tab(), tab());
    let led = [Rc::new(Cell::new(0)), Rc::new(Cell::new(0))];
    let mut stops = Vec::new();
    let ended = Rc::new(RefCell::new(Vec::new()));
    for (leases, led) in [(&one, &led[0]), (&other, &led[1])] {
        let (stop, stopped) = oneshot::channel();
        stops.push(stop);
        let (leases, mine, ended) = (leases.clone(), led.clone(), ended.clone());
        wasm_bindgen_futures::spawn_local(async move {
            let result = lead(&leases, stopped, &mine).await.is_ok();
            ended.borrow_mut().push(result);
        });
        until(async || led.get() + other_waits(&other).await > 0).await;
    }
    assert_eq!([led[0].get(), led[1].get()], [1, 0]);
    soon(take_the_lead(&other, until(async || led[1].get() == 1))).await.unwrap();
    assert!(other.leader("leader").await.unwrap().is_some());
    stops.pop().unwrap().send(()).unwrap();
    until(async || led[0].get() == 2).await;
    stops.pop().unwrap().send(()).unwrap();
    until(async || ended.borrow().len() == 2).await;
    assert_eq!(*ended.borrow(), [true, true]);
}

async fn other_waits(leases: &LeaseManager) -> u32 {
    u32::from(!leases.status("leader").await.unwrap().queue.is_empty())
}
