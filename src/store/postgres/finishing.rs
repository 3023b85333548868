//! Work that is finished in any case.

use core::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};
use std::boxed::Box;

use tokio::runtime::Handle;

/// Runs where it is awaited. If whoever awaits it gives up, a task of the runtime goes on with it: the connection then goes back to its
/// pool, instead of being closed in the middle of a transaction.
pub(super) struct Finishing<T: Send + 'static> {
    work: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    runtime: Handle,
}

impl<T: Send + 'static> Finishing<T> {
    pub(super) fn new(work: impl Future<Output = T> + Send + 'static, runtime: Handle) -> Self {
        Self { work: Some(Box::pin(work)), runtime }
    }
}

impl<T: Send + 'static> Future for Finishing<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Finishing<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.runtime.spawn(work);
        }
    }
}
