//! Transactions that are not ours, in a database that holds records: what a user writes in one can be fenced.

use core::future::Future;
use std::string::String;

use super::Reach;
use crate::executor::{MaybeSendSync, Shared};
use crate::machine::{LostReason, Records, StoreError, StoreId, Ticket};

/// An open transaction of the user's, in which [`LeaseGuard::fence`](crate::LeaseGuard::fence) checks a lease.
///
/// # Behavior
/// * [`check`](Self::check) MUST refuse a transaction that cannot write, does not reach the records, or is over; and one
///   in a store of another [reach](Fence::reach).
/// * It MUST read the store's id and the records of the [ticket's](Fence::ticket) batch in this transaction, before
///   whatever the caller asks of it next, and hand them to [`Fence::judge`], whatever else was asked of the transaction
///   meanwhile.
/// * Whatever is refused MUST NOT be committed. Where it cannot be stopped any more, the answer MUST say so.
/// * The records MUST stay locked until the transaction ends, so that nobody is granted the lease in between.
/// * What was judged current MUST be written, if it changed, before the answer comes. The caller MUST be able to go on in
///   the transaction when it has the answer.
/// * [`Fence::committed`] MUST be called once the transaction is committed, and only then. Where nobody but the caller
///   knows, the answer is a [`Fenced`], and the caller says so.
/// * Either the check begins at the call, or its answer keeps the transaction borrowed, so that nothing else can be asked of
///   the transaction before the answer was awaited or dropped.
pub trait FencedTransaction {
    /// What a check that passed gives: a [`Fenced`], or `()` where the transaction itself tells when it is committed.
    type Passed;

    /// What [`check`](Self::check) answers.
    type Answer: Future<Output = Result<Self::Passed, FenceError>>;

    /// Checks the lease.
    fn check(self, fence: Shared<dyn Fence>) -> Self::Answer;

    /// Aborts the transaction if that is still possible, and answers with this error: the lease is lost or released already.
    fn refuse(self, why: FenceError) -> Self::Answer;
}

/// What a transaction is checked for.
pub trait Fence: MaybeSendSync {
    /// Where the records are.
    fn reach(&self) -> Reach;

    /// What is checked.
    fn ticket(&self) -> &Ticket;

    /// Applies the batch to what the transaction found, and says whether it may commit.
    ///
    /// # Errors
    /// [`FenceError::Lost`], or [`FenceError::Released`] if the guard was released in the meantime.
    fn judge(&self, store: Option<StoreId>, records: &mut Records) -> Result<(), FenceError>;

    /// That the lease is lost, or its guard was released, if that is known by now.
    fn loss(&self) -> Option<FenceError>;

    /// The transaction is open, until it is [over](Self::over). It is to be aborted if the context is suspended: it would
    /// block all others until the context goes on.
    fn open(&self, transaction: Shared<dyn OpenTransaction>);

    /// The transaction was committed, and what it renewed is renewed.
    fn committed(&self);

    /// The transaction is over, whether committed or not.
    fn over(&self);
}

/// A lease was found current in a transaction, which its caller will commit.
///
/// After [`fence_and_renew`](crate::LeaseGuard::fence_and_renew) say [`committed`](Self::committed) once it is: only then
/// does the renewal count. After a plain [`fence`](crate::LeaseGuard::fence) nothing depends on it. It may be dropped.
pub struct Fenced(Shared<dyn Fence>);

impl Fenced {
    /// For authors of a [`FencedTransaction`]: the fence passed.
    pub fn passed(fence: Shared<dyn Fence>) -> Self {
        Self(fence)
    }

    /// The transaction was committed, and no savepoint was rolled back since the fence. If you say so and it is not true, this
    /// context believes in a lease that it did not renew.
    pub fn committed(self) {
        self.0.committed();
    }
}

impl core::fmt::Debug for Fenced {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_tuple("Fenced").field(&self.0.ticket().batch.keys()).finish()
    }
}

/// A transaction that may have to end before its time.
pub trait OpenTransaction: MaybeSendSync {
    /// Ends it without a commit.
    fn abort(&self);
}

/// Why a transaction was not fenced. Nothing of it is written, unless it says so.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FenceError {
    /// The lease is lost.
    Lost(LostReason),
    /// The guard was released before.
    Released,
    /// The transaction is none that can be fenced; the sentence names the remedy.
    Misuse(String),
    /// The transaction ended before the lease was checked.
    Store(StoreError),
}

impl core::fmt::Display for FenceError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Lost(reason) => write!(out, "the lease is lost: {}", reason.name()),
            Self::Released => out.write_str("the lease was released; acquire another one"),
            Self::Misuse(sentence) => out.write_str(sentence),
            Self::Store(error) => error.fmt(out),
        }
    }
}

impl core::error::Error for FenceError {}
