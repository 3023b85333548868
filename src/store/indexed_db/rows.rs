//! The names of rows in the object store. A record stands under its key, a string; what stands beside the records has an
//! array for a name, which no key can equal.

use js_sys::Array;
use wasm_bindgen::prelude::*;
use web_sys::{IdbKeyRange, IdbObjectStore, IdbRequest};

use super::failure;
use crate::machine::{Batch, Key, Row, StoreError};

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

/// The records that were asked for, each with its key.
pub(super) type Asked = Vec<(Key, IdbRequest)>;

/// Asks for the records that a batch concerns.
pub(super) fn ask_records(leases: &IdbObjectStore, batch: &Batch) -> Result<Asked, JsValue> {
    let mut records = Vec::new();
    for key in batch.keys() {
        let read = leases.get(&key.as_str().into())?;
        records.push((key, read));
    }
    Ok(records)
}

/// The names of all rows beside the records: those of the sessions, and then the store's own.
pub(super) fn beside_records() -> Result<IdbKeyRange, JsValue> {
    IdbKeyRange::bound(&Array::of1(&SESSION.into()), &name_of(&Row::Store))
}

/// The names of all records: strings, which stand before arrays.
pub(super) fn records() -> Result<IdbKeyRange, JsValue> {
    IdbKeyRange::upper_bound(&Array::new())
}

/// Asks how many records there are. [MDN](https://developer.mozilla.org/en-US/docs/Web/API/IDBObjectStore/count)
pub(super) fn ask_count(leases: &IdbObjectStore) -> Result<IdbRequest, JsValue> {
    let range = records()?;
    leases.count_with_key(&range)
}

/// What is written for a text; `undefined` if there is none.
pub(super) fn value_of(text: Option<&str>) -> JsValue {
    text.map_or(JsValue::UNDEFINED, JsValue::from)
}

/// Writes a row, or deletes it if the value is `undefined`.
pub(super) fn write(leases: &IdbObjectStore, row: &Row, value: &JsValue) -> Result<IdbRequest, StoreError> {
    let name = name_of(row);
    let is_none = value.is_undefined();
    failure::asked(if is_none { leases.delete(&name) } else { leases.put_with_key(value, &name) })
}
