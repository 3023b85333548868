//! The locks of `leases.locks`: leases under keys that no user's can equal, each with a place in the record for itself.

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
    /// The request that was begun last, for as long as nobody asked what became of it: the face does so at once.
    static BEGUN: Cell<Option<(Pending, Key)>> = const { Cell::new(None) };
}

#[wasm_bindgen(js_class = LeaseManager)]
impl JsLeaseManager {
    /// Asks for a lock at the call; the request's number. The name is escaped: well-formed text.
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

    /// What becomes of the request that was begun last: its lease, or `undefined` if the lock is taken, and it does not wait.
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

    /// Gives a request up, or its lock if it was granted: what is asked next does not find it.
    #[wasm_bindgen(js_name = cancelLock)]
    pub fn cancel_lock(&self, number: f64) {
        self.leases.driver().abandon(TurnId(number as u64));
    }
}
