//! One transaction: read, apply, write, commit. All that it reads is requested at once; the rows of the store and the sessions are left out
//! if the records will probably be enough.
//!
//! A context that is the only one to use a key finds in its record what the context wrote there last. So the transaction guesses that text:
//! it requests the record, and right after that the write that follows from the guess. It commits only once its handler has read the
//! record. If the record says something else, the handler first writes that back, and then decides as usual. Nobody sees the wrong write,
//! because the transaction excludes all others until it ends. If the handler does not come to its end, because it fails or the page stops,
//! the transaction is aborted.
//!
//! It is driven by the database's own events. An `await` in the middle would give control back, and the browser would
//! commit what there is.

use core::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use js_sys::Array;
use wasm_bindgen::prelude::*;
use web_sys::{Event, IdbObjectStore, IdbRequest};

use super::{
    bindings::Transaction,
    connection::Connection,
    failure,
    pending::{Answer, Pending},
    rows, sweep,
};
use crate::executor::{Part, now, random};
use crate::machine::{Batch, Now, Records, Reply, Row, SessionId, SessionStep, StoreError, StoreId, StoreNow};

/// Where the reply to a batch is left. The reply is valid only once the transaction is done.
pub(super) type Replied = RefCell<Option<Reply>>;

/// Creates the transaction and asks for what it reads. The error is the browser's; then nothing was asked.
pub(super) fn start(
    connection: &Rc<Connection>,
    batch: &Rc<Batch>,
    now: StoreNow,
    sent: Now,
    reply: &Rc<Replied>,
) -> Result<Answer, JsValue> {
    let transaction = connection.open_transaction()?;
    let leases = transaction.object_store(connection.object_store())?;
    let (pending, answer) = Pending::new();
    let running = Rc::new(Running {
        reads: Reads::ask(&leases, batch, connection)?,
        foreseen: RefCell::default(),
        connection: Rc::clone(connection),
        transaction,
        leases,
        batch: Rc::clone(batch),
        now,
        sent,
        reply: Rc::clone(reply),
        is_decided: Cell::new(false),
        failure: RefCell::default(),
        pending,
    });
    running.foresee();
    running.listen();
    Ok(answer)
}

/// A transaction at work. Its handlers own it, and are dropped when it has answered.
struct Running {
    connection: Rc<Connection>,
    transaction: Transaction,
    leases: IdbObjectStore,
    reads: Reads,
    /// The guess: what the only record must say for the reply to hold. `None` if the reply rests on what was read.
    foreseen: RefCell<Option<String>>,
    batch: Rc<Batch>,
    now: StoreNow,
    /// When it was sent, by the clocks of this context.
    sent: Now,
    /// Valid once the transaction is complete.
    reply: Rc<Replied>,
    /// Whether the reply holds: everything that it rests on was read.
    is_decided: Cell<bool>,
    /// Why it is aborted.
    failure: RefCell<Option<StoreError>>,
    pending: Rc<Pending>,
}

impl Running {
    /// The events: `success` of the last read, by when all others are there too, then either `complete` or `abort`.
    fn listen(self: &Rc<Self>) {
        let running = Rc::clone(self);
        let handler = self.pending.handler(move |event| running.hear(&event));
        self.transaction.set_oncomplete(Some(&handler));
        self.transaction.set_onabort(Some(&handler));
        self.transaction.set_onerror(Some(&handler));
        self.reads.last().set_onsuccess(Some(&handler));
    }

    fn hear(&self, event: &Event) {
        match event.type_().as_str() {
            "success" => self.go_on(),
            "error" => self.request_failed(event),
            "complete" => self.complete(),
            _ => self.abort(),
        }
    }

    /// Everything is read. What fails from here on aborts the transaction.
    fn go_on(&self) {
        match self.decide() {
            Ok(true) => {
                self.is_decided.set(true);
                self.connection.commit(&self.transaction);
            }
            Ok(false) => {}
            Err(error) => {
                *self.failure.borrow_mut() = Some(error);
                // It fails only if the browser is ending the transaction already.
                let _ = self.transaction.abort();
            }
        }
    }

    /// A handler of the user's may say that the transaction goes on although a request failed.
    fn request_failed(&self, event: &Event) {
        // It fails if the transaction is ending already: then this event came of that, or the browser was told to commit.
        if self.transaction.abort().is_ok()
            && let Some(request) = event.target()
        {
            *self.failure.borrow_mut() = found(request.unchecked_ref()).err();
        }
    }

    /// `false` if it has requested more rows, and decides when they are there.
    fn decide(&self) -> Result<bool, StoreError> {
        if let Some(text) = self.foreseen.take() {
            let (key, read) = &self.reads.records[0];
            let value = found(read)?;
            if value == text.as_str() && self.is_sure() {
                return Ok(true);
            }
            // As it was, even if it is no text.
            rows::write(&self.leases, &Row::Record(key.clone()), &value)?;
        }
        let is_decided = self.apply(None)?;
        if !is_decided {
            failure::asked(self.reads.ask_beside(&self.leases, &self.batch, &self.connection))?;
        }
        Ok(is_decided)
    }

    /// Applies the batch to what the records say, or to what the only record will probably say. Requests the writes, and keeps the reply;
    /// `false` if the records are not enough.
    fn apply(&self, foreseen: Option<&str>) -> Result<bool, StoreError> {
        let mut records = Records::new();
        let decoding = Part::Decode.begin();
        for (key, read) in &self.reads.records {
            let mut text = foreseen.map(String::from);
            if foreseen.is_none() {
                text = text_of(read)?;
                self.connection.found(key, text.as_deref());
            }
            records.load(key.clone(), text.as_deref());
        }
        drop(decoding);
        let reply = if let Some(beside) = self.reads.beside.get() {
            if self.batch.sure_ms > 0 {
                self.connection.expect_alone(records.concern_only_sender_of(&self.batch));
            }
            let decoding = Part::Decode.begin();
            beside.load(&mut records, self.batch.session)?;
            drop(decoding);
            let _applying = Part::Apply.begin();
            self.batch.apply(&mut records, self.now)
        } else {
            let Some(store) = self.connection.store().filter(|_| self.is_sure()) else { return Ok(false) };
            let _applying = Part::Apply.begin();
            let Some(reply) = self.batch.apply_alone(&mut records, store, self.now) else { return Ok(false) };
            reply
        };
        for row in records.take_changed() {
            let encoding = Part::Encode.begin();
            let text = records.text(&row);
            drop(encoding);
            rows::write(&self.leases, &row, &rows::value_of(text.as_deref()))?;
            if let (Row::Record(key), Some(text)) = (row, text) {
                self.connection.left(key, text);
            }
        }
        *self.reply.borrow_mut() = Some(reply);
        Ok(true)
    }

    /// Requests at once the write that will probably be decided. It is one record: nothing else changes where the records are enough.
    fn foresee(&self) {
        if let [(key, _)] = &*self.reads.records
            && self.reads.beside.get().is_none()
            && let Some(text) = self.connection.foresee(key)
            && let Ok(true) = self.apply(Some(&text))
        {
            *self.foreseen.borrow_mut() = Some(text);
        }
    }

    /// Whether the sender is still sure of its session. The transaction may have waited for others so long that the session ended
    /// meanwhile.
    fn is_sure(&self) -> bool {
        self.batch.is_sure(self.sent, now())
    }

    fn complete(&self) {
        self.connection.over(&self.transaction);
        let done = match &*self.reply.borrow() {
            Some(reply) if self.is_decided.get() => {
                self.connection.remember(reply.store);
                sweep::begin_if_many(self.reads.count(), &self.connection, self.batch.session, self.now);
                Ok(())
            }
            _ => Err(failure::of_abort(None, false)),
        };
        self.pending.settle(done);
    }

    fn abort(&self) {
        if self.connection.over(&self.transaction) {
            // It may be the connection that failed, and not every browser says so.
            self.connection.give_up();
        }
        let error = self.failure.take().unwrap_or_else(|| {
            failure::of_abort(self.transaction.error().as_ref().map(AsRef::as_ref), self.is_decided.get())
        });
        self.pending.settle(Err(error));
    }
}

/// What a transaction reads, in this order. Requests are answered in order.
struct Reads {
    /// How many records there are, if that was asked.
    count: Option<IdbRequest>,
    records: rows::Asked,
    /// Not there while the records alone may be enough.
    beside: OnceCell<Beside>,
}

/// The rows that a batch needs beside the records.
enum Beside {
    /// No other session's row matters.
    Own { store: IdbRequest, session: IdbRequest },
    /// All there are: a context has one session, so they are few.
    All(IdbRequest),
}

impl Reads {
    fn ask(leases: &IdbObjectStore, batch: &Batch, connection: &Connection) -> Result<Self, JsValue> {
        let count = if connection.counts() { Some(rows::ask_count(leases)?) } else { None };
        let records = rows::ask_records(leases, batch)?;
        let beside = OnceCell::new();
        if batch.sure_ms == 0 || records.is_empty() || !connection.expects_alone() {
            let _ = beside.set(Beside::ask(leases, batch, connection)?);
        }
        Ok(Self { count, records, beside })
    }

    /// Requests the rows that were left out, and moves the handler to the last of these requests.
    fn ask_beside(&self, leases: &IdbObjectStore, batch: &Batch, connection: &Connection) -> Result<(), JsValue> {
        let handler = self.last().onsuccess();
        let _ = self.beside.set(Beside::ask(leases, batch, connection)?);
        self.last().set_onsuccess(handler.as_ref());
        Ok(())
    }

    /// After this one, all are answered.
    fn last(&self) -> &IdbRequest {
        match self.beside.get() {
            Some(Beside::Own { session: last, .. } | Beside::All(last)) => last,
            None => &self.records.last().expect("without a record, the rows beside are asked for").1,
        }
    }

    fn count(&self) -> f64 {
        let count = self.count.as_ref().and_then(|read| found(read).ok());
        count.and_then(|count| count.as_f64()).unwrap_or_default()
    }
}

impl Beside {
    fn ask(leases: &IdbObjectStore, batch: &Batch, connection: &Connection) -> Result<Self, JsValue> {
        if concerns_nobody_else(batch) {
            let store = rows::ask(leases, &Row::Store)?;
            Ok(Self::Own { store, session: rows::ask(leases, &Row::Session(batch.session))? })
        } else {
            Ok(Self::All(leases.get_all_with_key(connection.beside_records()?)?))
        }
    }

    /// Puts in what was read. A store whose row is there but cannot be read is left alone.
    fn load(&self, records: &mut Records, own: SessionId) -> Result<(), StoreError> {
        match self {
            Self::Own { store, session } => {
                let text = text_of(store)?;
                let new = if text.is_none() { random() } else { 0 };
                records.load_store(text.as_deref(), StoreId(new))?;
                records.load_session(own, text_of(session)?.as_deref());
            }
            Self::All(read) => {
                let mut texts = Vec::new();
                for row in found(read)?.unchecked_into::<Array>() {
                    // A value that is no text becomes one that is no row.
                    texts.push(row.as_string().unwrap_or_default());
                }
                records.load_beside_records(&texts, || StoreId(random()))?;
            }
        }
        Ok(())
    }
}

/// Whether a batch is a heartbeat, or the like: it needs no session row but its own.
fn concerns_nobody_else(batch: &Batch) -> bool {
    // A new session is told of the other sessions; and a record may be forgotten only if the sessions that it names have ended.
    let opens = matches!(batch.step, SessionStep::Open { .. });
    batch.operations.is_empty() && batch.forgets.is_empty() && batch.ends.is_empty() && !opens
}

/// What a finished request found. One that failed found nothing, and does not end the transaction where a handler of the
/// user's says so: that is no empty record.
pub(super) fn found(read: &IdbRequest) -> Result<JsValue, StoreError> {
    match read.result() {
        Ok(found) if !found.is_undefined() => Ok(found),
        // Nothing is there, or the request failed.
        found => match read.error() {
            Ok(Some(error)) => Err(failure::of_abort(Some(&error), false)),
            _ => failure::asked(found),
        },
    }
}

/// The text that a finished request found. A value that is no text becomes one that is no record.
pub(super) fn text_of(read: &IdbRequest) -> Result<Option<String>, StoreError> {
    let value = found(read)?;
    Ok((!value.is_undefined()).then(|| value.as_string().unwrap_or_default()))
}
