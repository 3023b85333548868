//! The keys that have a record, and those of them that are in use.

use core::cell::RefCell;
use std::{rc::Rc, string::String, vec::Vec};

use js_sys::Array;
use wasm_bindgen::prelude::*;
use web_sys::IdbRequest;

use super::{
    connection::Connection,
    pending::{Answer, Pending},
    rows,
    transaction::found,
};
use crate::machine::{Record, StoreError};

/// Where the names are left.
pub(super) type Names = RefCell<Vec<String>>;

/// All of them. [MDN](https://developer.mozilla.org/en-US/docs/Web/API/IDBObjectStore/getAllKeys). The error is the browser's; then
/// nothing was asked.
pub(super) fn start(connection: &Rc<Connection>, names: &Rc<Names>) -> Result<Answer, JsValue> {
    list(connection, names, false)
}

/// Those in use: the records are read as well, all at once. To ask for each key by itself takes ten times as long.
pub(super) fn start_used(connection: &Rc<Connection>, names: &Rc<Names>) -> Result<Answer, JsValue> {
    list(connection, names, true)
}

fn list(connection: &Rc<Connection>, names: &Rc<Names>, only_used: bool) -> Result<Answer, JsValue> {
    let transaction = connection.open_transaction()?;
    let leases = transaction.object_store(connection.object_store())?;
    let range = rows::records()?;
    let records = if only_used { Some(leases.get_all_with_key(&range)?) } else { None };
    // Answered last.
    let request = leases.get_all_keys()?;
    let (pending, answer) = Pending::new();
    let (settled, listed) = (Rc::clone(&pending), request.clone());
    let (at, names) = (Rc::clone(connection), Rc::clone(names));
    // The handler hears how the last read ended. The browser fires one of the two events on the read, and none after it. A handler of the
    // transaction would not do: the transaction may still be aborted when the handler has gone.
    let handler = pending.handler(move |_| {
        at.over(&transaction);
        settled.settle(names_of(&listed, records.as_ref()).map(|found| _ = names.replace(found)));
    });
    request.set_onsuccess(Some(&handler));
    request.set_onerror(Some(&handler));
    Ok(answer)
}

/// Keys of leases are strings; what else is there is ours, and no lease. It stands after them.
fn names_of(request: &IdbRequest, records: Option<&IdbRequest>) -> Result<Vec<String>, StoreError> {
    // This comes first: if this read failed, the browser says of the other one only that it was aborted.
    let records = records.map(found).transpose()?.map(JsCast::unchecked_into::<Array>);
    let keys = found(request)?.unchecked_into::<Array>();
    let mut names = Vec::new();
    for at in 0..keys.length() {
        let text = records.as_ref().and_then(|records| records.get(at).as_string());
        // What cannot be read may be in use.
        let is_idle = text.is_some_and(|text| Record::decode(&text).is_ok_and(|record| record.is_idle()));
        if let Some(name) = keys.get(at).as_string().filter(|_| !is_idle) {
            names.push(name);
        }
    }
    Ok(names)
}
