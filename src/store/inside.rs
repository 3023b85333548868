//! Lets a future that needs tokio's timers be awaited anywhere: on a plain thread, or in another executor.

use core::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};
use std::panic::resume_unwind;

use tokio::{
    runtime::Handle,
    task::{JoinError, JoinHandle},
};

use crate::machine::{StoreError, StoreErrorKind};

/// Does work in the tokio runtime that the store was made in; something must drive that runtime meanwhile. The caller's own runtime is
/// not used, because it may have no timers, and tokio reveals that only by a panic.
///
/// # Errors
/// [`StoreError`] if the store's runtime has ended, or ends before the work.
pub(super) async fn inside<T: Send + 'static>(
    runtime: &Handle,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, StoreError> {
    if Handle::try_current().is_ok_and(|current| current.id() == runtime.id()) {
        return Ok(work.await);
    }
    let sentence = "the tokio runtime that the store was made in has ended; make the store in one that outlives it";
    let has_ended = |error: JoinError| match error.try_into_panic() {
        Ok(panic) => resume_unwind(panic),
        Err(_) => StoreError::permanent(StoreErrorKind::Closed, sentence),
    };
    Task(runtime.spawn(work)).await.map_err(has_ended)
}

/// A task that ends when nobody awaits it any more.
struct Task<T>(JoinHandle<T>);

impl<T> Future for Task<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
