//! The locks of `leases.locks`: leases under keys that no user's can equal, each with a place in the record for itself.

use core::cell::Cell;
use std::string::String;

use wasm_bindgen::prelude::*;

use super::{
    failure::promise,
    manager::{JsLeaseManager, lease},
};
use crate::{
    Mode,
    client::request::Pending,
    machine::{Input, Key, Slot, Turn, TurnId},
};

std::thread_local! {
    /// The request that was begun last, for as long as nobody asked what became of it: the face does so at once.
    static BEGUN: Cell<Option<Pending>> = const { Cell::new(None) };
}

fn mode(shared: bool) -> Mode {
    if shared { Mode::Shared } else { Mode::Exclusive }
}

#[wasm_bindgen(js_class = LeaseManager)]
impl JsLeaseManager {
    /// Asks for a lock at the call; the request's number. The name is escaped: well-formed text.
    #[wasm_bindgen(js_name = requestLock)]
    pub fn request_lock(&self, name: &str, shared: bool, wait: bool, steal: bool, info: String) -> f64 {
        let plain = Turn::new(TurnId::default(), Key::of_lock(name));
        let turn = Turn { mode: mode(shared), wait, steal, info, alone: true, ..plain };
        let pending = Pending::start(self.leases.driver(), turn, Input::Acquire);
        let TurnId(number) = pending.turn;
        BEGUN.set(Some(pending));
        number as f64
    }

    /// What becomes of the request that was begun last: its lease, or `undefined` if the lock is taken, and it does not wait.
    #[wasm_bindgen(js_name = grantedLock)]
    pub fn granted_lock(&self) -> JsValue {
        let pending = BEGUN.take();
        promise(async move {
            let Some(mut pending) = pending else { return Ok(JsValue::UNDEFINED) };
            let response = (&mut pending).await;
            Ok(pending.guard(response, None)?.map_or(JsValue::UNDEFINED, lease))
        })
    }

    /// Gives a request up, or its lock if it was granted: what is asked next does not find it.
    #[wasm_bindgen(js_name = cancelLock)]
    pub fn cancel_lock(&self, name: &str, shared: bool, number: f64) {
        let turn = TurnId(number as u64);
        let slot = Slot { key: Key::of_lock(name), mode: mode(shared), own: Some(turn) };
        self.leases.driver().abandon(turn, slot);
    }
}
