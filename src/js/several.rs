//! Several leases in one transaction.

use std::{string::String, vec::Vec};

use js_sys::{Array, JsString};
use wasm_bindgen::prelude::*;

use super::{failure::Failure, lease::JsLease, options::mode};
use crate::{
    LeaseManager,
    machine::{Turn, TurnId},
    request::Pending,
};

/// Tries once for all of these keys. Brings their leases in order, or `undefined` if any key is taken.
///
/// As `MultiRequest::try_acquire`, which would make the wasm 20 kB larger.
pub(super) async fn try_all(
    leases: LeaseManager,
    names: Vec<JsString>,
    shared: Vec<u8>,
    info: String,
) -> Result<JsValue, Failure> {
    let driver = leases.driver();
    let mut turns = Vec::with_capacity(names.len());
    for (name, shared) in names.iter().zip(&shared) {
        let (key, _) = leases.encode(&String::from(name))?;
        let turn = Turn::new(TurnId::default(), key);
        turns.push(Turn { mode: mode(*shared != 0), wait: false, alone: true, info: info.clone(), ..turn });
    }
    let mut pending = Vec::with_capacity(names.len());
    for asked in driver.request_all(turns) {
        pending.push(Pending::new(driver, asked));
    }
    // They are answered together. Guards of a request that failed in part are dropped, and so given back.
    let mut guards = Vec::with_capacity(pending.len());
    for pending in &mut pending {
        let reaction = (&mut *pending).await;
        guards.push(pending.guard(reaction, None)?);
    }
    // A context that was frozen between the grant and this moment learns of a loss before its code goes on.
    for guard in &guards {
        match guard {
            Some(guard) if guard.is_valid() || guard.is_confirmed().await => {}
            _ => return Ok(JsValue::UNDEFINED),
        }
    }
    let granted = Array::new();
    for guard in guards.into_iter().flatten() {
        granted.push(&JsLease::new(guard).into());
    }
    Ok(granted.into())
}
