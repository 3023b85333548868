//! The store of `leasehold/testing`: in memory, and it fails when the face says so.

use core::fmt;
use core::time::Duration;
use std::vec::Vec;

use async_trait::async_trait;
use futures::future::pending;
use js_sys::Function;
use wasm_bindgen::prelude::*;

use crate::{
    machine::{Batch, Key, Now, Reply, SessionId, StoreClock, StoreError, StoreErrorKind},
    store::{MemoryStore, Reach, Store},
};

pub(super) struct FaultyMemory {
    pub(super) inner: MemoryStore,
    /// Called with nothing for each transaction; brings the name of its fault, if it has one.
    pub(super) next_fault: Function,
}

#[async_trait(?Send)]
impl Store for FaultyMemory {
    async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError> {
        // Nothing that the face throws is a fault.
        let fault = self.next_fault.call0(&JsValue::NULL).ok().and_then(|fault| fault.as_string());
        let fault = fault.as_deref().unwrap_or_default();
        match fault {
            "refuse" => return Err(StoreError::transient("refused on demand")),
            "fail" => return Err(StoreError::permanent(StoreErrorKind::Unavailable, "failed on demand")),
            "stall" => pending().await,
            _ => {}
        }
        let reply = self.inner.transact(batch, now, limit).await;
        match fault {
            "silence" => pending().await,
            "loseReply" => Err(StoreError::unknown("the answer was lost on demand")),
            _ => reply,
        }
    }

    async fn keys(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        self.inner.keys(prefix).await
    }

    fn abandons(&self) -> bool {
        true
    }

    fn abandon(&self, session: SessionId) {
        self.inner.abandon(session);
    }

    async fn close(&self) {
        self.inner.close().await;
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

impl fmt::Debug for FaultyMemory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Derived, it would bring along how a function of JavaScript is shown: 1 kB.
        out.write_str("FaultyMemory")
    }
}
