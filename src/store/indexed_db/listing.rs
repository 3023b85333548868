//! All keys that have a record.

use std::rc::Rc;

use js_sys::Array;
use wasm_bindgen::prelude::*;
use web_sys::IdbRequest;

use super::{connection::Connection, failure, pending::Pending};
use crate::machine::StoreError;
use crate::oneshot::Receiver;

/// The names that will be listed.
pub(super) type Names = Receiver<Result<Vec<String>, StoreError>>;

/// [MDN](https://developer.mozilla.org/en-US/docs/Web/API/IDBObjectStore/getAllKeys). The error is the browser's; then
/// nothing was asked.
pub(super) fn start(connection: &Rc<Connection>) -> Result<Names, JsValue> {
    let transaction = connection.open_transaction()?;
    let request = transaction.object_store(connection.object_store())?.get_all_keys()?;
    let (pending, names) = Pending::new();
    let (found, failed) = (Rc::clone(&pending), Rc::clone(&pending));
    let (listed, listing, at) = (request.clone(), transaction.clone(), Rc::clone(connection));
    request.set_onsuccess(Some(&pending.handler(move |_| {
        at.over(&listing);
        found.settle(names_of(&listed));
    })));
    let (aborted, at) = (transaction.clone(), Rc::clone(connection));
    transaction.set_onabort(Some(&pending.handler(move |_| {
        at.over(&aborted);
        failed.settle(Err(failure::of_abort(aborted.error().as_ref().map(AsRef::as_ref), false)));
    })));
    Ok(names)
}

/// Keys of leases are strings; what else is there is ours, and no lease.
fn names_of(request: &IdbRequest) -> Result<Vec<String>, StoreError> {
    let keys = request.result().map_err(|error| failure::of_abort(Some(&error), false))?;
    let (keys, mut names) = (Array::from(&keys), Vec::new());
    for at in 0..keys.length() {
        names.extend(keys.get(at).as_string());
    }
    Ok(names)
}
