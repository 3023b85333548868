//! A tab with a database of the user's, which has notes and leases in it.

use std::{cell::RefCell, rc::Rc, time::Duration};

use futures::channel::oneshot;
use js_sys::{Array, Function, Reflect};
use leasehold::{
    LeaseGuard, LeaseManager,
    executor::{Executor, WebExecutor},
    store::IndexedDbStore,
};
use wasm_bindgen::prelude::*;
use web_sys::{IdbDatabase, IdbObjectStore, IdbOpenDbRequest, IdbTransaction, IdbTransactionMode};

use super::platform::{done, fresh_name, indexed_db, session_row, soon};

/// Opens a database of the user's, with notes and, if wanted, leases.
pub(super) async fn open(name: &str, version: u32, leases: bool) -> IdbDatabase {
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
pub(super) struct Desk {
    pub(super) database: IdbDatabase,
    pub(super) leases: LeaseManager,
}

impl Desk {
    pub(super) async fn at(name: &str) -> Self {
        let database = open(name, 1, true).await;
        let store = IndexedDbStore::attach(database.clone()).unwrap();
        // Long enough that it is never renewed by itself while a test looks.
        let builder = LeaseManager::builder(store, WebExecutor::new()).lease(Duration::from_secs(600));
        Self { database, leases: builder.build().unwrap() }
    }

    pub(super) async fn hold(&self) -> LeaseGuard {
        soon(self.leases.lock("k").acquire()).await.unwrap()
    }

    pub(super) fn begin(&self) -> IdbTransaction {
        begin(&self.database, &["notes", "leasehold"], IdbTransactionMode::Readwrite)
    }

    /// What the note says; nothing if nobody wrote it.
    pub(super) async fn note(&self) -> Option<String> {
        let transaction = begin(&self.database, &["notes"], IdbTransactionMode::Readonly);
        done(&notes(&transaction).get(&1.into()).unwrap()).await.unwrap().as_string()
    }

    /// The record of the key.
    pub(super) async fn record(&self) -> String {
        self.row("k").await.unwrap()
    }

    /// The row of the session that is open, if it is there.
    pub(super) async fn session(&self) -> Option<String> {
        self.row(session_row(self.leases.session())).await
    }

    async fn row(&self, key: impl Into<JsValue>) -> Option<String> {
        let transaction = begin(&self.database, &["leasehold"], IdbTransactionMode::Readonly);
        let leases = transaction.object_store("leasehold").unwrap();
        done(&leases.get(&key.into()).unwrap()).await.unwrap().as_string()
    }
}

/// When the guard will no longer be valid, unless it is renewed.
pub(super) fn valid_until_ms(guard: &LeaseGuard) -> u128 {
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
pub(super) async fn a_moment() {
    WebExecutor::new().sleep(Duration::from_millis(1)).await;
}

pub(super) async fn desk(test: &str) -> Desk {
    Desk::at(&fresh_name(test)).await
}

pub(super) fn begin(database: &IdbDatabase, stores: &[&str], mode: IdbTransactionMode) -> IdbTransaction {
    let names: Array = stores.iter().map(|name| JsValue::from(*name)).collect();
    database.transaction_with_str_sequence_and_mode(&names, mode).unwrap()
}

pub(super) fn notes(transaction: &IdbTransaction) -> IdbObjectStore {
    transaction.object_store("notes").unwrap()
}

pub(super) fn write(transaction: &IdbTransaction, text: &str) {
    drop(notes(transaction).put_with_key(&text.into(), &1.into()).unwrap());
}

/// Calls `commit()` as the page's own code would.
pub(super) fn commit(transaction: &IdbTransaction) {
    try_commit(transaction).unwrap();
}

/// Calls `commit()` likewise. The error is what `commit()` throws.
pub(super) fn try_commit(transaction: &IdbTransaction) -> Result<JsValue, JsValue> {
    let commit: Function = Reflect::get(transaction, &"commit".into()).unwrap().unchecked_into();
    commit.call0(transaction)
}

/// How a transaction ends: "complete" or "abort".
pub(super) fn end(transaction: &IdbTransaction) -> impl Future<Output = String> + use<> {
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
