//! The keys that have a record, and those of them that are in use.

use std::rc::Rc;

use js_sys::Array;
use wasm_bindgen::prelude::*;
use web_sys::IdbRequest;

use super::{connection::Connection, failure, pending::Pending, rows, transaction::found};
use crate::machine::{Record, StoreError};
use crate::oneshot::Receiver;

/// The names that will be listed.
pub(super) type Names = Receiver<Result<Vec<String>, StoreError>>;

/// All of them. [MDN](https://developer.mozilla.org/en-US/docs/Web/API/IDBObjectStore/getAllKeys). The error is the browser's; then
/// nothing was asked.
pub(super) fn start(connection: &Rc<Connection>) -> Result<Names, JsValue> {
    list(connection, false)
}

/// Those in use: the records are read as well, all at once. To ask for each key by itself takes ten times as long.
pub(super) fn start_used(connection: &Rc<Connection>) -> Result<Names, JsValue> {
    list(connection, true)
}

fn list(connection: &Rc<Connection>, only_used: bool) -> Result<Names, JsValue> {
    let transaction = connection.open_transaction()?;
    let leases = transaction.object_store(connection.object_store())?;
    let range = rows::records()?;
    let records = if only_used { Some(leases.get_all_with_key(&range)?) } else { None };
    // Answered last.
    let request = leases.get_all_keys()?;
    let (pending, names) = Pending::new();
    let (found, failed) = (Rc::clone(&pending), Rc::clone(&pending));
    let (listed, listing, at) = (request.clone(), transaction.clone(), Rc::clone(connection));
    request.set_onsuccess(Some(&pending.handler(move |_| {
        at.over(&listing);
        found.settle(names_of(&listed, records.as_ref()));
    })));
    let (aborted, at) = (transaction.clone(), Rc::clone(connection));
    transaction.set_onabort(Some(&pending.handler(move |_| {
        at.over(&aborted);
        failed.settle(Err(failure::of_abort(aborted.error().as_ref().map(AsRef::as_ref), false)));
    })));
    Ok(names)
}

/// Keys of leases are strings; what else is there is ours, and no lease. It stands after them.
fn names_of(request: &IdbRequest, records: Option<&IdbRequest>) -> Result<Vec<String>, StoreError> {
    let keys = found(request)?.unchecked_into::<Array>();
    let records = records.map(found).transpose()?.map(JsCast::unchecked_into::<Array>);
    let mut names = Vec::new();
    for at in 0..keys.length() {
        // What cannot be read may be in use.
        let is_idle = |text: String| Record::decode(&text).is_ok_and(|record| record.is_idle());
        let text = records.as_ref().and_then(|records| records.get(at).as_string());
        names.extend(keys.get(at).as_string().filter(|_| !text.is_some_and(is_idle)));
    }
    Ok(names)
}
