//! Idle records stay, so that it can be told who held a key last. Where there are very many, they go.

use core::time::Duration;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    vec::Vec,
};

use etcd_client::GetOptions;
use tokio::time::{Instant, sleep};

use super::{
    failure::Load,
    listing::page,
    reservation::Sightings,
    rows::{Memory, Names},
    servers::Servers,
    transaction::Desk,
};
use crate::machine::{Batch, Key, SessionId, StoreError, StoreNow};

/// More records than this are looked through.
const MANY: i64 = 512;
/// So many are looked at in one transaction, which has a row for each of them and for each session at them.
const AT_ONCE: usize = 8;
/// Between two transactions. Each may change the store's own row, by which everybody goes.
const PAUSE: Duration = Duration::from_millis(10);
/// How long one of them may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Looks through a store once, after the first transaction of a connection.
pub(super) struct Sweep {
    pub(super) servers: Arc<Servers>,
    pub(super) names: Names,
    /// Whether the connection was closed; nobody else has it once the connection is dropped.
    pub(super) closed: Arc<AtomicBool>,
    /// In whose name.
    pub(super) session: SessionId,
    pub(super) now: StoreNow,
}

impl Sweep {
    /// Forgets what nobody uses. If that fails, it stays until somebody connects again.
    pub(super) async fn run(self) {
        let many = self.many().await;
        if many.is_ok_and(|many| many > MANY) {
            // It was tried.
            drop(self.forget_all().await);
        }
    }

    async fn many(&self) -> Result<i64, StoreError> {
        let (name, options) = (self.names.record(""), GetOptions::new().with_prefix().with_count_only());
        let asked = self.servers.ask(Load::default(), Instant::now() + PATIENCE, |client| async move {
            client.kv_client().get(name, Some(options)).await
        });
        Ok(asked.await.map_err(|failure| failure.error)?.count())
    }

    async fn forget_all(&self) -> Result<(), StoreError> {
        let mut next = Some(self.names.record("").into_bytes());
        while let Some(from) = next {
            let (names, after) = page(&self.servers, &self.names.record(""), from, Instant::now() + PATIENCE).await?;
            let keys: Vec<_> = names.iter().filter_map(|name| self.names.key_of(name)).collect();
            for keys in keys.chunks(AT_ONCE) {
                if self.closed.load(Relaxed) || Arc::strong_count(&self.closed) == 1 {
                    return Ok(());
                }
                // Some may have too many sessions for one transaction. The others can go all the same.
                drop(self.forget(keys).await);
                sleep(PAUSE).await;
            }
            next = after;
        }
        Ok(())
    }

    async fn forget(&self, keys: &[Key]) -> Result<(), StoreError> {
        let (memory, sightings) = (Memory::default(), Sightings::default());
        let desk =
            Desk { servers: &self.servers, names: &self.names, memory: &memory, sightings: &sightings, bin: None };
        let mut batch = Batch::new(self.session, Vec::new());
        batch.forgets = keys.to_vec();
        desk.transact(&batch, self.now, Instant::now() + PATIENCE).await.map(drop)
    }
}
