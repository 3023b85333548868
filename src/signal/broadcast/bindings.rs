//! Web Locks and what they need, which web-sys has only behind an unstable flag.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use js_sys::{Function, Object, Promise};
use wasm_bindgen::prelude::*;

#[wasm_bindgen]
extern "C" {
    /// `globalThis`: a window or a worker.
    type Global;

    #[wasm_bindgen(method, getter)]
    fn navigator(this: &Global) -> Option<Navigator>;

    #[wasm_bindgen(extends = Object)]
    type Navigator;

    /// [MDN](https://developer.mozilla.org/en-US/docs/Web/API/Navigator/locks). Only in secure contexts.
    #[wasm_bindgen(method, getter)]
    fn locks(this: &Navigator) -> Option<LockManager>;

    pub(super) type LockManager;

    /// [MDN](https://developer.mozilla.org/en-US/docs/Web/API/LockManager/request)
    #[wasm_bindgen(method, catch)]
    pub(super) fn request(
        this: &LockManager,
        name: &str,
        options: &Object,
        granted: &Function,
    ) -> Result<Promise, JsValue>;

    /// [MDN](https://developer.mozilla.org/en-US/docs/Web/API/LockManager/query)
    #[wasm_bindgen(method, catch)]
    pub(super) fn query(this: &LockManager) -> Result<Promise, JsValue>;

    /// [MDN](https://developer.mozilla.org/en-US/docs/Web/API/AbortController)
    pub(super) type AbortController;

    #[wasm_bindgen(constructor)]
    pub(super) fn new() -> AbortController;

    #[wasm_bindgen(method, getter)]
    pub(super) fn signal(this: &AbortController) -> JsValue;

    #[wasm_bindgen(method)]
    pub(super) fn abort(this: &AbortController);
}

/// Whether new contexts may have other Web Locks than this one.
static FORSAKEN: AtomicBool = AtomicBool::new(false);

/// Makes this context do without Web Locks from now on. When Chromium clears a site's data, it gives new pages of the site Web Locks of
/// their own: neither new pages nor open ones see the locks of the others. So a missing beacon would prove nothing.
pub(crate) fn forsake_locks() {
    FORSAKEN.store(true, Relaxed);
}

pub(super) fn are_forsaken() -> bool {
    FORSAKEN.load(Relaxed)
}

/// The lock manager, if there is one here that all other contexts use, too. The platform's own is inherited. One that a script has put on
/// the object, such as `install()`'s or a polyfill's, says nothing about who lives: other tabs may not see its locks.
pub(super) fn locks() -> Option<LockManager> {
    if are_forsaken() {
        return None;
    }
    let navigator = js_sys::global().unchecked_into::<Global>().navigator()?;
    if Object::has_own(&navigator, &"locks".into()) { None } else { navigator.locks() }
}
