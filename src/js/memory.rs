//! The store in memory. In `leasehold/testing`, it fails when the face says so.

use core::{cell::RefCell, fmt, time::Duration};
use std::{string::String, vec::Vec};

use async_trait::async_trait;
use futures::future::pending;
use js_sys::Function;
use wasm_bindgen::prelude::*;

use crate::{
    machine::{Batch, Key, Now, Reply, SessionId, StoreClock, StoreError, StoreErrorKind},
    store::{MemoryStore, Reach, Store},
};

std::thread_local! {
    /// The memory stores of this thread. Managers that open the same name share a store, as they would share a database.
    static OPENED: RefCell<Vec<(String, MemoryStore)>> = const { RefCell::new(Vec::new()) };
}

pub(super) struct Memory {
    inner: MemoryStore,
    /// Called with `false` for each transaction, and with `true` to list keys. Returns the name of the fault, if there is one.
    next_fault: Option<Function>,
}

impl Memory {
    pub(super) fn open(name: String, next_fault: Option<Function>) -> Self {
        let inner = OPENED.with_borrow_mut(|stores| {
            let known = stores.iter().find(|(known, _)| *known == name).map(|(_, store)| store.clone());
            known.unwrap_or_else(|| {
                let store = MemoryStore::new();
                stores.push((name, store.clone()));
                store
            })
        });
        Self { inner, next_fault }
    }

    fn fault(&self, looks: bool) -> String {
        // A closed store says so, whatever fault was injected.
        let next_fault = self.next_fault.as_ref().filter(|_| self.inner.check().is_ok());
        let Some(next_fault) = next_fault else { return String::new() };
        // Nothing that the face throws is a fault.
        let fault = next_fault.call1(&JsValue::NULL, &looks.into()).ok().and_then(|fault| fault.as_string());
        fault.unwrap_or_default()
    }
}

/// The error that a fault causes before anything is applied; `None` if it causes none.
fn refusal(fault: &str) -> Option<StoreError> {
    match fault {
        "refuse" => Some(StoreError::transient("refused on demand")),
        "fail" => Some(StoreError::permanent(StoreErrorKind::Unavailable, "failed on demand")),
        _ => None,
    }
}

#[async_trait(?Send)]
impl Store for Memory {
    async fn transact(&self, batch: Batch, now: Now, _limit: Duration) -> Result<Reply, StoreError> {
        let fault = self.fault(false);
        if let Some(error) = refusal(&fault) {
            return Err(error);
        }
        if fault != "stall" {
            let reply = self.inner.apply(&batch, now);
            if fault == "loseReply" {
                return Err(StoreError::unknown("the answer was lost on demand"));
            }
            if fault != "silence" {
                return reply;
            }
        }
        pending().await
    }

    fn transact_at_once(&self, batch: &Batch, now: Now) -> Option<Result<Reply, StoreError>> {
        self.next_fault.is_none().then(|| self.inner.apply(batch, now))
    }

    async fn keys(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        let fault = self.fault(true);
        match refusal(&fault) {
            Some(error) => Err(error),
            None if fault.is_empty() => self.inner.list(prefix),
            None => pending().await,
        }
    }

    fn abandons(&self) -> bool {
        true
    }

    fn abandon(&self, session: SessionId) {
        self.inner.abandon(session);
    }

    async fn close(&self) {
        self.inner.end();
    }

    fn polls_inline(&self) -> bool {
        true
    }

    fn clock(&self) -> StoreClock {
        self.inner.clock()
    }

    fn reach(&self) -> Reach {
        self.inner.reach()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Derived, it would bring along how a function of JavaScript is shown: 1 kB.
        out.write_str("Memory")
    }
}
