//! How a [sweep](super::super::sweep) asks PostgreSQL.

use core::time::Duration;
use std::{
    string::String,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering::Relaxed},
    },
    vec::Vec,
};

use async_trait::async_trait;
use tokio::time::timeout;

use super::{
    Place, Work, failure, fresh_id, options,
    rows::{Hold, keys_of, text_of_record, text_of_session},
};
use crate::executor::Shared;
use crate::machine::{Batch, Key, SessionId, StoreError, StoreNow};
use crate::store::sweep::{PAGE, Page, Shelf};

/// Whether there are many records. Whoever opens the first session asks along, so that this costs no round trip.
#[derive(Debug, Default)]
pub(super) struct Crowding(AtomicU8);

const UNKNOWN: u8 = 0;
const CROWDED: u8 = 1;
const SETTLED: u8 = 2;

impl Crowding {
    pub(super) fn is_unknown(&self) -> bool {
        self.0.load(Relaxed) == UNKNOWN
    }

    /// Whether a sweep may still have to begin: nobody knows yet, or whoever was to begin it failed.
    pub(super) fn is_open(&self) -> bool {
        self.0.load(Relaxed) != SETTLED
    }

    pub(super) fn found(&self, is_crowded: bool) {
        self.0.store(if is_crowded { CROWDED } else { SETTLED }, Relaxed);
    }

    /// Whether the caller is to sweep. Nobody else is told so.
    pub(super) fn takes_sweep(&self) -> bool {
        self.0.compare_exchange(CROWDED, SETTLED, Relaxed, Relaxed).is_ok()
    }
}

/// The records of one handle.
pub(super) struct Records {
    pub(super) place: Shared<Place>,
    /// Whether the handle was closed; nobody else has it once the handle is dropped.
    pub(super) closed: Arc<AtomicBool>,
    pub(super) now: StoreNow,
    /// How long each request may keep a connection: no longer than that of a lease, because the pool may have no other one.
    pub(super) limit: Duration,
}

impl Records {
    async fn ask(&self, statement: &str) -> Result<super::carrier::Answers, StoreError> {
        let late = |_| Err(failure::before_commit(self.limit));
        let asked = timeout(self.limit, options::ask(&self.place.lending, statement)).await;
        let found = asked.unwrap_or_else(late)?;
        found.map_err(|failure| failure::of_look(&failure, &self.place.names))
    }
}

#[async_trait]
impl Shelf for Records {
    async fn page(&self, after: Option<Key>) -> Result<Page, StoreError> {
        let found = self.ask(&self.place.names.read_page(after.as_ref(), PAGE)).await?;
        let found = found.rows(0);
        let is_full = found.len() == PAGE;
        let next = found.last().filter(|_| is_full).and_then(|last| keys_of(core::slice::from_ref(last)).pop());
        let text = |key: Key| text_of_record(found, &key).map(String::from).map(|text| (key, text));
        Ok(Page { records: keys_of(found).into_iter().filter_map(text).collect(), next })
    }

    async fn sessions(&self, sessions: &[SessionId]) -> Result<Vec<(SessionId, String)>, StoreError> {
        let found = self.ask(&self.place.names.read_sessions(sessions, Hold::Not)).await?;
        let text = |id: &SessionId| text_of_session(found.rows(0), *id).map(|text| (*id, String::from(text)));
        Ok(sessions.iter().filter_map(text).collect())
    }

    async fn forget(&self, batch: Batch) -> Result<(), StoreError> {
        // In the name of nobody: transactions of one session wait for each other, and those of a living one are heartbeats.
        let batch = Batch { session: SessionId(fresh_id()?.0), ..batch };
        let work = Work { batch, now: self.now, limit: self.limit, fresh: fresh_id()?, tells: false, yields: true };
        work.run(&self.place).await.map(drop)
    }

    fn is_over(&self) -> bool {
        self.closed.load(Relaxed) || Arc::strong_count(&self.closed) == 1
    }
}
