//! Several leases in one transaction.

use std::{string::String, vec::Vec};

use js_sys::Array;
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
    names: Vec<String>,
    shared: Vec<u8>,
    info: String,
) -> Result<JsValue, Failure> {
    let driver = leases.driver();
    let keys: Result<Vec<_>, _> = names.iter().map(|name| leases.encode(name)).collect();
    let turn = |((key, _), shared)| {
        let turn = Turn::new(TurnId::default(), key);
        Turn { mode: mode(shared != 0), wait: false, alone: true, info: info.clone(), ..turn }
    };
    let asked = driver.request_all(keys?.into_iter().zip(shared).map(turn).collect());
    let mut pending: Vec<_> = asked.into_iter().map(|asked| Pending::new(driver, asked)).collect();
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
    let granted = guards.into_iter().flatten().map(|guard| JsValue::from(JsLease::new(guard)));
    Ok(granted.collect::<Array>().into())
}
