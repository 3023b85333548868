//! The answers and events of a manager, as plain JavaScript objects.

use core::time::Duration;
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

impl Fields {
    fn new() -> Self {
        Object::new().unchecked_into()
    }

    /// Tokens and times are below 2^53.
    fn number(&self, name: &str, value: u64) {
        self.set(name, &(value as f64).into());
    }

    fn text(&self, name: &str, value: &str) {
        self.set(name, &value.into());
    }

    fn span(&self, name: &str, span: Duration) {
        self.number(name, whole_ms(span));
    }
}

fn array<T>(items: &[T], show: fn(&T) -> JsValue) -> JsValue {
    let array = Array::new();
    for item in items {
        array.push(&show(item));
    }
    array.into()
}

/// The `LeaseStatus` of `types/status.d.ts`.
pub(super) fn status(status: &LeaseStatus) -> JsValue {
    let fields = Fields::new();
    fields.text("key", status.key.as_str());
    fields.number("lastToken", status.last_token.as_u64());
    fields.set("holders", &array(&status.holders, holder));
    fields.set("queue", &array(&status.queue, waiter));
    match status.position() {
        Some(place) => fields.number("position", place as u64),
        None => fields.set("position", &JsValue::NULL),
    }
    fields.into()
}

pub(super) fn statuses(listed: &[LeaseStatus]) -> JsValue {
    array(listed, status)
}

fn holder(holder: &HolderStatus) -> JsValue {
    let fields = context(holder.holder, holder.own, &holder.instance, holder.mode, &holder.info);
    fields.number("token", holder.token.as_u64());
    fields.number("expiresAt", holder.expires_at.as_ms());
    fields.into()
}

fn waiter(waiter: &WaiterStatus) -> JsValue {
    let fields = context(waiter.holder, waiter.own, &waiter.instance, waiter.mode, &waiter.info);
    fields.set("priority", &waiter.priority.into());
    fields.into()
}

/// What holders and waiters have in common.
fn context(holder: SessionId, own: bool, instance: &str, mode: Mode, info: &str) -> Fields {
    let fields = Fields::new();
    fields.text("holder", &holder.to_string());
    fields.set("own", &own.into());
    fields.text("instance", instance);
    fields.text("mode", mode.name());
    fields.text("info", info);
    fields
}

/// The `LeaseStats` of `types/status.d.ts`.
pub(super) fn stats(stats: LeaseStats) -> JsValue {
    let fields = Fields::new();
    fields.number("granted", stats.granted);
    fields.number("waited", stats.waited);
    fields.number("renewed", stats.renewed);
    fields.number("released", stats.released);
    fields.number("lost", stats.lost);
    fields.number("transactions", stats.transactions);
    fields.into()
}

/// The fields of a `LeaseEvent` of `types/event.d.ts`, without its type.
pub(super) fn event(event: &LeaseEvent) -> JsValue {
    let fields = Fields::new();
    fields.text("key", event.key.as_str());
    fields.text("mode", event.mode.name());
    if let Some(token) = event.kind.token() {
        fields.number("token", token.as_u64());
    }
    match event.kind {
        LeaseEventKind::Waiting { ahead } => fields.number("ahead", ahead as u64),
        LeaseEventKind::Withdrawn { waited } => fields.span("waitedMs", waited),
        LeaseEventKind::Granted { holder, waited, .. } => {
            fields.text("holder", &holder.to_string());
            fields.span("waitedMs", waited);
        }
        LeaseEventKind::Lost { reason, held, .. } => {
            fields.text("reason", reason.name());
            fields.span("heldMs", held);
        }
        LeaseEventKind::Released { held, .. } => fields.span("heldMs", held),
        LeaseEventKind::Suspect { .. } | LeaseEventKind::Certain { .. } => {}
    }
    fields.into()
}
