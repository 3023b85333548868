//! A few connections that the transactions of one store take turns on.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    vec::Vec,
};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::Client;

use super::dial::Dial;
use crate::machine::{StoreError, StoreErrorKind};

/// As many as a context has on its way at most, but for those that it gave up.
const SIZE: usize = 4;
/// Of these, so many for transactions that may wait for records. One is left for the heartbeats of all contexts that share the pool.
const MAY_WAIT: usize = SIZE - 1;

pub(super) struct Pool {
    dial: Dial,
    idle: Mutex<Vec<Client>>,
    places: Semaphore,
    may_wait: Semaphore,
    /// Handles that were not closed.
    handles: AtomicUsize,
}

/// A connection that nobody else has. It is closed when this is dropped, and whatever it was in the middle of is rolled back.
pub(super) struct Lent<'a> {
    pool: &'a Pool,
    pub(super) client: Client,
    /// It stood idle before, and may have been cut meanwhile.
    pub(super) used: bool,
    _place: SemaphorePermit<'a>,
    _may_wait: Option<SemaphorePermit<'a>>,
}

/// What a connection is lent for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Errand {
    /// A transaction that locks rows of sessions alone.
    Heartbeat,
    /// Anything else: it may wait until somebody's fence ends.
    Any,
}

impl Pool {
    pub(super) fn new(dial: Dial, first: Client) -> Self {
        let idle = Mutex::new(Vec::from([first]));
        Self {
            dial,
            idle,
            places: Semaphore::new(SIZE),
            may_wait: Semaphore::new(MAY_WAIT),
            handles: AtomicUsize::new(1),
        }
    }

    pub(super) fn dial(&self) -> &Dial {
        &self.dial
    }

    /// Nothing outside is called under the lock, so a poisoned one guards a sound value.
    fn idle(&self) -> MutexGuard<'_, Vec<Client>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn lend(&self, errand: Errand) -> Result<Lent<'_>, StoreError> {
        // They are never closed.
        let may_wait = match errand {
            Errand::Heartbeat => None,
            Errand::Any => Some(self.may_wait.acquire().await.map_err(|_| closed())?),
        };
        let place = self.places.acquire().await.map_err(|_| closed())?;
        let standing = {
            let mut idle = self.idle();
            idle.retain(|client| !client.is_closed());
            idle.pop()
        };
        let used = standing.is_some();
        let client = match standing {
            Some(client) => client,
            None => self.dial.open(|_| ()).await?,
        };
        Ok(Lent { pool: self, client, used, _place: place, _may_wait: may_wait })
    }

    /// Another handle of the same connections.
    pub(super) fn share(&self) {
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    /// A handle is closed; with the last one the connections are.
    pub(super) fn leave(&self) {
        if self.handles.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.idle().clear();
        }
    }

    /// Closes what stands idle: it is cut, or will be.
    pub(super) fn forget_idle(&self) {
        self.idle().clear();
    }
}

impl Lent<'_> {
    /// Gives the connection back, which is in no transaction.
    pub(super) fn give_back(self) {
        if !self.client.is_closed() && self.pool.handles.load(Ordering::Relaxed) > 0 {
            self.pool.idle().push(self.client);
        }
    }
}

pub(super) fn closed() -> StoreError {
    StoreError::permanent(StoreErrorKind::Closed, "this handle of the PostgreSQL store was closed; connect another one")
}
