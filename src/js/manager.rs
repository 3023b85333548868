//! The manager: one context's door to the leases of a store.

use core::{cell::RefCell, future::pending, pin::pin};
use std::{
    string::{String, ToString},
    vec::Vec,
};

use futures::future::{Either, select};
use js_sys::{Function, JsString, Promise};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::{JsFuture, spawn_local};
use web_sys::IdbDatabase;

use super::{
    failure::{Failure, promise},
    lease::JsLease,
    options::{key, rounded_down, rounded_up},
    status::{event, stats, status, statuses},
};
use crate::{
    InvalidOptions, LeaseGuard, LeaseManager, LeaseManagerBuilder, LeaseRequest,
    executor::WebExecutor,
    machine::{Config, Options},
    store::{IndexedDbStore, MemoryStore},
};

std::thread_local! {
    /// The memory stores of this context: as with databases, who opens the same name shares them.
    static MEMORY: RefCell<Vec<(String, MemoryStore)>> = const { RefCell::new(Vec::new()) };
}

fn memory(name: String) -> MemoryStore {
    MEMORY.with_borrow_mut(|stores| {
        let known = stores.iter().find(|(known, _)| *known == name).map(|(_, store)| store.clone());
        known.unwrap_or_else(|| {
            let store = MemoryStore::new();
            stores.push((name, store.clone()));
            store
        })
    })
}

/// One context's door to the leases of a store.
#[wasm_bindgen(js_name = LeaseManager)]
#[derive(Debug)]
pub struct JsLeaseManager {
    leases: LeaseManager,
}

#[wasm_bindgen(js_class = LeaseManager)]
impl JsLeaseManager {
    /// Checks the options and opens the store, so that what is missing shows now.
    pub fn open(
        name: String,
        in_memory: bool,
        lease_ms: Option<f64>,
        heartbeat_ms: Option<f64>,
        store_timeout_ms: Option<f64>,
        linger_ms: Option<f64>,
        beacon: Option<bool>,
    ) -> JsValue {
        let options = options([lease_ms, heartbeat_ms, store_timeout_ms, linger_ms], beacon);
        promise(async move {
            let leases = if in_memory {
                manager(LeaseManager::builder(memory(name), WebExecutor::new()), &options)?
            } else {
                // Before the store is opened: wrong options leave no database behind.
                Config::parse(&options)?;
                let store = IndexedDbStore::new(&name);
                store.open().await?;
                manager(LeaseManager::builder(store, WebExecutor::new()), &options)?
            };
            Ok(Self { leases }.into())
        })
    }

    /// The leases of the user's own database.
    pub fn attach(
        database: IdbDatabase,
        lease_ms: Option<f64>,
        heartbeat_ms: Option<f64>,
        store_timeout_ms: Option<f64>,
        linger_ms: Option<f64>,
        beacon: Option<bool>,
    ) -> JsValue {
        let options = options([lease_ms, heartbeat_ms, store_timeout_ms, linger_ms], beacon);
        promise(async move {
            let store = IndexedDbStore::attach(database).map_err(|error| Failure::invalid(&error.message))?;
            Ok(Self { leases: manager(LeaseManager::builder(store, WebExecutor::new()), &options)? }.into())
        })
    }

    /// The name of this context's incarnation.
    #[wasm_bindgen(getter)]
    pub fn holder(&self) -> String {
        self.leases.incarnation().to_string()
    }

    /// Waits for the lease, until the promise `stopped` is fulfilled; that one must settle in the end. Brings
    /// `undefined` if it was stopped.
    pub fn acquire(
        &self,
        name: JsString,
        info: Option<String>,
        timeout_ms: Option<f64>,
        stopped: Option<Promise>,
    ) -> JsValue {
        let request = self.request(&name, info);
        promise(async move {
            let mut request = request?;
            if let Some(ms) = timeout_ms {
                request = request.timeout(rounded_up(ms));
            }
            let stop = async {
                match stopped {
                    Some(stopped) => drop(JsFuture::from(stopped).await),
                    None => pending().await,
                }
            };
            // Left behind, the request withdraws itself.
            match select(pin!(stop), pin!(request.acquire())).await {
                Either::Left(_) => Ok(JsValue::UNDEFINED),
                Either::Right((granted, _)) => Ok(lease(granted?)),
            }
        })
    }

    /// Tries once. Brings `undefined` if the key is taken.
    #[wasm_bindgen(js_name = tryAcquire)]
    pub fn try_acquire(&self, name: JsString, info: Option<String>) -> JsValue {
        let request = self.request(&name, info);
        promise(async move { Ok(request?.try_acquire().await?.map_or(JsValue::UNDEFINED, lease)) })
    }

    /// Looks at a key.
    pub fn status(&self, name: JsString) -> JsValue {
        let (leases, key) = (self.leases.clone(), key(&name));
        promise(async move { Ok(status(&leases.status(key?.as_str()).await?)) })
    }

    /// Looks at all keys that begin like this and are in use. The prefix is well-formed text.
    pub fn list(&self, prefix: String) -> JsValue {
        let leases = self.leases.clone();
        promise(async move { Ok(statuses(&leases.list(&prefix).await?)) })
    }

    /// What this manager did so far.
    pub fn stats(&self) -> JsValue {
        stats(self.leases.stats())
    }

    /// Calls `tell` with the type of each event from now on and what else is known of it, until the manager has closed.
    pub fn listen(&self, tell: Function) {
        let mut events = self.leases.events();
        spawn_local(async move {
            while let Some(told) = events.next().await {
                // The face throws nothing that concerns us.
                let _ = tell.call2(&JsValue::NULL, &told.kind.name().into(), &event(&told));
            }
        });
    }

    /// Releases what is held, and refuses what comes.
    pub fn close(&self) -> JsValue {
        let leases = self.leases.clone();
        promise(async move {
            leases.close().await;
            Ok(JsValue::UNDEFINED)
        })
    }

    fn request(&self, name: &JsString, info: Option<String>) -> Result<LeaseRequest, Failure> {
        Ok(self.leases.lock(key(name)?.as_str()).info(info.unwrap_or_default()))
    }
}

/// The spans are those of the lease, the heartbeat, the store's time limit and the linger.
fn options(spans: [Option<f64>; 4], beacon: Option<bool>) -> Options {
    let unset = Options::default();
    let [lease, heartbeat, store_timeout, linger] = spans.map(|ms| ms.map(rounded_down));
    Options {
        lease: lease.unwrap_or(unset.lease),
        heartbeat,
        store_timeout,
        linger: linger.unwrap_or(unset.linger),
        beacon: beacon.unwrap_or(unset.beacon),
        ..unset
    }
}

fn manager(builder: LeaseManagerBuilder, options: &Options) -> Result<LeaseManager, InvalidOptions> {
    let mut builder = builder.lease(options.lease).linger(options.linger).beacon(options.beacon);
    if let Some(heartbeat) = options.heartbeat {
        builder = builder.heartbeat(heartbeat);
    }
    if let Some(limit) = options.store_timeout {
        builder = builder.store_timeout(limit);
    }
    builder.build()
}

fn lease(guard: LeaseGuard) -> JsValue {
    JsLease::new(guard).into()
}
