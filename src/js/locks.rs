//! The locks of `leases.locks`: leases of keys that no user can name, each with a queue entry of its own.

use core::cell::Cell;
use std::string::String;

use wasm_bindgen::prelude::*;

use super::{
    failure::promise,
    manager::{JsLeaseManager, lease},
    options::mode,
};
use crate::{
    client::pending::Pending,
    machine::{Input, Key, LOCK_PREFIX, Turn, TurnId},
};

std::thread_local! {
    /// The request that was begun last, until the face asks for its outcome, which it does at once.
    static BEGUN: Cell<Option<(Pending, Key)>> = const { Cell::new(None) };
}

#[wasm_bindgen(js_class = LeaseManager)]
impl JsLeaseManager {
    /// Requests a lock at the call, and returns the request's number. The name is escaped, so it is well-formed text.
    #[wasm_bindgen(js_name = requestLock)]
    pub fn request_lock(&self, name: &str, shared: bool, wait: bool, steal: bool, info: String) -> f64 {
        let key = Key::of_lock(name);
        let mut turn = Turn::new(TurnId::default(), key.clone());
        turn.mode = mode(shared);
        turn.wait = wait;
        turn.steal = steal;
        turn.info = info;
        turn.alone = true;
        let pending = Pending::start(self.leases.driver().clone(), turn, Input::Acquire);
        let TurnId(number) = pending.turn;
        BEGUN.set(Some((pending, key)));
        number as f64
    }

    /// The outcome of the request that was begun last: its lease, or `undefined` if the lock is taken and the request does not wait.
    #[wasm_bindgen(js_name = grantedLock)]
    pub fn granted_lock(&self) -> JsValue {
        let begun = BEGUN.take();
        promise(async move {
            let Some((mut pending, key)) = begun else { return Ok(JsValue::UNDEFINED) };
            let response = (&mut pending).await;
            let name = key.as_str().strip_prefix(LOCK_PREFIX).unwrap_or_default();
            Ok(pending.guard(response, name, None)?.map_or(JsValue::UNDEFINED, lease))
        })
    }

    /// Gives up a request, or releases its lock if it was granted. The next request does not find it any more.
    #[wasm_bindgen(js_name = cancelLock)]
    pub fn cancel_lock(&self, number: f64) {
        self.leases.driver().abandon(TurnId(number as u64));
    }
}
