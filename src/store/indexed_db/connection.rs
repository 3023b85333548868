//! One connection to the database: how it opens, and how it ends.

use core::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use gloo_timers::callback::Timeout;
use js_sys::{Object, Reflect};
use wasm_bindgen::prelude::*;
use web_sys::{Event, IdbDatabase, IdbFactory, IdbKeyRange, IdbOpenDbRequest, IdbTransaction};

use super::{
    attach::ATTACHED_STORE,
    bindings::{Database, Transaction, global},
    ending::{CLOSE, Ending, HeardClose, Watchers},
    failure,
    pending::{Answer, Pending, done},
    rows,
};
use crate::machine::{Key, Row, SessionId, StoreError, StoreErrorKind, StoreId};
use crate::signal::forsake_locks;

/// The one object store of an own database.
const OBJECT_STORE: &str = "leases";
/// The version of the database. It stays: a newer one would lock out tabs that run old code.
const VERSION: u32 = 1;
/// Some browsers never answer.
const OPEN_LIMIT_MS: u32 = 5_000;

/// Where a new connection is left.
type Opened = RefCell<Option<Rc<Connection>>>;

/// An open database. Dropping it closes an own one, after the transactions that run.
pub(super) struct Connection {
    database: Database,
    object_store: &'static str,
    /// The options of each transaction.
    options: Object,
    /// Whether transactions are told to commit.
    commits: bool,
    ending: Rc<Ending>,
    beside_records: OnceCell<IdbKeyRange>,
    store: Cell<Option<StoreId>>,
    /// Whether the records of the latest batch that was sure of its session were all there and concerned only its sender: probably true of
    /// the next one, too.
    alone: Cell<bool>,
    /// The record that this context wrote last.
    left: RefCell<Option<Left>>,
    /// Whether it was seen how many records there are.
    counted: Cell<bool>,
    /// The transactions that wait for this context.
    open: RefCell<Vec<Transaction>>,
    on_end: Closure<dyn Fn(Event)>,
    /// Whether the connection is our own. Otherwise it is the user's, and only the user may close it.
    is_own: bool,
    /// On the user's connection: the call that closes it.
    _heard_close: Option<HeardClose>,
}

/// What this context wrote in a record. The record still says so, unless the write failed, or others have written since.
struct Left {
    key: Key,
    text: String,
    /// How often in a row this context found in the record what it had left there.
    stayed: u8,
}

/// After a wrong guess, a context guesses again only once it has found the store as it left it this many times in a row. Once is not
/// enough: contexts that take turns find the store unchanged at each release, but changed at each acquire.
const OFTEN: u8 = 2;

impl Connection {
    /// [MDN](https://developer.mozilla.org/en-US/docs/Web/API/IDBFactory/open)
    pub(super) async fn open(database: &str, watchers: &Watchers) -> Result<Rc<Self>, StoreError> {
        let request = factory()?.open_with_u32(database, VERSION);
        let request = request.map_err(|error| failure::of_open(database, &error))?;
        if request.is_null() {
            let sentence = "this frame was removed from its page; open the manager in a document that is still loaded";
            return Err(StoreError::permanent(StoreErrorKind::Unsupported, sentence));
        }
        let opened = Rc::default();
        let (pending, answer) = answer_of(&request, database, watchers, &opened);
        let late = failure::late(database);
        let _timer = Timeout::new(OPEN_LIMIT_MS, move || pending.give_up(Err(late)));
        done(answer).await?;
        opened.take().ok_or_else(|| failure::late(database))
    }

    /// The connection of an own database.
    fn new(database: Database, watchers: &Watchers) -> Self {
        let connection = Self::on(database, OBJECT_STORE, Ending::new(watchers, true), true);
        // Somebody wants to delete the database or to upgrade it, and waits until all other connections are closed.
        connection.database.set_onversionchange(Some(connection.on_end.as_ref().unchecked_ref()));
        connection
    }

    /// The user's connection. No handler of the user's is replaced, and what `close` does is done after it was heard.
    pub(super) fn attached(database: Database, watchers: &Watchers) -> Self {
        let mut connection = Self::on(database, ATTACHED_STORE, Ending::new(watchers, false), false);
        connection._heard_close = HeardClose::hear(&connection.database, &connection.ending);
        connection
    }

    fn on(database: Database, object_store: &'static str, ending: Rc<Ending>, is_own: bool) -> Self {
        let on_end = Closure::<dyn Fn(Event)>::new({
            let (ending, database) = (Rc::clone(&ending), database.clone());
            move |event: Event| {
                // The browser has closed the connection, perhaps to clear the site's data.
                if event.type_() == CLOSE {
                    forsake_locks();
                }
                ending.come();
                if is_own {
                    database.close();
                }
            }
        });
        // It fails for what is no event target only.
        let _ = database.add_event_listener_with_callback(CLOSE, on_end.as_ref().unchecked_ref());
        let options = Object::new();
        // Setting a property of a new object cannot fail.
        let _ = Reflect::set(&options, &"durability".into(), &"relaxed".into());
        Self {
            database,
            object_store,
            options,
            commits: aborts_what_was_told_to_commit(),
            ending,
            beside_records: OnceCell::new(),
            store: Cell::new(None),
            alone: Cell::new(true),
            left: RefCell::default(),
            counted: Cell::new(false),
            open: RefCell::default(),
            on_end,
            is_own,
            _heard_close: None,
        }
    }

    /// Whether transactions can still be created, as far as is known.
    pub(super) fn is_usable(&self) -> bool {
        !self.ending.is_over()
    }

    /// Makes the next transaction open another connection, unless this is the user's.
    pub(super) fn give_up(&self) {
        if self.is_own {
            self.ending.note();
        }
    }

    /// Whether it is this very connection.
    pub(super) fn is_on(&self, database: &IdbDatabase) -> bool {
        Object::is(&self.database, database)
    }

    /// Where the records are.
    pub(super) fn object_store(&self) -> &'static str {
        self.object_store
    }

    /// Which store this is, once a transaction has read it.
    pub(super) fn store(&self) -> Option<StoreId> {
        self.store.get()
    }

    pub(super) fn remember(&self, store: StoreId) {
        self.store.set(Some(store));
    }

    /// Whether the records will probably be enough for a batch that is sure of its session.
    pub(super) fn expects_alone(&self) -> bool {
        self.alone.get()
    }

    pub(super) fn expect_alone(&self, alone: bool) {
        self.alone.set(alone);
    }

    /// What this record will probably say; `None` on the user's connection. There, a handler of the user's may let a transaction commit
    /// although its read failed, so nothing may be written before the read has succeeded.
    pub(super) fn foresee(&self, key: &Key) -> Option<String> {
        let left = self.left.borrow();
        let left = left.as_ref().filter(|left| left.key == *key && left.stayed >= OFTEN)?;
        self.is_own.then(|| left.text.clone())
    }

    /// Notes what a transaction has read in a record.
    pub(super) fn found(&self, key: &Key, text: Option<&str>) {
        if let Some(left) = &mut *self.left.borrow_mut()
            && left.key == *key
        {
            left.stayed = if text == Some(&left.text) { left.stayed.saturating_add(1) } else { 0 };
        }
    }

    /// Notes what a transaction writes in a record.
    pub(super) fn left(&self, key: Key, text: String) {
        let mut left = self.left.borrow_mut();
        let stayed = left.as_ref().filter(|left| left.key == key).map_or(OFTEN, |left| left.stayed);
        *left = Some(Left { key, text, stayed });
    }

    /// The names of all rows [beside the records](rows::beside_records).
    pub(super) fn beside_records(&self) -> Result<&IdbKeyRange, JsValue> {
        if let Some(range) = self.beside_records.get() {
            return Ok(range);
        }
        let range = rows::beside_records()?;
        Ok(self.beside_records.get_or_init(|| range))
    }

    /// Whether this is the first call: the transaction that makes it counts the records.
    pub(super) fn counts(&self) -> bool {
        !self.counted.replace(true)
    }

    /// Creates a transaction that answers when its data is with the operating system. Tokens survive even its loss, as
    /// they have the clock mixed in.
    ///
    /// [MDN](https://developer.mozilla.org/en-US/docs/Web/API/IDBDatabase/transaction)
    pub(super) fn begin(&self) -> Result<Transaction, JsValue> {
        self.database.transaction(self.object_store, "readwrite", &self.options)
    }

    /// [Begins](Self::begin) a transaction that waits for this context, until it is [over](Self::over).
    pub(super) fn open_transaction(&self) -> Result<Transaction, JsValue> {
        let transaction = self.begin()?;
        self.open.borrow_mut().push(transaction.clone());
        Ok(transaction)
    }

    /// Tells a transaction to commit, which saves a turn of the event loop. Otherwise the browser commits when it sees that nothing more is
    /// requested, and a write that fails before that aborts the transaction.
    pub(super) fn commit(&self, transaction: &Transaction) {
        if self.commits {
            // The method may be missing.
            let _ = transaction.commit();
        }
    }

    /// Deletes the row of a session: one write that reads nothing, and is told to commit. A page that is being closed is not
    /// given the time for more.
    pub(super) fn delete_blindly(&self, session: SessionId) -> Result<(), JsValue> {
        let transaction = self.begin()?;
        transaction.object_store(self.object_store)?.delete(&rows::name_of(&Row::Session(session)))?;
        transaction.commit()
    }

    /// A transaction no longer waits for this context. Whether it did: one that was interrupted does not.
    pub(super) fn over(&self, transaction: &Transaction) -> bool {
        let mut open = self.open.borrow_mut();
        let at = open.iter().position(|known| Object::is(known, transaction));
        at.map(|at| open.swap_remove(at)).is_some()
    }

    /// Aborts all transactions that wait for this context.
    pub(super) fn interrupt(&self) {
        for transaction in self.open.take() {
            // It fails for what is committed already.
            let _ = transaction.unchecked_ref::<IdbTransaction>().abort();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let _ = self.database.remove_event_listener_with_callback(CLOSE, self.on_end.as_ref().unchecked_ref());
        if self.is_own {
            self.database.set_onversionchange(None);
            self.database.close();
        }
    }
}

/// Whether the browser aborts a transaction if one of its writes fails and `commit()` was called, as the specification says. Firefox
/// commits the rest, and reports success. Only Firefox has this class.
fn aborts_what_was_told_to_commit() -> bool {
    Reflect::get(&global(), &"InternalError".into()).is_ok_and(|class| class.is_undefined())
}

fn factory() -> Result<IdbFactory, StoreError> {
    match global().indexed_db() {
        Ok(Some(factory)) => Ok(factory),
        Ok(None) => Err(failure::unsupported("there is no IndexedDB here")),
        Err(_) => Err(failure::unsupported("IndexedDB is forbidden here")),
    }
}

/// The answer of the request. If the database opens when nobody waits any more, it is closed at once.
fn answer_of(request: &IdbOpenDbRequest, name: &str, watchers: &Watchers, place: &Rc<Opened>) -> (Rc<Pending>, Answer) {
    let (pending, answer) = Pending::new();
    let (settled, name, watchers) = (Rc::clone(&pending), String::from(name), Rc::clone(watchers));
    let place = Rc::clone(place);
    let handler = pending.handler(move |event| {
        let answer = match event.type_().as_str() {
            "upgradeneeded" => return make_store(&event),
            "success" => opened(&event),
            _ => {
                // The caller is told; the console need not be.
                event.prevent_default();
                Err(error_of(&event))
            }
        };
        settled.settle(match answer {
            Ok(database) => {
                let connection = Connection::new(database.unchecked_into(), &watchers);
                place.replace(Some(Rc::new(connection)));
                Ok(())
            }
            Err(error) => Err(failure::of_open(&name, &error)),
        });
    });
    request.set_onupgradeneeded(Some(&handler));
    request.set_onsuccess(Some(&handler));
    request.set_onerror(Some(&handler));
    (pending, answer)
}

/// Makes the object store. If that fails, the upgrade is aborted, because a database without an object store must not come to be.
fn make_store(event: &Event) {
    let made = opened(event).and_then(|database| database.create_object_store(OBJECT_STORE));
    if let (Err(_), Some(upgrade)) = (made, request_of(event).transaction()) {
        let _ = upgrade.abort();
    }
}

fn request_of(event: &Event) -> IdbOpenDbRequest {
    event.target().expect("an event of a request has it as its target").unchecked_into()
}

fn opened(event: &Event) -> Result<IdbDatabase, JsValue> {
    request_of(event).result().map(JsValue::unchecked_into)
}

fn error_of(event: &Event) -> JsValue {
    match request_of(event).error() {
        Ok(Some(error)) => error.into(),
        Ok(None) => JsValue::UNDEFINED,
        Err(error) => error,
    }
}
