//! A lease that is held.

use core::future::pending;
use std::rc::Rc;

use futures::future::{AbortHandle, abortable};
use js_sys::Promise;
use wasm_bindgen::prelude::*;
use web_sys::IdbTransaction;

use super::failure::promise;
use crate::{LeaseGuard, ReleaseOutcome};

/// Names a lease that is held. The guard belongs to a task that ends with the release or the loss: collecting the
/// JavaScript object never releases the lease.
#[wasm_bindgen(js_name = Lease)]
#[derive(Debug)]
pub struct JsLease {
    guard: Rc<LeaseGuard>,
    lost: Promise,
    watch: AbortHandle,
}

impl JsLease {
    pub(super) fn new(guard: LeaseGuard) -> Self {
        let guard = Rc::new(guard);
        let (watched, watch) = abortable(guard.lost());
        let owner = Rc::clone(&guard);
        let lost = promise(async move {
            let fate = watched.await;
            drop(owner);
            match fate {
                Ok(reason) => Ok(reason.name().into()),
                // It was released: the promise stays open for ever, and nothing holds on to it.
                Err(_) => pending().await,
            }
        });
        Self { guard, lost, watch }
    }
}

#[wasm_bindgen(js_class = Lease)]
impl JsLease {
    /// The fencing token, below 2^53 and so an exact number.
    #[wasm_bindgen(getter)]
    pub fn token(&self) -> f64 {
        self.guard.token().as_u64() as f64
    }

    /// How long the lease is certain to last; 0 if it is lost, released or in doubt.
    #[wasm_bindgen(getter, js_name = remainingMs)]
    pub fn remaining_ms(&self) -> f64 {
        self.guard.remaining().as_millis() as f64
    }

    /// The promise of why the lease was lost.
    #[wasm_bindgen(getter)]
    pub fn lost(&self) -> Promise {
        self.lost.clone()
    }

    /// Asks the store whether the lease is still held.
    pub fn verify(&self) -> Promise {
        let guard = Rc::clone(&self.guard);
        promise(async move { Ok(guard.verify().await?.into()) })
    }

    /// Has a transaction commit only if the lease is current in it. It begins at the call.
    pub fn fence(&self, transaction: IdbTransaction, renew: bool) -> Promise {
        let guard = &self.guard;
        let fenced = if renew { guard.fence_and_renew(&transaction) } else { guard.fence(&transaction) };
        promise(async { Ok(fenced.await.map(|()| JsValue::UNDEFINED)?) })
    }

    /// Gives the lease back; whether it was still held.
    pub fn release(&self) -> Promise {
        let (released, watch) = (self.guard.release(), self.watch.clone());
        promise(async move {
            let outcome = released.await;
            watch.abort();
            Ok((outcome? == ReleaseOutcome::Released).into())
        })
    }
}
