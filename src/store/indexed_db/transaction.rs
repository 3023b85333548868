//! One transaction: read, apply, write, commit.
//!
//! It is driven by the database's own events. An `await` in the middle would give control back, and the browser would
//! commit what there is.

use core::cell::RefCell;
use std::rc::Rc;

use js_sys::Array;
use wasm_bindgen::prelude::*;
use web_sys::{IdbObjectStore, IdbRequest};

use super::{
    Answer,
    bindings::{Transaction, random_bits},
    connection::{Connection, OBJECT_STORE},
    failure,
    pending::Pending,
};
use crate::machine::{Batch, Key, Records, Reply, StoreError, StoreErrorKind, StoreId, StoreNow};

/// Creates the transaction and asks for what it reads. The error is the browser's; then nothing was asked.
pub(super) fn start(connection: &Rc<Connection>, batch: &Batch, now: StoreNow) -> Result<Answer, JsValue> {
    let transaction = connection.begin()?;
    let leases = transaction.object_store(OBJECT_STORE)?;
    let (pending, answer) = Pending::new();
    let running = Rc::new(Running {
        reads: Reads::ask(connection, &leases, batch)?,
        connection: Rc::clone(connection),
        transaction,
        leases,
        batch: batch.clone(),
        now,
        decision: RefCell::new(None),
        pending,
    });
    running.listen();
    Ok(answer)
}

/// A transaction at work. Its handlers own it, and are dropped when it has answered.
struct Running {
    connection: Rc<Connection>,
    transaction: Transaction,
    leases: IdbObjectStore,
    reads: Reads,
    batch: Batch,
    now: StoreNow,
    /// What it will answer once it is complete, or why it was aborted.
    decision: RefCell<Option<Result<Reply, StoreError>>>,
    pending: Rc<Pending<Result<Reply, StoreError>>>,
}

impl Running {
    /// The events: `success` of the last read, by when all others are there too, then either `complete` or `abort`.
    fn listen(self: &Rc<Self>) {
        let handler = |handle: fn(&Self)| {
            let running = Rc::clone(self);
            self.pending.handler(move |_| handle(&running))
        };
        self.reads.last.set_onsuccess(Some(&handler(Self::decide)));
        self.transaction.set_oncomplete(Some(&handler(Self::complete)));
        self.transaction.set_onabort(Some(&handler(Self::abort)));
    }

    fn decide(&self) {
        let decision = self.apply();
        let failed = decision.is_err();
        *self.decision.borrow_mut() = Some(decision);
        if failed {
            // It fails only if the browser is ending the transaction already.
            let _ = self.transaction.abort();
        } else {
            // Saves a turn. Where the method is missing, the browser commits when it sees that nothing more is asked.
            let _ = self.transaction.commit();
        }
    }

    fn apply(&self) -> Result<Reply, StoreError> {
        let known = self.connection.store();
        let store = known.map_or_else(|| self.reads.store(), |store| Ok(Some(store)))?;
        let store = store.map_or_else(|| self.make_store(), Ok)?;
        let mut records = Records::new();
        for (key, read) in &self.reads.records {
            records.load(key.clone(), text_of(read)?.as_deref());
        }
        let before = records.revisions();
        let answers = self.batch.apply(&mut records, self.now);
        for (key, record) in records.changed_since(&before) {
            self.put(&record, &key.as_str().into())?;
        }
        Ok(Reply { store, answers })
    }

    /// A new database, or one that was cleared, is a new store.
    fn make_store(&self) -> Result<StoreId, StoreError> {
        let store = StoreId(random_bits());
        self.put(&store.to_string(), &store_key())?;
        Ok(store)
    }

    /// [MDN](https://developer.mozilla.org/en-US/docs/Web/API/IDBObjectStore/put)
    fn put(&self, value: &str, key: &JsValue) -> Result<(), StoreError> {
        let request = self.leases.put_with_key(&value.into(), key);
        request.map(drop).map_err(|error| failure::of_abort(Some(&error), false))
    }

    fn complete(&self) {
        let decision = self.decision.take().unwrap_or_else(|| Err(failure::of_abort(None, false)));
        if let Ok(reply) = &decision {
            self.connection.remember(reply.store);
        }
        self.pending.settle(decision);
    }

    fn abort(&self) {
        // It may be the connection that failed, and not every browser says so.
        self.connection.give_up();
        let error = match self.decision.take() {
            Some(Err(error)) => error,
            decision => failure::of_abort(self.transaction.error().as_ref().map(AsRef::as_ref), decision.is_some()),
        };
        self.pending.settle(Err(error));
    }
}

/// What a transaction reads.
struct Reads {
    store: Option<IdbRequest>,
    records: Vec<(Key, IdbRequest)>,
    /// Requests are answered in order: after this one, all are.
    last: IdbRequest,
}

impl Reads {
    /// [MDN](https://developer.mozilla.org/en-US/docs/Web/API/IDBObjectStore/get)
    fn ask(connection: &Connection, leases: &IdbObjectStore, batch: &Batch) -> Result<Self, JsValue> {
        let mut records = Vec::new();
        for key in batch.keys() {
            let read = leases.get(&key.as_str().into())?;
            records.push((key, read));
        }
        // The store's id is read once a connection; and by a batch of nothing, to have something that is answered.
        let last = records.last().map(|(_, read)| read.clone());
        let store = match (connection.store(), last) {
            (Some(_), Some(last)) => return Ok(Self { store: None, records, last }),
            _ => leases.get(&store_key())?,
        };
        Ok(Self { last: store.clone(), store: Some(store), records })
    }

    /// The id of the store, if it has one. What is there but cannot be read is left alone.
    fn store(&self) -> Result<Option<StoreId>, StoreError> {
        let Some(text) = self.store.as_ref().map_or(Ok(None), text_of)? else { return Ok(None) };
        u128::from_str_radix(&text, 16).map(|bits| Some(StoreId(bits))).map_err(|_| {
            let message = "the id of the store cannot be read; a newer version of this program may have made it";
            StoreError::permanent(StoreErrorKind::Unavailable, message)
        })
    }
}

/// The text that a finished request found. A value that is no text becomes one that is no record.
fn text_of(read: &IdbRequest) -> Result<Option<String>, StoreError> {
    let value = read.result().map_err(|error| failure::of_abort(Some(&error), false))?;
    Ok((!value.is_undefined()).then(|| value.as_string().unwrap_or_default()))
}

/// An array, as no key of a lease can be.
fn store_key() -> JsValue {
    Array::of1(&"store".into()).into()
}
