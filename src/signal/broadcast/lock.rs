//! Web Locks that can be taken back.
//!
//! [Specification](https://w3c.github.io/web-locks/)

use gloo_timers::callback::Interval;
use js_sys::{Function, Object, Promise, Reflect};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

use super::bindings::{AbortController, LockManager, locks};
use crate::executor::spawn;

/// How often contexts that queue look at the locks.
const LOOK_MS: u32 = 3_000;

/// Queries all locks again and again, and ignores the answers. Dropping it ends that.
///
/// If a page does not release its lock in time, Chromium keeps it in the back/forward cache with the lock, and requests that queued before
/// never get it. A query drives the page out of the cache, and its lock is released.
pub(super) struct Looks {
    _interval: Interval,
}

impl Looks {
    pub(super) fn begin() -> Self {
        Self { _interval: Interval::new(LOOK_MS, look) }
    }
}

fn look() {
    if let Some(Ok(seen)) = locks().map(|locks| locks.query()) {
        spawn(Box::pin(async move {
            // A refusal does not matter, and must not be logged.
            let _ = JsFuture::from(seen).await;
        }));
    }
}

/// A request for a lock. Dropping it takes it out of the queue; a lock that was granted stays.
pub(super) struct LockRequest {
    controller: AbortController,
}

impl LockRequest {
    /// Requests the lock. `granted` is called once, when the lock is granted. The lock is held until the promise that `granted` returns has
    /// settled. `over` is called after that, or when the browser refuses or takes away the lock. Both are boxed, so that the wasm has this
    /// code once.
    pub(super) fn new(
        locks: &LockManager,
        name: &str,
        mode: &str,
        granted: Box<dyn Fn() -> Result<JsValue, JsValue>>,
        over: Box<dyn FnOnce()>,
    ) -> Self {
        let controller = AbortController::new();
        let options = Object::new();
        // Setting a property of a new object cannot fail.
        let _ = Reflect::set(&options, &"mode".into(), &mode.into());
        let _ = Reflect::set(&options, &"signal".into(), &controller.signal());
        let granted = Closure::wrap(granted);
        let settled = locks.request(name, &options, granted.as_ref().unchecked_ref());
        spawn(Box::pin(async move {
            if let Ok(settled) = settled {
                // The browser may call back until then.
                let _ = JsFuture::from(settled).await;
            }
            drop(granted);
            over();
        }));
        Self { controller }
    }
}

impl Drop for LockRequest {
    fn drop(&mut self) {
        self.controller.abort();
    }
}

/// A lock, held from its grant on. Dropping it releases it, or takes the request back.
pub(super) struct HeldLock {
    release: Option<Function>,
    _request: LockRequest,
}

impl HeldLock {
    /// Requests the lock, and tells when it is held and when it no longer is.
    pub(super) fn take(
        locks: &LockManager,
        name: &str,
        stands: impl Fn() + 'static,
        over: impl FnOnce() + 'static,
    ) -> Self {
        let mut release = None;
        let held = Promise::new(&mut |resolve, _| release = Some(resolve));
        let granted = move || {
            stands();
            Ok(held.clone().into())
        };
        let request = LockRequest::new(locks, name, "exclusive", Box::new(granted), Box::new(over));
        Self { release, _request: request }
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        if let Some(release) = &self.release {
            // Resolving a promise throws nothing.
            let _ = release.call0(&JsValue::UNDEFINED);
        }
    }
}
