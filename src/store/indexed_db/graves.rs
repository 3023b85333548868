//! What stands in the object store beside the records, under names that no key of a lease can have: arrays.

use js_sys::Array;
use wasm_bindgen::prelude::*;
use web_sys::{IdbKeyRange, IdbObjectStore, IdbRequest};

use super::{connection::Connection, transaction::found};
use crate::machine::{Incarnation, StoreError, Tombstone};

/// The first part of the name of a tombstone.
const GONE: &str = "gone";

/// The name of the store's id.
pub(super) fn store_key() -> JsValue {
    Array::of1(&"store".into()).into()
}

/// The name of a context's tombstone.
pub(super) fn tombstone_key(holder: Incarnation) -> JsValue {
    Array::of2(&GONE.into(), &holder.to_string().into()).into()
}

/// Writes a tombstone: one write that reads nothing, and is told to commit. A page that is being closed is not given the
/// time for more.
pub(super) fn dig(connection: &Connection, tombstone: &Tombstone) -> Result<(), JsValue> {
    let transaction = connection.begin()?;
    let leases = transaction.object_store(connection.object_store())?;
    leases.put_with_key(&tombstone.encode().into(), &tombstone_key(tombstone.holder))?;
    transaction.commit()
}

/// Asks who is gone. [MDN](https://developer.mozilla.org/en-US/docs/Web/API/IDBObjectStore/getAllKeys)
pub(super) fn ask_names(leases: &IdbObjectStore) -> Result<IdbRequest, JsValue> {
    // Of all keys, arrays are the last, and a longer one comes after its beginning.
    let (first, end) = (Array::of1(&GONE.into()), Array::of2(&GONE.into(), &Array::new()));
    let range = IdbKeyRange::bound(&first, &end)?;
    leases.get_all_keys_with_key(&range)
}

/// Who is gone.
pub(super) fn names_of(names: &IdbRequest) -> Result<Vec<Incarnation>, StoreError> {
    let names = Array::from(&found(names)?);
    let mut gone = Vec::new();
    for at in 0..names.length() {
        let text = Array::from(&names.get(at)).get(1).as_string();
        if let Some(holder) = text.and_then(|text| u128::from_str_radix(&text, 16).ok()) {
            gone.push(Incarnation(holder));
        }
    }
    Ok(gone)
}
