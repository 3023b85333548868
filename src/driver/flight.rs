//! A transaction in flight, as a task.

use core::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use super::{Driver, RUNTIME_ENDED, is_panicking};
use crate::executor::{DROPS_TASKS, MaybeSendFuture, Shared};
use crate::machine::{Input, Reply, StoreError};

/// Brings the store's answer to the machine. If the task is dropped before, because its runtime ends, it tells the machine that the outcome
/// is unknown. Otherwise the machine would wait until the store's time limit, and with it everything else that the context wants to do.
///
/// It is not an `async` block, because that would be larger.
pub(super) struct Flight {
    /// `None` once it has answered.
    pub(super) transaction: Option<MaybeSendFuture<'static, Result<Reply, StoreError>>>,
    pub(super) driver: Shared<Driver>,
    pub(super) id: u64,
}

impl Flight {
    fn land(&self, result: Result<Reply, StoreError>) {
        self.driver.handle(Input::Reply { id: self.id, result });
    }
}

impl Future for Flight {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if let Some(transaction) = &mut self.transaction {
            let result = ready!(transaction.as_mut().poll(context));
            self.transaction = None;
            self.land(result);
            self.driver.reset_alarm();
        }
        Poll::Ready(())
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !DROPS_TASKS {
            return;
        }
        // Dropped before the machine is told, because the machine may send another transaction.
        let Some(transaction) = self.transaction.take() else { return };
        drop(transaction);
        // If a panic drops this, the machine waits for the time limit: a second panic here would end the process.
        if !is_panicking() && !self.driver.executor.has_crashed() {
            self.land(Err(StoreError::unknown(RUNTIME_ENDED)));
        }
    }
}
