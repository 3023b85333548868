//! How a [sweep](super::super::sweep) asks etcd.

use std::{
    string::String,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    vec::Vec,
};

use async_trait::async_trait;
use etcd_client::{GetOptions, Txn};
use tokio::time::Instant;

use super::{
    super::sweep::{MANY, PAGE, PATIENCE, Page, Shelf},
    failure::Load,
    listing::page,
    look::AT_ONCE,
    reservation::Sightings,
    rows::{Memory, Names, View, gets},
    servers::Servers,
    transaction::Desk,
};
use crate::machine::{Batch, Key, Row, SessionId, StoreError, StoreNow};

/// The records of one connection.
pub(super) struct Records {
    pub(super) servers: Arc<Servers>,
    pub(super) names: Names,
    /// Whether the connection was closed; nobody else has it once the connection is dropped.
    pub(super) closed: Arc<AtomicBool>,
    pub(super) now: StoreNow,
}

#[async_trait]
impl Shelf for Records {
    async fn has_many(&self) -> Result<bool, StoreError> {
        let (name, options) = (self.names.record(""), GetOptions::new().with_prefix().with_count_only());
        let asked = self.servers.ask(Load::default(), Instant::now() + PATIENCE, |client| async move {
            client.kv_client().get(name, Some(options)).await
        });
        let found = asked.await.map_err(|failure| failure.error)?;
        Ok(usize::try_from(found.count()).is_ok_and(|many| many > MANY))
    }

    async fn page(&self, after: Option<Key>) -> Result<Page, StoreError> {
        let all = self.names.record("");
        let from = match after {
            Some(key) => [self.names.record(key.as_str()).as_bytes(), &[0]].concat(),
            None => all.clone().into_bytes(),
        };
        let (found, more) = page(&self.servers, &all, from, PAGE, Instant::now() + PATIENCE).await?;
        let row = |(name, text): &(Vec<u8>, Vec<u8>)| {
            // What is no text is no record.
            Some((self.names.key_of(name)?, core::str::from_utf8(text).ok()?.into()))
        };
        let last = found.last().filter(|_| more.is_some());
        let next = last.and_then(|(name, _)| self.names.key_of(name));
        Ok(Page { records: found.iter().filter_map(row).collect(), next })
    }

    async fn sessions(&self, sessions: &[SessionId]) -> Result<Vec<(SessionId, String)>, StoreError> {
        let mut view = View::default();
        for sessions in sessions.chunks(AT_ONCE) {
            let rows: Vec<_> = sessions.iter().copied().map(Row::Session).collect();
            let load = Load { rows: rows.len(), bytes: 0 };
            let txn = Txn::new().and_then(gets(&self.names, &rows));
            let asked = self.servers.txn(txn, load, Instant::now() + PATIENCE);
            view.take(rows, &asked.await.map_err(|failure| failure.error)?);
        }
        let found = |id: &SessionId| Some((*id, view.text(&Row::Session(*id))?.into()));
        Ok(sessions.iter().filter_map(found).collect())
    }

    async fn forget(&self, batch: Batch) -> Result<(), StoreError> {
        let (memory, sightings) = (Memory::default(), Sightings::default());
        let desk =
            Desk { servers: &self.servers, names: &self.names, memory: &memory, sightings: &sightings, bin: None };
        desk.transact(&batch, self.now, Instant::now() + PATIENCE).await.map(drop)
    }

    fn is_over(&self) -> bool {
        self.closed.load(Relaxed) || Arc::strong_count(&self.closed) == 1
    }
}
