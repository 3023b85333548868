//! A fence in the user's own transaction.
//!
//! It is driven by the transaction's own events, so that whoever waits for it can go on in the same transaction.

use core::{
    cell::{Cell, OnceCell, RefCell},
    future::{Ready, ready},
};
use std::{boxed::Box, rc::Rc, string::String};

use js_sys::Function;
use wasm_bindgen::prelude::*;
use web_sys::{Event, IdbDatabase, IdbObjectStore, IdbRequest, IdbTransaction};

use super::{
    super::{Fence, FenceError, FencedTransaction, OpenTransaction, Reach},
    attach::{ATTACHED_STORE, reach_of, store_of},
    bindings::Transaction,
    commit::HeldCommit,
    rows,
    transaction::text_of,
};
use crate::executor::{MaybeSendFuture, Part, Shared};
use crate::machine::{Records, Row, StoreError, StoreId, Ticket};
use crate::oneshot;

type Verdict = Result<(), FenceError>;
type Listener = Closure<dyn Fn(Event)>;

/// A raw transaction, read and write, with the object store `leasehold` in its scope.
///
/// The lease is read at the call. Whoever waits for the answer may go on in the transaction, and whoever calls
/// [`commit()`](https://developer.mozilla.org/en-US/docs/Web/API/IDBTransaction/commit) before it came commits when it
/// has: by then nothing could be stopped any more.
impl FencedTransaction for &IdbTransaction {
    const IN_ORDER: bool = true;

    type Passed = ();
    type Answer = MaybeSendFuture<'static, Verdict>;

    fn check(self, fence: Shared<dyn Fence>) -> Self::Answer {
        let (sender, answer) = oneshot::channel();
        drop(Judged { transaction: self, tell: Box::new(|verdict| sender.send(verdict)) }.check(fence));
        Box::pin(async { answer.await.unwrap_or_else(|| Err(ended())) })
    }

    fn refuse(self, why: FenceError) -> Self::Answer {
        Box::pin(ready(Err(refused(self, why))))
    }
}

/// The same, for whoever has it to change.
impl FencedTransaction for &mut IdbTransaction {
    const IN_ORDER: bool = true;

    type Passed = ();
    type Answer = MaybeSendFuture<'static, Verdict>;

    fn check(self, fence: Shared<dyn Fence>) -> Self::Answer {
        (&*self).check(fence)
    }

    fn refuse(self, why: FenceError) -> Self::Answer {
        (&*self).refuse(why)
    }
}

/// A transaction, and the callback that receives the verdict within the event that decides it. The returned future contains no verdict.
pub(crate) struct Judged<'a> {
    pub(crate) transaction: &'a IdbTransaction,
    pub(crate) tell: Tell,
}

/// Receives the verdict; it is called once.
pub(crate) type Tell = Box<dyn FnOnce(Verdict)>;

impl FencedTransaction for Judged<'_> {
    const IN_ORDER: bool = true;

    type Passed = ();
    type Answer = Ready<Verdict>;

    fn check(self, fence: Shared<dyn Fence>) -> Self::Answer {
        match Fenced::start(self.transaction, fence) {
            Ok(fenced) => fenced.asked.set(Some(self.tell)),
            Err(sentence) => (self.tell)(Err(misuse(self.transaction, sentence))),
        }
        ready(Ok(()))
    }

    fn refuse(self, why: FenceError) -> Self::Answer {
        (self.tell)(Err(refused(self.transaction, why)));
        ready(Ok(()))
    }
}

fn refused(transaction: &IdbTransaction, why: FenceError) -> FenceError {
    if transaction.abort().is_ok() { why } else { over() }
}

fn ended() -> FenceError {
    FenceError::Store(StoreError::transient("the transaction was aborted before its fence was checked"))
}

/// What cannot be checked must not be written.
fn misuse(transaction: &IdbTransaction, sentence: &str) -> FenceError {
    // One that is over cannot be aborted, and the sentence says so.
    let _ = transaction.abort();
    FenceError::Misuse(sentence.into())
}

fn over() -> FenceError {
    FenceError::Misuse(OVER.into())
}

const OVER: &str = "the transaction is over, or waits for nothing more, and may be committed: fence it before anything else \
    is awaited, and before commit()";
const READ_ONLY: &str = "the transaction is read-only: open it with the mode \"readwrite\"";
const NO_STORE: &str =
    "the transaction does not include the leases: add \"leasehold\" to the names of its object stores";
const ELSEWHERE: &str = "the lease is not kept in the database of this transaction: acquire it from a manager \
    attached to it by LeaseManager.attach(db) (Rust: IndexedDbStore::attach)";

/// A transaction with a fence in it. Its listener owns it, until the transaction is over.
struct Fenced {
    transaction: Transaction,
    fence: Shared<dyn Fence>,
    leases: IdbObjectStore,
    reads: Reads,
    /// The own row. The verdict does not rest on it: it takes the heartbeat, and tells what became of a grant that is gone. It
    /// is read for that only.
    session: OnceCell<IdbRequest>,
    /// Until the verdict.
    asked: Cell<Option<Tell>>,
    commit: HeldCommit,
    /// A read or a write of the fence failed. Firefox may commit all the same.
    has_failed: Cell<bool>,
    listener: RefCell<Option<Listener>>,
}

/// What the fence reads, in this order.
struct Reads {
    /// What is known of the connection need not be read.
    known: Option<StoreId>,
    store: Option<IdbRequest>,
    records: rows::Asked,
    /// Requests are answered in order: after this one, all are.
    last: IdbRequest,
}

impl Fenced {
    fn start(transaction: &IdbTransaction, fence: Shared<dyn Fence>) -> Result<Rc<Self>, &'static str> {
        let database = transaction.db();
        let leases = leases_in(transaction, &database, &fence)?;
        // It was created, and is asked to commit, or its turn is over.
        let session =
            if fence.ticket().renews() { OnceCell::from(ask_session(&leases, &*fence)?) } else { OnceCell::new() };
        let reads = Reads::ask(store_of(&database), &leases, fence.ticket()).map_err(|_| OVER)?;
        let transaction: Transaction = transaction.clone().unchecked_into();
        let commit = HeldCommit::hold(&transaction);
        let (asked, has_failed, listener) = (Cell::default(), Cell::new(false), RefCell::default());
        let fenced = Rc::new(Self { transaction, fence, leases, reads, session, asked, commit, has_failed, listener });
        fenced.listen();
        let open: Shared<dyn OpenTransaction> = fenced.clone();
        fenced.fence.open(open);
        Ok(fenced)
    }

    /// One listener for all that may happen: the end of the last read, and the end of the transaction.
    fn listen(self: &Rc<Self>) {
        let fenced = Rc::clone(self);
        let listener = Listener::new(move |event: Event| match event.type_().as_str() {
            "success" => fenced.found(),
            "error" => fenced.failed(&event),
            "complete" => fenced.ended(true),
            _ => fenced.ended(false),
        });
        let function = listener.as_ref().unchecked_ref();
        hear(&self.reads.last, function);
        for end in ["complete", "abort"] {
            // It fails for what is no event target only.
            let _ = self.transaction.add_event_listener_with_callback(end, function);
        }
        *self.listener.borrow_mut() = Some(listener);
    }

    fn found(&self) {
        let mut records = Records::new();
        let mut verdict = match self.load(&mut records) {
            Ok(_) if self.wants_session(&records) => return,
            Ok(store) => self.judge(store, &mut records),
            Err(error) => Err(FenceError::Store(error)),
        };
        if verdict.is_err() && self.transaction.abort().is_err() {
            // It was committed behind our back.
            verdict = Err(over());
        }
        self.settle(verdict);
    }

    /// Whether the grant is gone, and the row that tells what became of it is still to be read.
    fn wants_session(&self, records: &Records) -> bool {
        if self.session.get().is_some() || self.fence.ticket().finds_its_grant(records) {
            return false;
        }
        let Ok(read) = ask_session(&self.leases, &*self.fence) else { return false };
        if let Some(listener) = &*self.listener.borrow() {
            hear(&read, listener.as_ref().unchecked_ref());
        }
        self.session.set(read).is_ok()
    }

    fn judge(&self, store: Option<StoreId>, records: &mut Records) -> Verdict {
        let judging = Part::Apply.begin();
        self.fence.judge(store, records)?;
        drop(judging);
        for row in records.take_changed() {
            let encoding = Part::Encode.begin();
            let text = records.text(&row);
            drop(encoding);
            self.write(row, text).map_err(FenceError::Store)?;
        }
        Ok(())
    }

    /// Loads what was read, and returns which store it is. No lease was granted in a store whose row cannot be read.
    fn load(&self, records: &mut Records) -> Result<Option<StoreId>, StoreError> {
        let _decoding = Part::Decode.begin();
        if let Some(read) = self.session.get() {
            let session = self.fence.ticket().batch.session;
            records.load_session(session, self.latest(&Row::Session(session), read)?.as_deref());
        }
        for (key, read) in &self.reads.records {
            records.load(key.clone(), self.latest(&Row::Record(key.clone()), read)?.as_deref());
        }
        let Some(read) = &self.reads.store else { return Ok(self.reads.known) };
        let text = self.latest(&Row::Store, read)?;
        let is_known = text.is_some_and(|text| records.load_store(Some(&text), StoreId::default()).is_ok());
        Ok(is_known.then(|| records.store()))
    }

    /// The text of a row: what another fence in this transaction made of it since this one asked, or what was read.
    fn latest(&self, row: &Row, read: &IdbRequest) -> Result<Option<String>, StoreError> {
        self.commit.written(row).map_or_else(|| text_of(read), Ok)
    }

    fn write(&self, row: Row, text: Option<String>) -> Result<(), StoreError> {
        let written = rows::write(&self.leases, &row, &rows::value_of(text.as_deref()))?;
        // A handler of the user's may have a transaction go on of which a write failed.
        if let Some(listener) = &*self.listener.borrow() {
            written.set_onerror(Some(listener.as_ref().unchecked_ref()));
        }
        self.commit.wrote(row, text);
        Ok(())
    }

    /// A read ended without a result, or a write failed. Whoever set the transaction up hears of its abort, and not of this.
    fn failed(&self, event: &Event) {
        event.stop_propagation();
        self.has_failed.set(true);
        OpenTransaction::abort(self);
        self.settle(Err(self.fence.loss().unwrap_or_else(ended)));
    }

    fn ended(&self, committed: bool) {
        // If it was committed without a verdict, IndexedDB is imitated or wrapped, and the reads were not answered in time.
        self.settle(Err(if committed { over() } else { self.fence.loss().unwrap_or_else(ended) }));
        if committed && !self.has_failed.get() {
            self.fence.committed();
        }
        self.fence.over();
        // The transaction still refers to the listener, but fires no more events.
        self.listener.take();
    }

    /// Gives the verdict, once, and lets a commit go on that was held up for it.
    fn settle(&self, verdict: Verdict) {
        let Some(tell) = self.asked.take() else { return };
        let passed = verdict.is_ok();
        tell(verdict);
        self.commit.release(passed);
    }
}

impl OpenTransaction for Fenced {
    fn abort(&self) {
        // It fails if the transaction is over.
        let _ = self.transaction.unchecked_ref::<IdbTransaction>().abort();
    }
}

impl Reads {
    fn ask(known: Option<StoreId>, leases: &IdbObjectStore, ticket: &Ticket) -> Result<Self, JsValue> {
        let store = if known.is_none() { Some(rows::ask(leases, &Row::Store)?) } else { None };
        let records = rows::ask_records(leases, &ticket.batch)?;
        // A ticket names a key.
        let last = records.last().map(|(_, read)| read.clone()).ok_or(JsValue::UNDEFINED)?;
        Ok(Self { known, store, records, last })
    }
}

fn ask_session(leases: &IdbObjectStore, fence: &dyn Fence) -> Result<IdbRequest, &'static str> {
    rows::ask(leases, &Row::Session(fence.ticket().batch.session)).map_err(|_| OVER)
}

fn hear(read: &IdbRequest, listener: &Function) {
    read.set_onsuccess(Some(listener));
    read.set_onerror(Some(listener));
}

/// The object store of the leases, if the transaction can be fenced; else why not.
fn leases_in(
    transaction: &IdbTransaction,
    database: &IdbDatabase,
    fence: &Shared<dyn Fence>,
) -> Result<IdbObjectStore, &'static str> {
    if fence.reach() != Reach::Named(reach_of(database)) {
        return Err(ELSEWHERE);
    }
    let leases = transaction.object_store(ATTACHED_STORE);
    if leases.is_err() && !transaction.object_store_names().contains(ATTACHED_STORE) {
        return Err(NO_STORE);
    }
    if transaction.unchecked_ref::<Transaction>().mode() == "readonly" {
        return Err(READ_ONLY);
    }
    leases.map_err(|_| OVER)
}
