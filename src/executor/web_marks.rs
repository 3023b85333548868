//! Marks for the page of the profile, which defines `leaseholdParts` before it loads the package.

use wasm_bindgen::prelude::*;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = leaseholdParts)]
    pub(super) fn begin(part: u32);

    #[wasm_bindgen(js_namespace = leaseholdParts)]
    pub(super) fn end();
}
