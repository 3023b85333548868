//! The web adapters in a service worker.
#![cfg(all(target_family = "wasm", target_os = "unknown", feature = "web", feature = "test-util"))]

mod web;

wasm_bindgen_test::wasm_bindgen_test_configure!(run_in_service_worker);

#[wasm_bindgen_test::wasm_bindgen_test]
fn this_is_a_service_worker() {
    assert_eq!(web::context(), "ServiceWorkerGlobalScope");
}
