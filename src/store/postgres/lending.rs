//! Lends connections of any pool to a few transactions at once.

use core::time::Duration;
use std::boxed::Box;

use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

use super::carrier::{Lender, Loan, exhausted, pool_closed};
use crate::machine::StoreError;

/// The most transactions that a context has in flight, not counting those that it gave up.
pub(super) const SIZE: usize = 4;

/// How many of the connections are for transactions that may wait for records. One is left for the heartbeats of all contexts that share
/// the store, unless the pool has no second one.
fn may_wait(most: usize) -> usize {
    (most.min(SIZE).saturating_sub(1)).max(1)
}

/// What a connection is lent for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Errand {
    /// A transaction that locks rows of sessions alone.
    Heartbeat,
    /// Anything else: it may wait until somebody's fence ends.
    Any,
}

pub(super) struct Lending {
    lender: Box<dyn Lender>,
    places: Semaphore,
    may_wait: Semaphore,
}

/// A connection, and the permits that it takes.
pub(super) struct Lent<'a> {
    pub(super) loan: Box<dyn Loan + 'a>,
    /// Whether it was idle before, so that it may have been cut meanwhile.
    pub(super) used: bool,
    _place: SemaphorePermit<'a>,
    _may_wait: Option<SemaphorePermit<'a>>,
}

impl Lending {
    pub(super) fn new(lender: Box<dyn Lender>) -> Self {
        let may_wait = Semaphore::new(may_wait(lender.most()));
        Self { lender, places: Semaphore::new(SIZE), may_wait }
    }

    /// The pool.
    pub(super) fn lender(&self) -> &dyn Lender {
        &*self.lender
    }

    /// Waits for a connection, but not for ever.
    pub(super) async fn lend(&self, errand: Errand, limit: Duration) -> Result<Lent<'_>, StoreError> {
        let late = |_| Err(exhausted(self.lender.name(), self.lender.remedy(), limit));
        timeout(limit, self.wait(errand)).await.unwrap_or_else(late)
    }

    async fn wait(&self, errand: Errand) -> Result<Lent<'_>, StoreError> {
        // They are never closed.
        let closed = |_| pool_closed(self.lender.name());
        let may_wait = match errand {
            Errand::Heartbeat => None,
            Errand::Any => Some(self.may_wait.acquire().await.map_err(closed)?),
        };
        let place = self.places.acquire().await.map_err(closed)?;
        let (loan, used) = self.lender.lend().await?;
        Ok(Lent { loan, used, _place: place, _may_wait: may_wait })
    }
}

impl Lent<'_> {
    /// Gives the connection back, which is in no transaction.
    pub(super) fn give_back(self) {
        self.loan.give_back();
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, vec::Vec};

    use async_trait::async_trait;
    use futures::FutureExt as _;

    use super::*;
    use crate::store::postgres::carrier::{Answers, Carrier, Failure, Round};

    /// A pool of this many connections, which only lends them.
    struct Pool(usize, Arc<Semaphore>);

    struct Connection<'a>(#[expect(dead_code, reason = "it is given back when this is dropped")] SemaphorePermit<'a>);

    #[async_trait]
    impl Carrier for Connection<'_> {
        async fn carry(&mut self, _: &Round) -> Result<Answers, Failure> {
            Ok(Answers::default())
        }
    }

    impl Loan for Connection<'_> {
        fn give_back(self: Box<Self>) {}
    }

    #[async_trait]
    impl Lender for Pool {
        async fn lend(&self) -> Result<(Box<dyn Loan + '_>, bool), StoreError> {
            let permit = self.1.acquire().await.map_err(|_| pool_closed(self.name()))?;
            Ok((Box::new(Connection(permit)), false))
        }

        fn name(&self) -> &'static str {
            "the test's pool"
        }

        fn most(&self) -> usize {
            self.0
        }
    }

    fn over(connections: usize) -> Lending {
        Lending::new(Box::new(Pool(connections, Arc::new(Semaphore::new(connections)))))
    }

    /// How many transactions that may wait for records are under way at once.
    fn at_once(lending: &Lending) -> Vec<Lent<'_>> {
        let next = || lending.wait(Errand::Any).now_or_never()?.ok();
        core::iter::from_fn(next).collect()
    }

    #[test]
    fn a_heartbeat_finds_a_connection_while_all_other_transactions_wait() {
        for (connections, others) in [(2, 1), (3, 2), (4, 3), (100, 3)] {
            let lending = over(connections);
            let waiting = at_once(&lending);
            assert_eq!(waiting.len(), others, "of {connections}");
            let beat = lending.wait(Errand::Heartbeat).now_or_never();
            assert!(beat.is_some_and(|lent| lent.is_ok()), "of {connections}");
        }
    }

    /// It serves all transactions in turn: if it were kept for heartbeats, no lease would ever be granted.
    #[test]
    fn the_only_connection_of_a_pool_is_not_kept_for_heartbeats() {
        let lending = over(1);
        let waiting = at_once(&lending);
        assert_eq!(waiting.len(), 1);
        assert!(lending.wait(Errand::Heartbeat).now_or_never().is_none(), "there is no second one");
        drop(waiting);
        assert!(lending.wait(Errand::Heartbeat).now_or_never().is_some_and(|lent| lent.is_ok()));
    }
}
