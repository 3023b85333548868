//! One transaction: read, apply, write, commit.
//!
//! It is driven by the database's own events. An `await` in the middle would give control back, and the browser would
//! commit what there is.

use core::cell::RefCell;
use std::rc::Rc;

use js_sys::Function;
use wasm_bindgen::prelude::*;
use web_sys::{IdbObjectStore, IdbRequest};

use super::{
    Answer,
    bindings::{Transaction, random_bits},
    connection::Connection,
    failure,
    graves::{self, store_key, tombstone_key},
    pending::Pending,
};
use crate::machine::{Batch, Incarnation, Key, Records, Reply, StoreError, StoreErrorKind, StoreId, StoreNow};

/// Creates the transaction and asks for what it reads. The error is the browser's; then nothing was asked.
pub(super) fn start(connection: &Rc<Connection>, batch: &Batch, now: StoreNow) -> Result<Answer, JsValue> {
    let transaction = connection.open_transaction()?;
    let leases = transaction.object_store(connection.object_store())?;
    let (pending, answer) = Pending::new();
    let running = Rc::new(Running {
        reads: Reads::ask(connection, &leases, batch)?,
        connection: Rc::clone(connection),
        transaction,
        leases,
        batch: batch.clone(),
        now,
        known: RefCell::default(),
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
    /// What was read.
    known: RefCell<Records>,
    /// What it will answer once it is complete, or why it was aborted.
    decision: RefCell<Option<Result<Reply, StoreError>>>,
    pending: Rc<Pending<Result<Reply, StoreError>>>,
}

impl Running {
    /// The events: `success` of each last read, by when all others are there too, then either `complete` or `abort`.
    fn listen(self: &Rc<Self>) {
        self.transaction.set_oncomplete(Some(&self.handler(|running| running.complete())));
        self.transaction.set_onabort(Some(&self.handler(|running| running.abort())));
        self.go_on_after(&self.reads.last, |running| running.read_records());
    }

    fn handler(self: &Rc<Self>, handle: impl Fn(&Rc<Self>) + 'static) -> Function {
        let running = Rc::clone(self);
        self.pending.handler(move |_| handle(&running))
    }

    /// Takes the next step when a read is done. What fails there aborts the transaction.
    fn go_on_after(self: &Rc<Self>, read: &IdbRequest, step: impl Fn(&Rc<Self>) -> Result<(), StoreError> + 'static) {
        read.set_onsuccess(Some(&self.handler(move |running| {
            if let Err(error) = step(running) {
                *running.decision.borrow_mut() = Some(Err(error));
                // It fails only if the browser is ending the transaction already.
                let _ = running.transaction.abort();
            }
        })));
    }

    fn read_records(self: &Rc<Self>) -> Result<(), StoreError> {
        load(&self.reads.records, &mut self.known.borrow_mut())?;
        let asker = self.batch.0.first().map(|operation| operation.holder);
        let contended = asker.is_some_and(|asker| self.known.borrow().name_others(asker));
        self.connection.expect_others(contended);
        if !contended && !self.is_first() {
            return self.decide();
        }
        if let Some(names) = &self.reads.gone {
            return self.read_names(names);
        }
        let names = failure::asked(graves::ask_names(&self.leases))?;
        let read = names.clone();
        self.go_on_after(&names, move |running| running.read_names(&read));
        Ok(())
    }

    /// The first transaction of a connection also cleans up where nobody comes any more.
    fn is_first(&self) -> bool {
        self.connection.store().is_none()
    }

    fn read_names(self: &Rc<Self>, names: &IdbRequest) -> Result<(), StoreError> {
        let gone = graves::names_of(names)?;
        if gone.is_empty() {
            return self.decide();
        }
        self.read_each(gone, |holder| tombstone_key(*holder), |running, tombstones| running.read_tombstones(tombstones))
    }

    fn read_tombstones(self: &Rc<Self>, tombstones: &[(Incarnation, IdbRequest)]) -> Result<(), StoreError> {
        for (holder, read) in tombstones {
            self.known.borrow_mut().load_tombstone(*holder, &text_of(read)?.unwrap_or_default());
        }
        let unvisited = if self.is_first() { self.known.borrow().unvisited() } else { Vec::new() };
        if unvisited.is_empty() {
            return self.decide();
        }
        let step = |running: &Rc<Self>, records: &[_]| {
            load(records, &mut running.known.borrow_mut())?;
            running.decide()
        };
        self.read_each(unvisited, |key| key.as_str().into(), step)
    }

    /// Reads several values, and goes on with all of them.
    fn read_each<T: 'static>(
        self: &Rc<Self>,
        names: Vec<T>,
        key_of: impl Fn(&T) -> JsValue,
        step: impl Fn(&Rc<Self>, &[(T, IdbRequest)]) -> Result<(), StoreError> + 'static,
    ) -> Result<(), StoreError> {
        let mut reads = Vec::with_capacity(names.len());
        for name in names {
            let read = failure::asked(self.leases.get(&key_of(&name)))?;
            reads.push((name, read));
        }
        let Some((_, last)) = reads.last() else { return Ok(()) };
        self.go_on_after(&last.clone(), move |running| step(running, &reads));
        Ok(())
    }

    fn decide(&self) -> Result<(), StoreError> {
        let reply = self.apply()?;
        *self.decision.borrow_mut() = Some(Ok(reply));
        // Saves a turn. Where the method is missing, the browser commits when it sees that nothing more is asked.
        let _ = self.transaction.commit();
        Ok(())
    }

    fn apply(&self) -> Result<Reply, StoreError> {
        let store = self.connection.store().map_or_else(|| self.reads.store(), |store| Ok(Some(store)))?;
        let store = store.map_or_else(|| self.make_store(), Ok)?;
        let mut records = self.known.borrow_mut();
        let before = records.revisions();
        if self.is_first() {
            records.sweep();
        }
        let answers = self.batch.apply(&mut records, self.now);
        for (key, record) in records.changed_since(&before) {
            self.put(&record, &key.as_str().into())?;
        }
        for (holder, tombstone) in records.changed_tombstones() {
            let key = tombstone_key(holder);
            match tombstone {
                Some(shorter) => self.put(&shorter, &key)?,
                None => drop(failure::asked(self.leases.delete(&key))?),
            }
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
        failure::asked(self.leases.put_with_key(&value.into(), key)).map(drop)
    }

    fn complete(&self) {
        self.connection.over(&self.transaction);
        let decision = self.decision.take().unwrap_or_else(|| Err(failure::of_abort(None, false)));
        if let Ok(reply) = &decision {
            self.connection.remember(reply.store);
        }
        self.pending.settle(decision);
    }

    fn abort(&self) {
        if self.connection.over(&self.transaction) {
            // It may be the connection that failed, and not every browser says so.
            self.connection.give_up();
        }
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
    /// Who is gone; asked for at once where others were about the last time.
    gone: Option<IdbRequest>,
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
        let gone = if connection.expects_others() { Some(graves::ask_names(leases)?) } else { None };
        // The store's id is read once a connection; and by a batch of nothing, to have something that is answered.
        let last = gone.clone().or_else(|| records.last().map(|(_, read)| read.clone()));
        let store = match (connection.store(), last) {
            (Some(_), Some(last)) => return Ok(Self { store: None, records, gone, last }),
            _ => leases.get(&store_key())?,
        };
        Ok(Self { last: store.clone(), store: Some(store), records, gone })
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

/// Puts what was read into the records.
fn load(reads: &[(Key, IdbRequest)], records: &mut Records) -> Result<(), StoreError> {
    for (key, read) in reads {
        records.load(key.clone(), text_of(read)?.as_deref());
    }
    Ok(())
}

/// What a finished request found. One that failed found nothing, and does not end the transaction where a handler of the
/// user's says so: that is no empty record.
pub(super) fn found(read: &IdbRequest) -> Result<JsValue, StoreError> {
    match read.error() {
        Ok(Some(error)) => Err(failure::of_abort(Some(&error), false)),
        _ => failure::asked(read.result()),
    }
}

/// The text that a finished request found. A value that is no text becomes one that is no record.
pub(super) fn text_of(read: &IdbRequest) -> Result<Option<String>, StoreError> {
    let value = found(read)?;
    Ok((!value.is_undefined()).then(|| value.as_string().unwrap_or_default()))
}
