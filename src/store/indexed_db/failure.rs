//! What the exceptions of IndexedDB mean for a transaction.
//!
//! The names are those of the [specification](https://w3c.github.io/IndexedDB/#exceptions).

use wasm_bindgen::prelude::*;

use super::bindings::Thrown;
use crate::machine::{StoreError, StoreErrorKind};

/// There is no IndexedDB here, or none that may be used.
pub(super) fn unsupported(reason: &str) -> StoreError {
    let parts = [
        reason,
        "; LeaseManager.open(name, { store: \"memory\" }) needs none, but no other tab or thread sees its leases",
    ];
    StoreError::permanent(StoreErrorKind::Unsupported, parts.concat())
}

/// The database could not be opened.
pub(super) fn of_open(database: &str, error: &JsValue) -> StoreError {
    let (name, text) = read(error);
    match name.as_str() {
        // Where the user blocks cookies, Chromium says `UnknownError: The user denied permission to access the database.`
        _ if name == "SecurityError" || text.ends_with("access the database.") => {
            unsupported(&["IndexedDB is forbidden here: ", &text].concat())
        }
        "VersionError" => StoreError::permanent(
            StoreErrorKind::Unavailable,
            ["a newer version of this program made the database ", database, "; reload the page"].concat(),
        ),
        "QuotaExceededError" => out_of_room(),
        _ => StoreError::transient(["the database ", database, " did not open: ", &text].concat()),
    }
}

/// The browser has not answered in time.
pub(super) fn late(database: &str) -> StoreError {
    StoreError::transient(["the database ", database, " did not open within 5 s"].concat())
}

/// The transaction could not be created, so that nothing was asked of it.
pub(super) fn of_start(error: &JsValue) -> StoreError {
    let (name, text) = read(error);
    match name.as_str() {
        "NotFoundError" => StoreError::permanent(
            StoreErrorKind::Unavailable,
            "the database has no object store for leases; some other program made it",
        ),
        _ => StoreError::transient(text),
    }
}

/// The transaction was aborted, with this error if the browser has one. `committing` tells that all of it had been
/// asked for.
pub(super) fn of_abort(error: Option<&JsValue>, committing: bool) -> StoreError {
    let (name, text) = error.map_or_else(|| (String::new(), String::from("the transaction was aborted")), read);
    match name.as_str() {
        "QuotaExceededError" => out_of_room(),
        // By the specification these two were rolled back.
        "AbortError" | "TimeoutError" => StoreError::transient(text),
        // The rest may also mean that the browser lost its own database process, and that after the commit.
        _ if committing => StoreError::unknown(text),
        _ => StoreError::transient(text),
    }
}

/// What was asked within a transaction. It fails only if the browser is ending it.
pub(super) fn asked<T>(asked: Result<T, JsValue>) -> Result<T, StoreError> {
    asked.map_err(|error| of_abort(Some(&error), false))
}

/// What browsers say of it themselves is empty or no help.
fn out_of_room() -> StoreError {
    let remedy = "the site has no room left: delete some of its data, or free disk space";
    StoreError::permanent(StoreErrorKind::Quota, remedy)
}

/// The name of an exception, and both name and message for people to read.
fn read(error: &JsValue) -> (String, String) {
    let thrown: &Thrown = error.unchecked_ref();
    let name = thrown.name().unwrap_or_default();
    let text = [&name, ": ", &thrown.message().unwrap_or_default()].concat();
    (name, text)
}
