//! matrix-sdk-common: each holder is a process with a name of its own, as far as the lock can tell.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use matrix_sdk_common::cross_process_lock::{
    CrossProcessLock, CrossProcessLockConfig, CrossProcessLockGeneration, CrossProcessLockGuard, TryLock,
};

use crate::{
    contest::{Contest, Holder},
    figures::now,
};

/// The least that its lock asks of a store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Matrix(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    rows: Mutex<HashMap<String, Row>>,
    writes: AtomicUsize,
    timeouts: AtomicUsize,
}

#[derive(Debug)]
struct Row {
    holder: String,
    generation: CrossProcessLockGeneration,
    ends: Instant,
}

impl Matrix {
    pub(crate) fn lock(&self, key: &str, number: usize) -> CrossProcessLock<Self> {
        let config = CrossProcessLockConfig::multi_process(format!("process {number}"));
        CrossProcessLock::new(self.clone(), key.to_owned(), config)
    }

    pub(crate) fn writes(&self) -> usize {
        self.0.writes.load(Ordering::Relaxed)
    }

    /// How often a holder gave up waiting, and began anew.
    pub(crate) fn timeouts(&self) -> usize {
        self.0.timeouts.load(Ordering::Relaxed)
    }
}

impl TryLock for Matrix {
    type LockError = Infallible;

    async fn try_lock(
        &self,
        lease_duration_ms: u32,
        key: &str,
        holder: &str,
    ) -> Result<Option<CrossProcessLockGeneration>, Infallible> {
        let start = now();
        let ends = start + Duration::from_millis(lease_duration_ms.into());
        let mut rows = self.0.rows.lock().expect("nothing panics under the lock");
        let generation = match rows.get_mut(key) {
            Some(row) if row.holder == holder => {
                row.ends = ends;
                row.generation
            }
            Some(row) if row.ends > start => return Ok(None),
            Some(row) => {
                *row = Row { holder: holder.to_owned(), generation: row.generation + 1, ends };
                row.generation
            }
            None => {
                rows.insert(key.to_owned(), Row { holder: holder.to_owned(), generation: 1, ends });
                1
            }
        };
        self.0.writes.fetch_add(1, Ordering::Relaxed);
        Ok(Some(generation))
    }
}

/// A holder of one key.
pub(crate) struct Process {
    store: Matrix,
    number: usize,
    lock: CrossProcessLock<Matrix>,
}

impl Contest for Matrix {
    type Holder = Process;

    fn holder(&self, number: usize) -> Process {
        Process { store: self.clone(), number, lock: self.lock("k", number) }
    }
}

impl Holder for Process {
    type Guard = CrossProcessLockGuard;

    async fn take(&mut self) -> CrossProcessLockGuard {
        loop {
            let Ok(tried) = self.lock.spin_lock(None).await;
            if let Ok(state) = tried {
                return state.into_guard();
            }
            // A lock object that timed out once would not wait again.
            self.lock = self.store.lock("k", self.number);
            self.store.0.timeouts.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// It is not released by that: a task of the lock's does so at its next renewal.
    async fn give_back(&mut self, guard: CrossProcessLockGuard) {
        drop(guard);
    }
}
