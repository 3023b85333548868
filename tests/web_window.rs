//! The web adapters in a window.
#![cfg(all(target_family = "wasm", target_os = "unknown", feature = "web", feature = "test-util"))]

mod web;

wasm_bindgen_test::wasm_bindgen_test_configure!(run_in_browser);

#[wasm_bindgen_test::wasm_bindgen_test]
fn this_is_a_window() {
    assert_eq!(web::context(), "Window");
}
