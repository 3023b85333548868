//! The user's own transactions in a database that keeps leases: their writes can be fenced.

use core::future::Future;
use std::string::String;

use super::Reach;
use crate::executor::{DROPS_TASKS, MaybeSendSync, Shared};
use crate::machine::{LostReason, Quoted, Records, StoreError, StoreId, Ticket};

/// The user's own open transaction, in which [`LeaseGuard::fence`](crate::LeaseGuard::fence) checks a lease.
///
/// # Behavior
/// * [`check`](Self::check) MUST refuse a transaction that cannot write, does not reach the records, is over, or belongs
///   to a store of another [reach](Fence::reach).
/// * It MUST read the store's id and the records of the [ticket's](Fence::ticket) batch in this transaction, before any later operation of
///   the caller, and pass them to [`Fence::judge`], whatever else the caller does with the transaction meanwhile.
/// * A refused transaction MUST NOT be committed. If it can no longer be stopped, the answer MUST say so.
/// * The records MUST stay locked until the transaction ends, so that nobody is granted the lease in between.
/// * If the lease is current, rows that the judgement changed MUST be written before the answer comes. The caller MUST be able
///   to continue the transaction when it has the answer.
/// * [`Fence::committed`] MUST be called once the transaction is committed, and only then. If only the caller knows
///   of the commit, the answer is a [`Fenced`], on which the caller calls [`committed`](Fenced::committed).
/// * [`Fence::over`] SHOULD be called once it is known that the transaction was not committed, and never will be.
/// * Either the check begins at the call, or its answer borrows the transaction, so that the transaction cannot be used before the answer
///   was awaited or dropped.
#[diagnostic::on_unimplemented(
    note = "pass the open transaction itself: `&mut transaction` of tokio_postgres, deadpool_postgres or sqlx, `&transaction` of rusqlite; \
            for etcd, pass the store (`&*store` if it is in an `Arc`); for Redis, a script made by `RedisStore::script`",
    note = "leasehold's feature for that driver must be on, and the program must use the version of the driver that leasehold uses"
)]
pub trait FencedTransaction {
    /// What a passed check returns: for example a [`Fenced`], or `()` if the transaction itself reports its commit.
    type Passed;

    /// Whether every transaction that begins after the call of [`check`](Self::check), and that reads or writes the same data, waits until
    /// this one ends, as in IndexedDB. If not, the context assumes that the transaction may be open, or may even arrive, after its guard
    /// has ended, until [`Fence::committed`] or [`Fence::over`] is called. Until then the context does not pass the guard's lease on: the
    /// store grants the next one.
    const IN_ORDER: bool = false;

    /// The future that [`check`](Self::check) returns.
    type Answer: Future<Output = Result<Self::Passed, FenceError>>;

    /// Checks the lease.
    fn check(self, fence: Shared<dyn Fence>) -> Self::Answer;

    /// Aborts the transaction if that is still possible, and answers with this error, because the lease is already lost or released.
    fn refuse(self, why: FenceError) -> Self::Answer;
}

/// The check of a lease, which a [`FencedTransaction`] runs.
pub trait Fence: MaybeSendSync {
    /// The reach of the store that keeps the lease.
    fn reach(&self) -> Reach;

    /// What the transaction must check.
    fn ticket(&self) -> &Ticket;

    /// Applies the batch to the records that the transaction read, and says whether it may commit. `store` is the id in the store's own
    /// row, or `None` if the store has no such row, or one that cannot be read.
    ///
    /// # Errors
    /// [`FenceError::Lost`], or [`FenceError::Released`] if the guard was released in the meantime and nobody called
    /// [`open`](Self::open).
    fn judge(&self, store: Option<StoreId>, records: &mut Records) -> Result<(), FenceError>;

    /// `Some` if it is already known that the lease is lost, or that its guard was released.
    fn loss(&self) -> Option<FenceError>;

    /// Reports an open transaction, until it is [over](Self::over). It is aborted if the context is suspended: otherwise it would block
    /// all others until the context resumes.
    ///
    /// Call this only if the database runs the transaction before any conflicting one that is created later, as IndexedDB does. Then
    /// [`judge`](Self::judge) passes even if the guard was released meanwhile, because the release runs after the transaction.
    fn open(&self, transaction: Shared<dyn OpenTransaction>);

    /// Reports that the transaction was committed, so that its renewal counts.
    fn committed(&self);

    /// Reports that the transaction is over, whether it was committed or not.
    fn over(&self);
}

/// The answer of a fence that passed: the lease is current in the transaction, which you may now commit.
///
/// Call [`committed`](Self::committed) once the transaction is committed. Only then does the renewal of a
/// [`fence_and_renew`](crate::LeaseGuard::fence_and_renew) count, and only then does the manager know that the transaction is over. If the
/// guard ends before that call, the manager does not pass the lease to its own next request. It gives the lease back, so that the store
/// grants the next lease after the transaction. If you drop this instead of calling `committed`, that is as safe, but passing the lease on
/// then costs a transaction of the store.
#[must_use = "call `committed` after the commit: the manager then knows that the transaction is over"]
pub struct Fenced(Shared<dyn Fence>);

impl Fenced {
    /// For authors of a [`FencedTransaction`]: the answer when the fence has passed.
    pub fn passed(fence: Shared<dyn Fence>) -> Self {
        Self(fence)
    }

    /// Reports that the transaction was committed, and that no savepoint was rolled back since the fence. If that is not true, this
    /// context believes that it renewed a lease that it did not renew.
    pub fn committed(self) {
        self.0.committed();
    }

    /// Reports that the transaction was rolled back, so it is over, too, and nothing of it counts. If you drop this instead, that is as
    /// safe, and costs what a missing [`committed`](Self::committed) costs.
    pub fn rolled_back(self) {
        self.0.over();
    }
}

impl core::fmt::Debug for Fenced {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_tuple("Fenced").field(&self.0.ticket().batch.keys()).finish()
    }
}

/// A transaction that may have to be aborted.
pub trait OpenTransaction: MaybeSendSync {
    /// Aborts the transaction.
    fn abort(&self);
}

/// Why a transaction was not fenced. Nothing of it is written, unless the error says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FenceError {
    /// The lease is lost. Acquire a new one, which has a larger token.
    Lost {
        /// The key.
        key: String,
        /// How it was lost.
        reason: LostReason,
    },
    /// The guard was already released.
    Released {
        /// The key.
        key: String,
    },
    /// The transaction cannot be fenced; the message names the remedy.
    Misuse(String),
    /// The store failed, or the transaction ended, before the lease was checked.
    Store(StoreError),
}

impl core::fmt::Display for FenceError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            // The constant keeps the words out of the npm package, which shows the name.
            Self::Lost { key, reason } if DROPS_TASKS => reason.explain(key, out),
            Self::Lost { key, reason } => {
                write!(out, "the lease of the key {} is lost: {}; acquire another one", Quoted(key), reason.name())
            }
            Self::Released { key } => {
                write!(out, "the lease of the key {} was released; acquire another one", Quoted(key))
            }
            Self::Misuse(sentence) => out.write_str(sentence),
            Self::Store(error) => error.fmt(out),
        }
    }
}

impl core::error::Error for FenceError {}
