//! The store of browsers: one database, one object store, one transaction an operation.

mod attach;
mod bindings;
mod commit;
mod connection;
mod ending;
mod failure;
pub(super) mod fence;
mod hidden;
mod listing;
mod pending;
mod rows;
mod sweep;
mod transaction;
mod url;

use core::{
    cell::{Cell, RefCell},
    fmt,
    time::Duration,
};
use std::rc::Rc;

use async_trait::async_trait;
use wasm_bindgen::JsValue;

use super::{Reach, Store, StoreWatcher};
use crate::executor::WeakShared;
use crate::machine::{Batch, Key, Now, Reply, SessionId, StoreError, StoreErrorKind, StoreNow};
use crate::oneshot::{self, Sender};

use connection::Connection;
use ending::{Watchers, keep};
use pending::{Answer, Done, done};

/// Leases in [IndexedDB](https://developer.mozilla.org/en-US/docs/Web/API/IndexedDB_API), shared by all windows and
/// workers of one origin.
///
/// It has a database of its own, `leasehold:<name>`, which the first transaction opens. It closes the connection if somebody deletes the
/// database, and opens it again after the browser has closed it.
///
/// ```no_run
/// use leasehold::store::{IndexedDbStore, Reach, Store};
///
/// let store = IndexedDbStore::new("my-app");
/// assert_eq!(store.reach(), Reach::Named("leasehold:my-app".into()));
/// ```
pub struct IndexedDbStore {
    /// Its name. That of an attached database has a mark before it.
    database: String,
    /// The connection is the user's.
    attached: bool,
    connection: RefCell<Option<Rc<Connection>>>,
    /// While the database is being opened, the callers that wait for that, so that it is opened only once.
    opening: RefCell<Option<Vec<Waiting>>>,
    closed: Cell<bool>,
    interruptions: Cell<u64>,
    watchers: Watchers,
}

/// Who waits until the database is open.
type Waiting = Sender<Done>;

impl IndexedDbStore {
    /// The store of this name. Nothing is opened yet.
    pub fn new(name: &str) -> Self {
        Self::named(["leasehold:", name].concat())
    }

    fn named(database: String) -> Self {
        Self {
            database,
            attached: false,
            connection: RefCell::new(None),
            opening: RefCell::new(None),
            closed: Cell::new(false),
            interruptions: Cell::new(0),
            watchers: Watchers::default(),
        }
    }

    /// Opens the database now, so that what is missing or forbidden here shows before the first transaction.
    ///
    /// # Errors
    /// [`StoreError`] says why it does not open.
    ///
    /// # Cancel safety
    /// Cancel safe: a database that opens after all is closed at once.
    pub async fn open(&self) -> Result<(), StoreError> {
        self.connect().await.map(drop)
    }

    async fn connect(&self) -> Result<Rc<Connection>, StoreError> {
        loop {
            if let Some(connection) = self.standing()? {
                return Ok(connection);
            }
            if self.attached {
                return Err(attach::gone(&self.database));
            }
            let Some(over) = self.wait_for_opening() else { break };
            over.await;
        }
        let _opening = Opening::begin(self);
        let connection = Connection::open(&self.database, &self.watchers).await?;
        // It may have been closed meanwhile.
        self.standing()?;
        *self.connection.borrow_mut() = Some(Rc::clone(&connection));
        Ok(connection)
    }

    fn standing(&self) -> Result<Option<Rc<Connection>>, StoreError> {
        if self.closed.get() {
            return Err(StoreError::permanent(StoreErrorKind::Closed, "the store was closed"));
        }
        Ok(self.connection.borrow().clone().filter(|connection| connection.is_usable()))
    }

    /// Starts a transaction, on a new connection if the present one turns out to be dead. It fails if the context is stopped meanwhile:
    /// what the context asked for is void by then.
    async fn start(&self, start: &dyn Fn(&Rc<Connection>) -> Result<Answer, JsValue>) -> Result<Answer, StoreError> {
        let since = self.interruptions.get();
        let mut is_second = false;
        loop {
            let connection = self.connect().await?;
            if self.interruptions.get() != since {
                return Err(StoreError::transient("the context was stopped before the transaction began"));
            }
            match start(&connection) {
                Ok(answer) => return Ok(answer),
                Err(error) => self.not_started(&error, is_second)?,
            }
            // Nothing was asked of the database yet, so a second try does nothing twice.
            connection.give_up();
            is_second = true;
        }
    }

    /// Returns an error unless another connection may help.
    fn not_started(&self, error: &JsValue, is_second: bool) -> Result<(), StoreError> {
        if self.attached {
            Err(attach::of_start(&self.database, error))
        } else if is_second {
            Err(failure::of_start(error))
        } else {
            Ok(())
        }
    }
}

/// The right to open the database, for one caller at a time. Written by hand, because `futures::lock::Mutex` would enlarge the wasm.
struct Opening<'a>(&'a IndexedDbStore);

impl<'a> Opening<'a> {
    fn begin(store: &'a IndexedDbStore) -> Self {
        store.opening.replace(Some(Vec::new()));
        Self(store)
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        // Who waits is woken: one of them tries it next.
        let waiting = self.0.opening.take();
        drop(waiting);
    }
}

impl IndexedDbStore {
    /// The end of an opening that is under way.
    fn wait_for_opening(&self) -> Option<Answer> {
        let mut opening = self.opening.borrow_mut();
        let waiting = opening.as_mut()?;
        let (sender, over) = oneshot::channel();
        waiting.push(sender);
        Some(over)
    }
}

#[async_trait(?Send)]
impl Store for IndexedDbStore {
    async fn transact(&self, batch: Batch, now: Now, _limit: Duration) -> Result<Reply, StoreError> {
        let (batch, now) = (Rc::new(batch), StoreNow::new(self.clock(), now));
        let sent = crate::executor::now();
        let reply = Rc::default();
        let answer = self.start(&|connection| transaction::start(connection, &batch, now, sent, &reply)).await?;
        done(answer).await?;
        Ok(reply.take().expect("a transaction that is done has decided its reply"))
    }

    async fn keys(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        let names = Rc::default();
        let answer = self.start(&|connection| listing::start_used(connection, &names)).await?;
        done(answer).await?;
        // The browser's order is that of UTF-16 units.
        let mut keys = Vec::new();
        for name in &*names.borrow() {
            if name.starts_with(prefix)
                && let Ok(key) = Key::new(name)
            {
                keys.push(key);
            }
        }
        keys.sort_unstable();
        Ok(keys)
    }

    fn abandons(&self) -> bool {
        true
    }

    fn abandon(&self, session: SessionId) {
        // Also on a connection that is about to close: it waits for what began before. Without one, whoever waits sees the
        // beacon go, or the silence.
        if let Some(connection) = &*self.connection.borrow() {
            let _ = connection.delete_blindly(session);
        }
    }

    fn interrupt(&self) {
        self.interruptions.set(self.interruptions.get() + 1);
        if let Some(connection) = &*self.connection.borrow() {
            connection.interrupt();
        }
    }

    /// A context has one thread, and a page that is about to stop has no later moment to begin in.
    fn polls_inline(&self) -> bool {
        true
    }

    fn watch(&self, watcher: WeakShared<dyn StoreWatcher>) {
        keep(&mut self.watchers.borrow_mut(), watcher);
    }

    /// Closes the connection once the running transactions are over.
    async fn close(&self) {
        self.closed.set(true);
        self.connection.take();
    }

    fn reach(&self) -> Reach {
        Reach::Named(self.database.clone())
    }
}

impl fmt::Debug for IndexedDbStore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Quoted as `Debug` does, the name would make the wasm 4 kB larger.
        write!(out, "IndexedDbStore({})", self.database)
    }
}
