//! Stores, which all contexts share. A store reads, applies, writes and commits; it makes no decision.

/// `async_trait` for a store that is compiled natively and for browsers. Its futures are `Send` natively, but not in a browser.
macro_rules! maybe_send {
    ($implementation:item) => {
        #[cfg_attr(not(all(target_family = "wasm", target_os = "unknown")), async_trait::async_trait)]
        #[cfg_attr(all(target_family = "wasm", target_os = "unknown"), async_trait::async_trait(?Send))]
        $implementation
    };
}

#[cfg(all(
    any(feature = "store-postgres", feature = "store-postgres-sqlx", feature = "store-redis", feature = "store-etcd"),
    not(all(target_family = "wasm", target_os = "unknown"))
))]
mod backoff;
#[cfg(feature = "test-util")]
pub mod contract;
#[cfg(all(feature = "store-etcd", not(all(target_family = "wasm", target_os = "unknown"))))]
mod etcd;
#[cfg(feature = "test-util")]
mod faulty;
mod fenced;
#[cfg(all(
    any(feature = "store-sqlite-unbundled", feature = "store-redis", feature = "store-etcd"),
    not(all(target_family = "wasm", target_os = "unknown"))
))]
mod idle;
#[cfg(all(feature = "web", target_family = "wasm", target_os = "unknown"))]
mod indexed_db;
#[cfg(all(
    any(feature = "store-postgres", feature = "store-postgres-sqlx", feature = "store-redis", feature = "store-etcd"),
    not(all(target_family = "wasm", target_os = "unknown"))
))]
mod inside;
mod memory;
mod pointers;
#[cfg(all(
    any(feature = "store-postgres", feature = "store-postgres-sqlx"),
    not(all(target_family = "wasm", target_os = "unknown"))
))]
mod postgres;
#[cfg(all(feature = "store-redis", not(all(target_family = "wasm", target_os = "unknown"))))]
mod redis;
#[cfg(all(
    any(feature = "store-redis", feature = "store-etcd"),
    not(all(target_family = "wasm", target_os = "unknown"))
))]
mod reserving;
#[cfg(all(feature = "store-sqlite-unbundled", not(all(target_family = "wasm", target_os = "unknown"))))]
mod sqlite;
#[cfg(all(
    any(feature = "store-postgres", feature = "store-postgres-sqlx", feature = "store-redis", feature = "store-etcd"),
    not(all(target_family = "wasm", target_os = "unknown"))
))]
mod sweep;
#[cfg(all(
    any(feature = "store-postgres", feature = "store-postgres-sqlx", feature = "store-redis", feature = "store-etcd"),
    not(all(target_family = "wasm", target_os = "unknown"))
))]
mod tls;
#[cfg(all(
    any(feature = "store-redis", feature = "store-etcd"),
    not(all(target_family = "wasm", target_os = "unknown"))
))]
mod under_way;
mod url;

#[cfg(all(feature = "store-redis", not(all(target_family = "wasm", target_os = "unknown"))))]
pub use self::redis::{RedisScript, RedisServers, RedisStore};
#[cfg(all(feature = "store-etcd", not(all(target_family = "wasm", target_os = "unknown"))))]
pub use etcd::{EtcdCompare, EtcdFence, EtcdStore};
#[cfg(feature = "test-util")]
pub use faulty::{Fault, FaultyStore};
pub use fenced::{Fence, FenceError, Fenced, FencedTransaction, OpenTransaction};
#[cfg(all(feature = "web", target_family = "wasm", target_os = "unknown"))]
pub use indexed_db::IndexedDbStore;
#[cfg(all(feature = "js", target_family = "wasm", target_os = "unknown"))]
pub(crate) use indexed_db::fence::Judged;
pub use memory::{MemoryStore, NoStore};
#[cfg(all(
    any(feature = "store-postgres", feature = "store-postgres-sqlx"),
    not(all(target_family = "wasm", target_os = "unknown"))
))]
pub use postgres::{PostgresPool, PostgresStore, PostgresStoreBuilder};
// The first of the two implies the second. It is named here because the compiler shows this line if neither is enabled.
#[cfg(all(
    any(feature = "store-sqlite", feature = "store-sqlite-unbundled"),
    not(all(target_family = "wasm", target_os = "unknown"))
))]
pub use sqlite::SqliteStore;
pub use url::{check_url, from_url};

use core::{fmt::Debug, time::Duration};
use std::{format, string::String, vec::Vec};

use async_trait::async_trait;

use crate::executor::{MaybeSendSync, Shared, WeakShared};
use crate::machine::{Batch, Key, Now, Reply, SessionId, StoreClock, StoreError, StoreErrorKind};
use crate::signal::Signals;

/// A place that all contexts share, and that applies a batch of operations in one atomic transaction.
///
/// # Behavior
/// * [`transact`](Self::transact) MUST load the store's own row, the records of [`Batch::keys`] and the sessions that
///   [`Records::sessions_of`](crate::machine::Records::sessions_of) names, run [`Batch::apply`] on them once, write or delete the rows of
///   [`Records::take_changed`](crate::machine::Records::take_changed) and commit, all in one transaction that no other can interleave with.
///   It MAY use [`Batch::apply_alone`] instead, under the conditions there.
/// * It MUST NOT expire a row by itself, and MUST NOT read one from a replica: a session whose row is gone has ended.
/// * It MUST answer only after the transaction was committed, so that a second connection sees it.
/// * It MUST NOT change a record that it cannot read.
/// * An error MUST say [`Applied::No`](crate::machine::Applied::No) only if that is certain.
/// * Once polled, dropping its future MAY leave the transaction running.
/// * A store MAY delay an answer for as long as it likes: the caller has a time limit of its own.
/// * [`transact`](Self::transact) MAY expect to be polled only by the executor's tasks, unless
///   [`polls_inline`](Self::polls_inline) says otherwise.
///
/// The module `contract` (feature `test-util`) tests these rules for any store.
///
/// A `Box<dyn Store>` is a store, too; and so is an `Arc` of a store, or in a browser an `Rc`.
///
/// A store that wraps another one must forward every method: a default would hide what the inner store provides, such as its signals. (The
/// crate's `NoStore` leaves out those that serve only other managers.)
///
/// A store is written with `#[async_trait]`, in a browser with `#[async_trait(?Send)]`. A store that is compiled for both
/// says
/// ```text
/// #[cfg_attr(not(all(target_family = "wasm", target_os = "unknown")), async_trait::async_trait)]
/// #[cfg_attr(all(target_family = "wasm", target_os = "unknown"), async_trait::async_trait(?Send))]
/// ```
#[cfg_attr(not(all(target_family = "wasm", target_os = "unknown")), async_trait)]
#[cfg_attr(all(target_family = "wasm", target_os = "unknown"), async_trait(?Send))]
#[diagnostic::on_unimplemented(note = "a URL is opened by `LeaseManager::from_url(url, executor).await`")]
pub trait Store: MaybeSendSync + Debug + 'static {
    /// Applies a batch in one transaction. `now` is the caller's time; see [`StoreClock`].
    ///
    /// After `limit` the caller treats the outcome as unknown and tries again. A store over a network sets it as the time limit of its
    /// statements, so that nothing that the caller gave up is applied much later.
    ///
    /// # Errors
    /// [`StoreError`] if there is no answer.
    async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError>;

    /// Applies a batch as [`transact`](Self::transact) does, but synchronously: for a store that never waits. It is called
    /// on the thread that makes a request or drops a guard, inside of a runtime or outside.
    ///
    /// If this returns `None`, the default, it has changed nothing, and the caller calls `transact`.
    fn transact_at_once(&self, _batch: &Batch, _now: Now) -> Option<Result<Reply, StoreError>> {
        None
    }

    /// The keys with this prefix that somebody holds or waits for, in order. A store that cannot list keys answers `Unsupported`.
    ///
    /// It MUST list each key that is in use during the whole call, and each key whose record it cannot read: whoever looks at that one
    /// gets the error. It MAY list others, since the caller looks at each key. But a key costs a transaction, so leave out those whose
    /// records are [idle](crate::machine::Record::is_idle).
    ///
    /// # Errors
    /// [`StoreError`] if there is no answer.
    async fn keys(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        let message = format!("this store cannot list the keys that begin with {prefix:?}");
        Err(StoreError::permanent(StoreErrorKind::Unsupported, message))
    }

    /// Whether [`abandon`](Self::abandon) deletes the row of a session although the platform stops this context right after the call.
    fn abandons(&self) -> bool {
        false
    }

    /// Starts to delete the row of a session that this context has left. It returns at once, without reading and without reporting the
    /// outcome. It is called when the platform is about to stop a context over a store that [`abandons`](Self::abandons), and when no
    /// transaction has deleted the row. If it does nothing, the session ends by its silence.
    fn abandon(&self, _session: SessionId) {}

    /// The signals that come with this store, for one context: its messages, and its beacons. A manager calls this once, and uses them
    /// unless its user [chose others](crate::LeaseManagerBuilder::signals). With `None`, the default, it uses the platform's own for stores
    /// of this [reach](Self::reach).
    fn signals(&self) -> Option<Shared<dyn Signals>> {
        None
    }

    /// Called before the platform stops us, because an open transaction of a stopped context would block all others. Abort
    /// open transactions, except those that will commit unaided, and start no new ones; both report an error.
    fn interrupt(&self) {}

    /// Notifies the watcher when the store has gone for good although nobody [closed](Self::close) it, so that the context's leases turn
    /// invalid at once, not only when the next heartbeat fails. A store that cannot go away, or cannot notice, keeps the default.
    fn watch(&self, _watcher: WeakShared<dyn StoreWatcher>) {}

    /// Closes the connections. Later transactions report an error of kind
    /// [`Closed`](crate::machine::StoreErrorKind::Closed).
    async fn close(&self);

    /// Whether a server that takes over after a failover may lack the latest writes, although the store confirmed them.
    ///
    /// A context over such a store remembers its latest releases, and repeats them after
    /// [`Notice::Reconnected`](crate::signal::Notice::Reconnected). The default is false. Keep it if transactions wait for each other's
    /// locks: a repeated release would wait for the key's next holder.
    fn loses_writes_in_failover(&self) -> bool {
        false
    }

    /// Whether a transaction may be polled on the thread that makes a request or drops a guard, at that moment and outside of any runtime.
    /// A store that answers at its first poll, as one in memory does, then needs no task; and in a browser the last transaction of a page
    /// that is about to stop still begins.
    ///
    /// The default is false: each transaction is a task of the executor. A store that uses a runtime (sockets, timers,
    /// blocking threads) must keep that, since its first poll would panic on a thread without one.
    fn polls_inline(&self) -> bool {
        false
    }

    /// Whether the store's clock may decide that a holder is silent.
    fn clock(&self) -> StoreClock {
        StoreClock::Observed
    }

    /// What a lease in this store survives.
    fn durability(&self) -> Durability {
        Durability::Local
    }

    /// Which contexts share this store, and so receive each other's signals.
    fn reach(&self) -> Reach;
}

/// A listener of a store, which is notified when the store is gone for good, or when a connection to it has ended.
pub trait StoreWatcher: MaybeSendSync {
    /// The store is gone. From now on [`transact`](Store::transact) answers a permanent error; a session that is
    /// [abandoned](Store::abandon) before this returns may still be deleted.
    fn store_gone(&self);

    /// A connection ended, perhaps because somebody is deleting the store. The store opens another connection for its next transaction, and
    /// the manager's leases are in doubt until that transaction has answered.
    fn connection_ended(&self);
}

/// What must be lost before a store loses its leases, so that their tokens may start again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// The leases are lost with the process.
    Ephemeral,
    /// The leases are lost with one machine's disk.
    Local,
    /// The leases are lost when most of several machines are lost.
    Quorum,
}

/// Which contexts share a store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reach {
    /// The contexts of this process that hold the same handle, by its number.
    Process(u64),
    /// All contexts of this machine, in any process, that name this directory: for a store in a file. Signals between them use the
    /// directory, which is created when it is first needed.
    Machine(String),
    /// All contexts that open this name.
    Named(String),
}
