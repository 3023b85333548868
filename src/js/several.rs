//! Several leases under one request, in the order in which JavaScript named them.

use std::{string::String, vec::Vec};

use js_sys::Array;
use wasm_bindgen::prelude::*;

use super::{failure::Failure, manager::lease};
use crate::client::multi::MultiRequest;

/// Waits for the leases of these keys, which the request was made of. A failure tells the index of the key that it concerns.
pub(super) async fn acquire_all(request: MultiRequest, names: Vec<String>) -> Result<JsValue, Failure> {
    let granted = request.acquire_or_tell_where().await.map_err(|refused| {
        let at = refused.key.and_then(|key| names.iter().position(|name| *name == key));
        Failure::from(refused.error).at(at)
    })?;
    // The guards come sorted by key.
    let ordered = Array::new_with_length(names.len() as u32);
    for guard in granted.into_guards() {
        if let Some(at) = names.iter().position(|name| name == guard.key()) {
            ordered.set(at as u32, lease(guard));
        }
    }
    Ok(ordered.into())
}
