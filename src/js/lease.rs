//! A lease that is held.

use core::cell::Cell;
use std::{boxed::Box, rc::Rc};

use js_sys::Promise;
use wasm_bindgen::prelude::*;
use web_sys::IdbTransaction;

use super::{
    failure::{Failure, promise, settle, stoppable, unsettled},
    options::rounded_up,
};
use crate::{
    AcquireError, FenceError, InvalidOptions, LeaseGuard, Mode, ReleaseOutcome, driver::Response, executor::spawn,
    machine::whole_ms, oneshot::Receiver, store::Judged,
};

/// A handle to a lease that is held. Collecting the JavaScript object never releases the lease: if this is dropped before the release, a
/// task keeps the guard until the loss.
#[wasm_bindgen(js_name = Lease)]
#[derive(Debug)]
pub struct JsLease {
    guard: Rc<LeaseGuard>,
    released: Cell<bool>,
}

impl JsLease {
    pub(super) fn new(guard: LeaseGuard) -> Self {
        Self { guard: Rc::new(guard), released: Cell::new(false) }
    }

    /// The store's answer to a question about a lease that must be held.
    fn kept(&self, asked: Result<Option<Receiver<Response>>, InvalidOptions>) -> JsValue {
        let guard = Rc::clone(&self.guard);
        promise(async move { done(guard.kept(asked?).await) })
    }
}

/// That it was done, unlike `undefined`.
fn done(outcome: Result<(), Box<AcquireError>>) -> Result<JsValue, Failure> {
    Ok(outcome.map(|()| JsValue::TRUE)?)
}

#[wasm_bindgen]
extern "C" {
    /// Warns on the console. The face implements it.
    fn warn(sentence: &str);
}

impl Drop for JsLease {
    fn drop(&mut self) {
        if !self.released.get() && self.guard.told_loss().is_none() {
            let parts =
                ["leasehold: a lease of \"", self.guard.key(), "\" was forgotten without release(); it stays held"];
            warn(&parts.concat());
            let guard = Rc::clone(&self.guard);
            spawn(Box::pin(async move {
                guard.lost().await;
                drop(guard);
            }));
        }
    }
}

#[wasm_bindgen(js_class = Lease)]
impl JsLease {
    /// The fencing token, below 2^53 and so an exact number.
    #[wasm_bindgen(getter)]
    pub fn token(&self) -> f64 {
        self.guard.token().as_u64() as f64
    }

    /// Whether others may share the key.
    #[wasm_bindgen(getter)]
    pub fn shared(&self) -> bool {
        self.guard.mode() == Mode::Shared
    }

    /// Whether another context has held the key exclusively since this one did, and nobody has taken note yet.
    #[wasm_bindgen(getter, js_name = changedHands)]
    pub fn changed_hands(&self) -> bool {
        self.guard.changed_hands()
    }

    /// Takes note that the key changed hands.
    #[wasm_bindgen(js_name = clearChanged)]
    pub fn clear_changed(&self) {
        self.guard.clear_changed();
    }

    /// How long the lease is certain to last; 0 if it is lost, released or in doubt.
    #[wasm_bindgen(getter, js_name = remainingMs)]
    pub fn remaining_ms(&self) -> f64 {
        whole_ms(self.guard.remaining()) as f64
    }

    /// Why the lease was lost, if it is known by now.
    #[wasm_bindgen(getter)]
    pub fn reason(&self) -> JsValue {
        self.guard.told_loss().map_or(JsValue::UNDEFINED, |reason| reason.name().into())
    }

    /// The promise of why the lease was lost, to be asked for once. After a release it stays open for ever, and nothing
    /// holds on to it.
    #[wasm_bindgen(getter)]
    pub fn lost(&self) -> Promise {
        let (promise, resolve, _) = unsettled();
        let ended = self.guard.ended();
        // A task that never ends is never freed, so a release ends this task too.
        spawn(Box::pin(async move {
            if let Some(reason) = ended.await {
                // It never fails.
                let _ = resolve.call1(&JsValue::NULL, &reason.name().into());
            }
        }));
        promise
    }

    /// Asks the store whether the lease is still held.
    pub fn verify(&self) -> JsValue {
        let (guard, asked) = (Rc::clone(&self.guard), self.guard.ask_to_verify(0));
        promise(async move { Ok(guard.verdict(asked).await?.into()) })
    }

    /// Makes the lease last at least this long from now.
    pub fn extend(&self, span_ms: f64) -> JsValue {
        self.kept(self.guard.ask_to_extend(rounded_up(span_ms)))
    }

    /// Lets others share the key.
    pub fn downgrade(&self) -> JsValue {
        self.kept(Ok(self.guard.ask_to_downgrade()))
    }

    /// Waits until the key is held by this lease alone, or the promise `stopped` is fulfilled.
    pub fn upgrade(&self, stopped: Option<Promise>) -> JsValue {
        let guard = Rc::clone(&self.guard);
        stoppable(Box::pin(async move { done(guard.upgraded().await) }), stopped)
    }

    /// Lets a transaction commit only if the lease is current in it. The check begins at the call.
    pub fn fence(&self, transaction: IdbTransaction, renew: bool) -> Promise {
        let (promise, resolve, reject) = unsettled();
        let tell = Box::new(move |verdict: Result<(), FenceError>| {
            settle(&resolve, &reject, verdict.map(|()| JsValue::UNDEFINED).map_err(Failure::from));
        });
        let judged = Judged { transaction: &transaction, tell };
        drop(if renew { self.guard.fence_and_renew(judged) } else { self.guard.fence(judged) });
        promise
    }

    /// Releases the lease. Resolves with whether it was still held.
    pub fn release(&self) -> JsValue {
        self.released.set(true);
        let released = self.guard.release();
        promise(async move { Ok((released.await? == ReleaseOutcome::Released).into()) })
    }
}
