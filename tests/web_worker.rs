//! The web adapters in a dedicated worker.
#![cfg(all(target_family = "wasm", target_os = "unknown", feature = "web", feature = "test-util"))]

mod web;

wasm_bindgen_test::wasm_bindgen_test_configure!(run_in_dedicated_worker);

#[wasm_bindgen_test::wasm_bindgen_test]
fn this_is_a_dedicated_worker() {
    assert_eq!(web::context(), "DedicatedWorkerGlobalScope");
}
