//! The names of rows in the object store. A record stands under its key, a string; what stands beside the records has an
//! array for a name, which no key can equal.

use js_sys::Array;
use wasm_bindgen::prelude::*;
use web_sys::{IdbKeyRange, IdbObjectStore, IdbRequest};

use super::{connection::Connection, failure};
use crate::machine::{Row, SessionId, StoreError};

const SESSION: &str = "session";

/// The name of a row.
pub(super) fn name_of(row: &Row) -> JsValue {
    match row {
        Row::Record(key) => key.as_str().into(),
        Row::Session(session) => Array::of2(&SESSION.into(), &session.to_string().into()).into(),
        Row::Store => Array::of1(&"store".into()).into(),
    }
}

/// [MDN](https://developer.mozilla.org/en-US/docs/Web/API/IDBObjectStore/get)
pub(super) fn ask(leases: &IdbObjectStore, row: &Row) -> Result<IdbRequest, JsValue> {
    leases.get(&name_of(row))
}

/// Asks for the rows of all sessions. [MDN](https://developer.mozilla.org/en-US/docs/Web/API/IDBObjectStore/getAll)
pub(super) fn ask_sessions(leases: &IdbObjectStore) -> Result<IdbRequest, JsValue> {
    // Of all names, arrays are the last, and a longer one comes after its beginning.
    let (first, end) = (Array::of1(&SESSION.into()), Array::of2(&SESSION.into(), &Array::new()));
    let range = IdbKeyRange::bound(&first, &end)?;
    leases.get_all_with_key(&range)
}

/// Asks how many records there are. [MDN](https://developer.mozilla.org/en-US/docs/Web/API/IDBObjectStore/count)
pub(super) fn ask_count(leases: &IdbObjectStore) -> Result<IdbRequest, JsValue> {
    let range = IdbKeyRange::upper_bound(&Array::new())?;
    leases.count_with_key(&range)
}

/// Writes a row, or deletes it.
pub(super) fn write(leases: &IdbObjectStore, row: &Row, text: Option<&str>) -> Result<IdbRequest, StoreError> {
    let name = name_of(row);
    failure::asked(match text {
        Some(text) => leases.put_with_key(&text.into(), &name),
        None => leases.delete(&name),
    })
}

/// Deletes the row of a session: one write that reads nothing, and is told to commit. A page that is being closed is not
/// given the time for more.
pub(super) fn delete_blindly(connection: &Connection, session: SessionId) -> Result<(), JsValue> {
    let transaction = connection.begin()?;
    transaction.object_store(connection.object_store())?.delete(&name_of(&Row::Session(session)))?;
    transaction.commit()
}
