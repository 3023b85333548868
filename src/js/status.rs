//! What a key looks like, as a plain JavaScript object.

use std::string::ToString;

use js_sys::{Array, Object};
use wasm_bindgen::prelude::*;

use crate::{HolderStatus, LeaseStatus, WaiterStatus};

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(extends = Object)]
    type Fields;

    #[wasm_bindgen(method, structural, indexing_setter)]
    fn set(this: &Fields, name: &str, value: &JsValue);
}

fn object(fields: &[(&str, &JsValue)]) -> JsValue {
    let object = Object::new().unchecked_into::<Fields>();
    for (name, value) in fields {
        object.set(name, value);
    }
    object.into()
}

/// The `LeaseStatus` of `types.d.ts`.
pub(super) fn status(status: &LeaseStatus) -> JsValue {
    object(&[
        ("key", &status.key.as_str().into()),
        ("lastToken", &(status.last_token.as_u64() as f64).into()),
        ("holder", &status.holders.first().map_or(JsValue::NULL, holder)),
        ("queue", &status.queue.iter().map(waiter).collect::<Array>()),
    ])
}

fn holder(holder: &HolderStatus) -> JsValue {
    object(&[
        ("holder", &holder.holder.to_string().into()),
        ("token", &(holder.token.as_u64() as f64).into()),
        ("info", &holder.info.as_str().into()),
        ("expiresAt", &(holder.expires_at.as_ms() as f64).into()),
        ("own", &holder.own.into()),
    ])
}

fn waiter(waiter: &WaiterStatus) -> JsValue {
    object(&[
        ("holder", &waiter.holder.to_string().into()),
        ("info", &waiter.info.as_str().into()),
        ("own", &waiter.own.into()),
    ])
}
