//! What a manager tells, as plain JavaScript objects.

use std::string::ToString;

use js_sys::{Array, Object};
use wasm_bindgen::prelude::*;

use crate::{
    HolderStatus, LeaseEvent, LeaseEventKind, LeaseStats, LeaseStatus, Mode, WaiterStatus,
    machine::{SessionId, whole_ms},
};

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(extends = Object)]
    type Fields;

    #[wasm_bindgen(method, structural, indexing_setter)]
    fn set(this: &Fields, name: &str, value: &JsValue);
}

fn object(fields: &[(&str, JsValue)]) -> Fields {
    let object = Object::new().unchecked_into::<Fields>();
    object.add(fields);
    object
}

impl Fields {
    fn add(&self, fields: &[(&str, JsValue)]) {
        for (name, value) in fields {
            self.set(name, value);
        }
    }
}

fn array<T>(items: &[T], show: fn(&T) -> JsValue) -> JsValue {
    let array = Array::new();
    for item in items {
        array.push(&show(item));
    }
    array.into()
}

/// Tokens and times are below 2^53.
fn number(value: u64) -> JsValue {
    (value as f64).into()
}

/// The `LeaseStatus` of `types/status.d.ts`.
pub(super) fn status(status: &LeaseStatus) -> JsValue {
    let fields = object(&[
        ("key", status.key.as_str().into()),
        ("lastToken", number(status.last_token.as_u64())),
        ("holders", array(&status.holders, holder)),
        ("queue", array(&status.queue, waiter)),
        ("position", status.position().map_or(JsValue::NULL, |place| number(place as u64))),
    ]);
    fields.into()
}

pub(super) fn statuses(listed: &[LeaseStatus]) -> JsValue {
    array(listed, status)
}

fn holder(holder: &HolderStatus) -> JsValue {
    let fields = context(holder.holder, holder.own, &holder.instance, holder.mode, &holder.info);
    let (token, expires_at) = (holder.token.as_u64(), holder.expires_at.as_ms());
    fields.add(&[("token", number(token)), ("expiresAt", number(expires_at))]);
    fields.into()
}

fn waiter(waiter: &WaiterStatus) -> JsValue {
    let fields = context(waiter.holder, waiter.own, &waiter.instance, waiter.mode, &waiter.info);
    fields.add(&[("priority", waiter.priority.into())]);
    fields.into()
}

/// What holders and waiters have in common.
fn context(holder: SessionId, own: bool, instance: &str, mode: Mode, info: &str) -> Fields {
    object(&[
        ("holder", holder.to_string().into()),
        ("own", own.into()),
        ("instance", instance.into()),
        ("mode", mode.name().into()),
        ("info", info.into()),
    ])
}

/// The `LeaseStats` of `types/status.d.ts`.
pub(super) fn stats(stats: LeaseStats) -> JsValue {
    let fields = object(&[
        ("granted", number(stats.granted)),
        ("waited", number(stats.waited)),
        ("renewed", number(stats.renewed)),
        ("released", number(stats.released)),
        ("lost", number(stats.lost)),
        ("transactions", number(stats.transactions)),
    ]);
    fields.into()
}

/// What a `LeaseEvent` of `types/event.d.ts` has beside its type.
pub(super) fn event(event: &LeaseEvent) -> JsValue {
    let span = |span| number(whole_ms(span));
    let fields = object(&[("key", event.key.as_str().into()), ("mode", event.mode.name().into())]);
    if let Some(token) = event.kind.token() {
        fields.add(&[("token", number(token.as_u64()))]);
    }
    match event.kind {
        LeaseEventKind::Waiting { ahead } => fields.add(&[("ahead", number(ahead as u64))]),
        LeaseEventKind::Withdrawn { waited } => fields.add(&[("waitedMs", span(waited))]),
        LeaseEventKind::Granted { holder, waited, .. } => {
            fields.add(&[("holder", holder.to_string().into()), ("waitedMs", span(waited))]);
        }
        LeaseEventKind::Lost { reason, held, .. } => {
            fields.add(&[("reason", reason.name().into()), ("heldMs", span(held))]);
        }
        LeaseEventKind::Released { held, .. } => fields.add(&[("heldMs", span(held))]),
        LeaseEventKind::Suspect { .. } | LeaseEventKind::Certain { .. } => {}
    }
    fields.into()
}
