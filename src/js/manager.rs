//! The manager, which connects one context to the leases of a store.

use core::time::Duration;
use std::{
    boxed::Box,
    string::{String, ToString},
    vec::Vec,
};

use js_sys::{Array, Function, Promise};
use wasm_bindgen::prelude::*;
use web_sys::IdbDatabase;

use super::{
    failure::{Failure, promise, stoppable},
    lease::JsLease,
    memory::Memory,
    options::{mode, rounded_down, rounded_up},
    several::acquire_all,
    status::{event, stats, status, statuses},
};
use crate::{
    InvalidOptions, LeaseGuard, LeaseManager, LeaseManagerBuilder,
    client::{multi::MultiRequest, wish::Wish},
    executor::{Shared, WebExecutor, spawn},
    machine::{Config, Options},
    store::{IndexedDbStore, Store},
};

/// The bits that tell how to open a store.
const IN_MEMORY: u32 = 1;
const WITHOUT_BEACON: u32 = 2;
/// The bits that tell how to request a lease.
const SHARED: u32 = 1;
const TOGETHER: u32 = 2;
const STEAL: u32 = 4;
const WITHOUT_RENEWAL: u32 = 8;

/// Connects one context to the leases of a store.
#[wasm_bindgen(js_name = LeaseManager)]
#[derive(Debug)]
pub struct JsLeaseManager {
    pub(super) leases: LeaseManager,
}

#[wasm_bindgen(js_class = LeaseManager)]
impl JsLeaseManager {
    /// Checks the options and opens the store, so that anything that is missing shows now: the user's own database if one is given, else
    /// the one with this name. The times are in ms; `NaN` stands for none. With `next_fault`, the store is in memory and fails on demand.
    #[allow(clippy::too_many_arguments, reason = "an object of options would be read property by property")]
    pub fn open(
        name: String,
        database: Option<IdbDatabase>,
        how: u32,
        lease_ms: f64,
        heartbeat_ms: f64,
        store_timeout_ms: f64,
        linger_ms: f64,
        instance: Option<String>,
        next_fault: Option<Function>,
    ) -> JsValue {
        let unset = Options::default();
        let options = Options {
            lease: time(lease_ms).unwrap_or(unset.lease),
            heartbeat: time(heartbeat_ms),
            store_timeout: time(store_timeout_ms),
            linger: time(linger_ms).unwrap_or(unset.linger),
            beacon: how & WITHOUT_BEACON == 0,
            instance,
            ..unset
        };
        promise(async move {
            let store: Shared<dyn Store> = if let Some(database) = database {
                Shared::new(IndexedDbStore::attach(database).map_err(|error| Failure::invalid(&error.message))?)
            } else if next_fault.is_some() || how & IN_MEMORY != 0 {
                Shared::new(Memory::open(name, next_fault))
            } else {
                // Before the store is opened: wrong options leave no database behind.
                Config::parse(&options)?;
                let store = IndexedDbStore::new(&name);
                store.open().await?;
                Shared::new(store)
            };
            Ok(Self { leases: manager(store, options)? }.into())
        })
    }

    /// The id of this context's session.
    #[wasm_bindgen(getter)]
    pub fn holder(&self) -> JsValue {
        self.leases.session().to_string().into()
    }

    /// Requests the lease as the bits of `how` tell, until the promise `stopped` is fulfilled.
    #[allow(clippy::too_many_arguments, reason = "an object of options would be read property by property")]
    pub fn request(
        &self,
        key: &str,
        how: u32,
        priority: i32,
        info: Option<String>,
        timeout_ms: Option<f64>,
        max_hold_ms: Option<f64>,
        stopped: Option<Promise>,
    ) -> JsValue {
        let mut request = self.leases.lock(key);
        request.wish = Wish {
            mode: mode(how & SHARED != 0),
            timeout: timeout_ms.map(rounded_up),
            priority,
            share: how & TOGETHER != 0,
            steal: how & STEAL != 0,
            auto_renew: how & WITHOUT_RENEWAL == 0,
            max_hold: max_hold_ms.map(rounded_up),
            info: info.unwrap_or_default(),
        };
        stoppable(Box::pin(async { Ok(lease(request.acquire().await?)) }), stopped)
    }

    /// Requests several leases, until the promise `stopped` is fulfilled. A lease is shared if its element of `shared` is not `undefined`.
    #[wasm_bindgen(js_name = requestAll)]
    pub fn request_all(
        &self,
        keys: Array,
        shared: Array,
        priority: i32,
        info: Option<String>,
        timeout_ms: Option<f64>,
        stopped: Option<Promise>,
    ) -> JsValue {
        let (mut names, mut sorted) = (Vec::new(), Vec::new());
        for at in 0..keys.length() {
            let name = keys.get(at).as_string().unwrap_or_default();
            sorted.push((name.clone(), mode(!shared.get(at).is_undefined())));
            names.push(name);
        }
        let mut request = MultiRequest::new(&self.leases, sorted);
        request.wish.priority = priority;
        request.wish.info = info.unwrap_or_default();
        request.wish.timeout = timeout_ms.map(rounded_up);
        stoppable(Box::pin(acquire_all(request, names)), stopped)
    }

    /// Reads the state of a key.
    pub fn status(&self, key: String) -> JsValue {
        let leases = self.leases.clone();
        promise(async move { Ok(status(&leases.look_at(&key).await?)) })
    }

    /// Reads the states of all keys with this prefix that are in use: only those of locks, or only all others. The prefix is well-formed
    /// text.
    pub fn list(&self, prefix: String, locks: bool) -> JsValue {
        let leases = self.leases.clone();
        promise(async move { Ok(statuses(&leases.in_use(&prefix, locks).await?)) })
    }

    /// What this manager has done so far.
    pub fn stats(&self) -> JsValue {
        stats(self.leases.stats())
    }

    /// Calls `tell` with the type and the fields of each event from now on, until the manager has closed.
    pub fn listen(&self, tell: Function) {
        let mut events = self.leases.events();
        spawn(Box::pin(async move {
            while let Some(told) = events.next().await {
                if told.key.is_of_lock() {
                    continue;
                }
                // The face throws nothing that concerns us.
                let _ = tell.call2(&JsValue::NULL, &told.kind.name().into(), &event(&told));
            }
        }));
    }

    /// Releases all leases, and refuses new requests.
    pub fn close(&self) -> JsValue {
        let leases = self.leases.clone();
        promise(async move {
            leases.close().await;
            Ok(JsValue::UNDEFINED)
        })
    }
}

fn time(ms: f64) -> Option<Duration> {
    if ms.is_nan() { None } else { Some(rounded_down(ms)) }
}

fn manager(store: Shared<dyn Store>, options: Options) -> Result<LeaseManager, InvalidOptions> {
    let mut builder = LeaseManagerBuilder::new(store, Shared::new(WebExecutor::new()), options);
    builder.linger_is_chosen = true;
    builder.warn_of_own_wait = |key| waits_long(key.as_str());
    builder.build()
}

#[wasm_bindgen]
extern "C" {
    /// Warns that a request has waited for a minute for a lease of its own manager. The face implements it.
    #[wasm_bindgen(js_name = waitsLong)]
    fn waits_long(key: &str);
}

pub(super) fn lease(guard: LeaseGuard) -> JsValue {
    JsLease::new(guard).into()
}
