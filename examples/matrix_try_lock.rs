//! matrix-rust-sdk's `TryLock`, over leases. Its `CrossProcessLock` takes any type that implements this trait, which has one method. Then
//! processes that share an account take turns through SQLite, PostgreSQL, Redis or etcd.
//!
//! `LEASES=sqlite:leases.db cargo run --example matrix_try_lock --features tokio,store-sqlite`

use std::{
    collections::BTreeMap,
    error::Error,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use leasehold::{AcquireError, LeaseGuard, LeaseManager, executor::TokioExecutor, store};
use tokio::{sync::Mutex as AsyncMutex, time::sleep};

/// The native form of `matrix_sdk_common::cross_process_lock::TryLock`, version 0.19. In your program, import the original. It is copied
/// here because that crate needs a newer Rust than leasehold does.
pub(crate) trait TryLock {
    type LockError: Error + Send + Sync;

    /// Takes or keeps the lock. `Some` holds its generation, which changes when somebody else has held the lock; `None` means that somebody
    /// else holds it. A lease of 0 ms releases the lock.
    fn try_lock(
        &self,
        lease_duration_ms: u32,
        key: &str,
        holder: &str,
    ) -> impl Future<Output = Result<Option<u64>, Self::LockError>> + Send;
}

/// One process's access to the shared locks.
#[derive(Clone, Debug)]
pub(crate) struct LeaseLocks {
    leases: LeaseManager,
    holder: String,
    held: Arc<Mutex<BTreeMap<String, Arc<AsyncMutex<Held>>>>>,
}

/// One lock, as this process holds it.
#[derive(Debug, Default)]
struct Held {
    guard: Option<LeaseGuard>,
    generation: u64,
}

impl LeaseLocks {
    /// Connects to the store at `url`. If a process with this holder's name died, the new one takes over its locks; while it lives, a
    /// second process with that name is refused.
    pub(crate) async fn open(url: &str, holder: &str) -> Result<Self, AcquireError> {
        let store = store::from_url(url).await?;
        let leases = LeaseManager::builder(store, TokioExecutor::new()).instance(holder).build()?;
        Ok(Self { leases, holder: holder.into(), held: Arc::default() })
    }

    /// Releases all locks that this process holds.
    pub(crate) async fn close(&self) {
        self.leases.close().await;
    }

    fn held(&self, key: &str) -> Arc<AsyncMutex<Held>> {
        // A panic elsewhere cannot leave half an entry in the map.
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(held.entry(key.to_owned()).or_default())
    }
}

impl TryLock for LeaseLocks {
    type LockError = AcquireError;

    /// The manager renews the lease by itself, so the duration only says whether to keep the lock.
    async fn try_lock(&self, lease_duration_ms: u32, key: &str, holder: &str) -> Result<Option<u64>, AcquireError> {
        assert_eq!(self.holder, holder, "open one LeaseLocks for each holder");
        let held = self.held(key);
        let mut held = held.lock().await;
        if let Some(guard) = held.guard.take() {
            if lease_duration_ms == 0 {
                guard.release().await.map_err(AcquireError::from)?;
                return Ok(Some(held.generation));
            }
            // A loss is reported once, by `None`, so that the task that keeps the lock ends. The next call acquires anew.
            let is_valid = guard.is_valid();
            held.guard = Some(guard).filter(|_| is_valid);
            return Ok(is_valid.then_some(held.generation));
        }
        if lease_duration_ms == 0 {
            return Ok(None);
        }
        let Some(guard) = self.leases.lock(key).try_acquire().await? else { return Ok(None) };
        if held.generation == 0 || guard.changed_hands() {
            guard.clear_changed();
            // Tokens grow with every grant, so no earlier generation had this number.
            held.generation = guard.token().as_u64();
        }
        held.guard = Some(guard);
        Ok(Some(held.generation))
    }
}

/// Tries until the lock is free, as `CrossProcessLock::spin_lock` does.
pub(crate) async fn spin(
    locks: &impl TryLock<LockError = AcquireError>,
    key: &str,
    holder: &str,
) -> Result<u64, AcquireError> {
    loop {
        if let Some(generation) = locks.try_lock(500, key, holder).await? {
            return Ok(generation);
        }
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::main]
async fn main() -> Result<(), AcquireError> {
    let url = std::env::var("LEASES").unwrap_or_else(|_| "sqlite:leases.db".into());
    let (app, push) = (LeaseLocks::open(&url, "app").await?, LeaseLocks::open(&url, "push").await?);
    let first = spin(&app, "crypto store", "app").await?;
    assert_eq!(push.try_lock(500, "crypto store", "push").await?, None);
    println!("the app has the store, the push extension is refused");
    app.try_lock(0, "crypto store", "app").await?;
    spin(&push, "crypto store", "push").await?;
    push.try_lock(0, "crypto store", "push").await?;
    assert_ne!(spin(&app, "crypto store", "app").await?, first);
    println!("the app reads the store again: the push extension had it meanwhile");
    app.close().await;
    push.close().await;
    Ok(())
}
