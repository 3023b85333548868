//! Several leases under one request, in the order in which JavaScript named them.

use std::{string::String, vec::Vec};

use js_sys::Array;
use wasm_bindgen::prelude::*;

use super::{failure::Failure, manager::lease};
use crate::client::multi::MultiRequest;

/// Waits for the leases of these keys, which the request was made of. A failure tells the place of the key that it concerns.
pub(super) async fn acquire_all(request: MultiRequest, names: Vec<String>) -> Result<JsValue, Failure> {
    let granted = request.acquire_or_tell_where().await.map_err(|refused| {
        let at = refused.key.and_then(|key| names.iter().position(|name| *name == key));
        Failure::from(refused.error).at(at)
    })?;
    // The guards come sorted by key.
    let (mut keys, mut leases) = (Vec::with_capacity(names.len()), Vec::with_capacity(names.len()));
    for guard in granted.into_guards() {
        keys.push(String::from(guard.key()));
        leases.push(lease(guard));
    }
    let ordered = Array::new();
    for name in &names {
        if let Ok(at) = keys.binary_search(name) {
            ordered.push(&leases[at]);
        }
    }
    Ok(ordered.into())
}
