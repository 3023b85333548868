//! Stores: where all contexts meet. A store reads, applies, writes and commits; it decides nothing.

/// `async_trait` for a store that is compiled on both sides: its futures are `Send` natively, in a browser not.
macro_rules! maybe_send {
    ($implementation:item) => {
        #[cfg_attr(not(all(target_family = "wasm", target_os = "unknown")), async_trait::async_trait)]
        #[cfg_attr(all(target_family = "wasm", target_os = "unknown"), async_trait::async_trait(?Send))]
        $implementation
    };
}

#[cfg(feature = "test-util")]
pub mod contract;
#[cfg(feature = "test-util")]
mod faulty;
mod fenced;
#[cfg(all(feature = "web", target_family = "wasm", target_os = "unknown"))]
mod indexed_db;
mod memory;

#[cfg(feature = "test-util")]
pub use faulty::{Fault, FaultyStore};
pub use fenced::{Fence, FenceError, FencedTransaction, OpenTransaction};
#[cfg(all(feature = "web", target_family = "wasm", target_os = "unknown"))]
pub use indexed_db::IndexedDbStore;
pub use memory::{MemoryStore, NoStore};

use core::fmt::Debug;
use std::{format, string::String, vec::Vec};

use async_trait::async_trait;

use crate::executor::MaybeSendSync;
use crate::machine::{Batch, Key, Now, Reply, StoreClock, StoreError, StoreErrorKind, Tombstone};

/// A place that all contexts share, and that applies a batch of operations in one atomic transaction.
///
/// # Behavior
/// * [`transact`](Self::transact) MUST read the records of [`Batch::keys`], run [`Batch::apply`] on them once, write
///   what changed and commit, all in one transaction that no other can interleave with.
/// * It MUST answer only after the transaction was committed, so that a second connection sees it.
/// * It MUST leave alone a record that it cannot read.
/// * An error MUST say [`Applied::No`](crate::machine::Applied::No) only if that is certain.
/// * Once polled, dropping its future MAY leave the transaction running.
/// * A store MAY keep an answer back for as long as it likes: the caller has a time limit of its own.
///
/// The module `contract` (feature `test-util`) holds these rules as tests for any store.
#[cfg_attr(not(all(target_family = "wasm", target_os = "unknown")), async_trait)]
#[cfg_attr(all(target_family = "wasm", target_os = "unknown"), async_trait(?Send))]
pub trait Store: MaybeSendSync + Debug + 'static {
    /// Applies a batch in one transaction. `now` is the caller's time; see [`StoreClock`].
    ///
    /// # Errors
    /// [`StoreError`] if there is no answer.
    async fn transact(&self, batch: Batch, now: Now) -> Result<Reply, StoreError>;

    /// The keys that have a record and begin like this, in order; a store that cannot tell says so.
    ///
    /// # Errors
    /// [`StoreError`] if there is no answer.
    async fn keys(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        let message = format!("this store cannot list the keys that begin with {prefix:?}");
        Err(StoreError::permanent(StoreErrorKind::Unsupported, message))
    }

    /// Whether it takes a [`Tombstone`] from a context that the platform is about to stop.
    fn entombs(&self) -> bool {
        false
    }

    /// Writes that a context is gone, at once: without reading, without waiting, and without telling how that ended. From
    /// then on [`transact`](Self::transact) MUST load the tombstone with the records that name its holder, and write what
    /// [`Records::changed_tombstones`](crate::machine::Records::changed_tombstones) says.
    fn entomb(&self, _tombstone: Tombstone) {}

    /// The platform is about to stop this context: a transaction that waits for it meanwhile would keep all others waiting.
    /// What is under way is ended, unless it is committed without the context's help, and what did not begin yet does not
    /// begin; both answer an error.
    fn interrupt(&self) {}

    /// Lets go of connections. Later transactions answer an error of kind
    /// [`Closed`](crate::machine::StoreErrorKind::Closed).
    async fn close(&self);

    /// What the store's clock is worth.
    fn clock(&self) -> StoreClock {
        StoreClock::Observed
    }

    /// What a lease in this store outlives.
    fn durability(&self) -> Durability {
        Durability::Local
    }

    /// Where the contexts that share this store hear each other.
    fn reach(&self) -> Reach;
}

/// What outlives what: how much must be lost before a store forgets its leases, and their tokens may start again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// They are gone with the process.
    Ephemeral,
    /// They are gone with one machine's disk.
    Local,
    /// They are gone when most of several machines are.
    Quorum,
}

/// Which contexts share a store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reach {
    /// Those of this process that hold the same handle, by its number.
    Process(u64),
    /// All that open this name.
    Named(String),
}
