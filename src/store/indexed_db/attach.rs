//! Records in the user's own database: on the user's connection, which is never ours to close.

use core::cell::RefCell;
use std::rc::{Rc, Weak};

use wasm_bindgen::prelude::*;
use web_sys::IdbDatabase;

use super::{IndexedDbStore, connection::Connection, ending::keep, failure};
use crate::machine::{StoreError, StoreErrorKind, StoreId};

/// The object store among the user's own.
pub(super) const ATTACHED_STORE: &str = "leasehold";

impl IndexedDbStore {
    /// Keeps the leases in the object store `leasehold` of a database that is open already, so that a write to that
    /// database can be [fenced](crate::LeaseGuard::fence). [`upgrade`](Self::upgrade) makes the object store.
    ///
    /// The connection stays the caller's: it is not closed, and its `versionchange` event is left to the caller, who should
    /// answer it by closing the connection. When the caller or the browser closes it, the leases are
    /// [lost](crate::LostReason::StoreFailed) at once, waiters in other contexts are granted them at once, and the store
    /// fails for good: open the database again, and attach a new store. A write that is fenced but not yet checked by then
    /// is not committed. (To notice the call, the store puts a `close` of its own on the object, which calls the original
    /// one.)
    ///
    /// In a frame of another site, do not attach to a database that `document.requestStorageAccess({ indexedDB: true })` has
    /// opened: the frame's Web Locks stay apart from those of the tabs, so both would hold the same lease. It is safe if all
    /// managers of that database are built with [`beacon(false)`](crate::LeaseManagerBuilder::beacon).
    ///
    /// # Errors
    /// [`StoreError`] if the connection is closed, or the database has no such object store, or one with a key path or
    /// generated keys; the message says how to make it.
    ///
    /// ```no_run
    /// # use leasehold::{LeaseManager, StoreError, executor::WebExecutor, store::IndexedDbStore};
    /// # fn example(database: web_sys::IdbDatabase) -> Result<(), Box<dyn std::error::Error>> {
    /// let leases = LeaseManager::builder(IndexedDbStore::attach(database)?, WebExecutor::new()).build()?;
    /// # Ok(()) }
    /// ```
    pub fn attach(database: IdbDatabase) -> Result<Self, StoreError> {
        if !database.object_store_names().contains(ATTACHED_STORE) {
            return Err(unfit(&database, " has no object store \"leasehold\"; ", HOW_TO_MAKE_IT));
        }
        check_store(&database)?;
        let mut store = Self::named(reach_of(&database));
        store.attached = true;
        let connection = Rc::new(Connection::attached(database.unchecked_into(), &store.watchers));
        ATTACHED.with_borrow_mut(|all| keep(all, Rc::downgrade(&connection)));
        store.connection = Some(connection).into();
        Ok(store)
    }

    /// Makes the object store that [`attach`](Self::attach) needs, unless it exists. Call it when the database is
    /// [upgraded](https://developer.mozilla.org/en-US/docs/Web/API/IDBOpenDBRequest/upgradeneeded_event).
    ///
    /// # Errors
    /// What the browser says to
    /// [`createObjectStore()`](https://developer.mozilla.org/en-US/docs/Web/API/IDBDatabase/createObjectStore): it works
    /// in an upgrade only.
    ///
    /// ```no_run
    /// # use leasehold::store::IndexedDbStore;
    /// # fn example(database: &web_sys::IdbDatabase) -> Result<(), wasm_bindgen::JsValue> {
    /// IndexedDbStore::upgrade(database)?;
    /// # Ok(()) }
    /// ```
    pub fn upgrade(database: &IdbDatabase) -> Result<(), JsValue> {
        if !database.object_store_names().contains(ATTACHED_STORE) {
            database.create_object_store(ATTACHED_STORE)?;
        }
        Ok(())
    }
}

const HOW_TO_MAKE_IT: &str = "raise its version and call createStore(db) in onupgradeneeded \
    (Rust: IndexedDbStore::upgrade), or with Dexie declare leasehold: \"\" in stores()";

fn unfit(database: &IdbDatabase, what: &str, remedy: &str) -> StoreError {
    let parts = ["the database ", &database.name(), what, remedy];
    StoreError::permanent(StoreErrorKind::Unavailable, parts.concat())
}

/// The leases need an object store without a key path and without generated keys.
fn check_store(database: &IdbDatabase) -> Result<(), StoreError> {
    // One that asks for nothing: it is over at once.
    let transaction = database.transaction_with_str(ATTACHED_STORE);
    let leases = transaction.and_then(|transaction| transaction.object_store(ATTACHED_STORE));
    let Ok(leases) = leases else {
        return Err(unfit(database, " is closed, or is being upgraded; ", "attach to it when it is open"));
    };
    let has_key_path = leases.key_path().is_ok_and(|path| !path.is_null());
    if has_key_path || leases.auto_increment() {
        return Err(unfit(database, " has an object store \"leasehold\" with keys of its own; ", HOW_TO_MAKE_IT_ANEW));
    }
    Ok(())
}

const HOW_TO_MAKE_IT_ANEW: &str = "delete it in an upgrade, and in the next one make it without keyPath and \
    autoIncrement, as createStore(db) does (Rust: IndexedDbStore::upgrade); with Dexie declare leasehold: \"\", not \"id\" or \"++\"";

std::thread_local! {
    /// The users' connections, as far as they are used.
    static ATTACHED: RefCell<Vec<Weak<Connection>>> = const { RefCell::new(Vec::new()) };
}

/// Which store a connection of the user's leads to, if that is known. It stays: deleted and made anew, a database has
/// other connections.
pub(super) fn store_of(database: &IdbDatabase) -> Option<StoreId> {
    ATTACHED.with_borrow(|all| {
        let open = all.iter().filter_map(Weak::upgrade);
        open.filter(|connection| connection.is_on(database)).find_map(|connection| connection.store())
    })
}

/// The name by which the contexts that keep their leases in this database notify each other. It differs from those of our own databases.
pub(super) fn reach_of(database: &IdbDatabase) -> String {
    ["leasehold@", &database.name()].concat()
}

/// The user's connection is closed, or about to be.
pub(super) fn gone(reach: &str) -> StoreError {
    let name = reach.strip_prefix("leasehold@").unwrap_or(reach);
    let parts = ["the database ", name, " was closed; open it again, and attach a new lease manager to it"];
    StoreError::permanent(StoreErrorKind::Unavailable, parts.concat())
}

/// No transaction could be created on the user's connection, so that nothing was asked of it.
pub(super) fn of_start(reach: &str, error: &JsValue) -> StoreError {
    let name = error.unchecked_ref::<super::bindings::Thrown>().name();
    if name.as_deref() == Some("InvalidStateError") { gone(reach) } else { failure::of_start(error) }
}
