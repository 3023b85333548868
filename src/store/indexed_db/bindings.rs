//! What web-sys has only behind an unstable flag, or only for windows.

use js_sys::{Date, Object, Uint8Array};
use wasm_bindgen::prelude::*;
use web_sys::{IdbDatabase, IdbFactory, IdbTransaction};

use crate::machine::{Monotonic, Now, Wall};

#[wasm_bindgen]
extern "C" {
    /// `globalThis`: a window or a worker.
    pub(super) type Global;

    /// [MDN](https://developer.mozilla.org/en-US/docs/Web/API/Window/indexedDB). The getter may throw where storage is
    /// denied.
    #[wasm_bindgen(method, getter, catch, js_name = indexedDB)]
    pub(super) fn indexed_db(this: &Global) -> Result<Option<IdbFactory>, JsValue>;

    #[wasm_bindgen(method, getter)]
    fn crypto(this: &Global) -> Crypto;

    type Crypto;

    #[wasm_bindgen(method, js_name = getRandomValues)]
    fn get_random_values(this: &Crypto, bytes: &Uint8Array);

    #[wasm_bindgen(js_namespace = performance, js_name = now)]
    fn performance_now() -> f64;

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

    /// [MDN](https://developer.mozilla.org/en-US/docs/Web/API/IDBTransaction/mode). web-sys compares it with the names of all modes.
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

/// Reads the clocks of this context, as the executor of browsers does.
pub(super) fn now() -> Now {
    Now { monotonic: Monotonic::from_ms(performance_now() as u64), wall: Wall::from_ms(Date::now() as u64) }
}

/// Draws by [`crypto.getRandomValues()`](https://developer.mozilla.org/en-US/docs/Web/API/Crypto/getRandomValues),
/// which is there in insecure contexts too.
pub(super) fn random_bits() -> u128 {
    // Filled on JavaScript's side: getRandomValues refuses the memory of a wasm module with threads.
    let drawn = Uint8Array::new_with_length(16);
    global().crypto().get_random_values(&drawn);
    let mut bytes = [0; 16];
    drawn.copy_to(&mut bytes);
    u128::from_ne_bytes(bytes)
}
