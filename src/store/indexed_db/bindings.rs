//! What web-sys has only behind an unstable flag, or only for windows.

use js_sys::Object;
use wasm_bindgen::prelude::*;
use web_sys::{IdbDatabase, IdbFactory, IdbTransaction};

#[wasm_bindgen]
extern "C" {
    /// `globalThis`: a window or a worker.
    pub(super) type Global;

    /// [MDN](https://developer.mozilla.org/en-US/docs/Web/API/Window/indexedDB). The getter may throw where storage is
    /// denied.
    #[wasm_bindgen(method, getter, catch, js_name = indexedDB)]
    pub(super) fn indexed_db(this: &Global) -> Result<Option<IdbFactory>, JsValue>;

    /// A database whose transactions take options.
    #[derive(Clone)]
    #[wasm_bindgen(extends = IdbDatabase)]
    pub(super) type Database;

    /// [MDN](https://developer.mozilla.org/en-US/docs/Web/API/IDBDatabase/transaction). A browser that does not know
    /// the options does not look at them.
    #[wasm_bindgen(method, catch)]
    pub(super) fn transaction(
        this: &Database,
        object_store: &str,
        mode: &str,
        options: &Object,
    ) -> Result<Transaction, JsValue>;

    /// A transaction that can be told to commit.
    #[derive(Clone)]
    #[wasm_bindgen(extends = IdbTransaction)]
    pub(super) type Transaction;

    /// [MDN](https://developer.mozilla.org/en-US/docs/Web/API/IDBTransaction/commit). Fails where it is missing.
    #[wasm_bindgen(method, catch)]
    pub(super) fn commit(this: &Transaction) -> Result<(), JsValue>;

    /// [MDN](https://developer.mozilla.org/en-US/docs/Web/API/IDBTransaction/mode). web-sys would compare it with the names of all modes.
    #[wasm_bindgen(method, getter)]
    pub(super) fn mode(this: &Transaction) -> JsValue;

    /// Anything that was thrown. Errors and DOM exceptions both have these two.
    pub(super) type Thrown;

    #[wasm_bindgen(method, getter)]
    pub(super) fn name(this: &Thrown) -> Option<String>;

    #[wasm_bindgen(method, getter)]
    pub(super) fn message(this: &Thrown) -> Option<String>;
}

pub(super) fn global() -> Global {
    js_sys::global().unchecked_into()
}
