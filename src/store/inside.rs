//! Lets a future that needs tokio's timers be awaited anywhere: on a plain thread, or in another executor.

use core::{
    future::{Future, ready},
    pin::{Pin, pin},
    task::{Context, Poll},
};

use tokio::runtime::Handle;

use crate::machine::{StoreError, StoreErrorKind};

/// Does work in the caller's tokio runtime, if there is one, else in the one that the store was made in.
///
/// # Errors
/// [`StoreError`] if that runtime has ended: its timers would panic.
pub(super) async fn inside<T>(runtime: &Handle, work: impl Future<Output = T>) -> Result<T, StoreError> {
    if Handle::try_current().is_ok() {
        return Ok(work.await);
    }
    let sentence = "the tokio runtime that the store was made in has ended; make the store in one that outlives it";
    let has_ended = |_| StoreError::permanent(StoreErrorKind::Closed, sentence);
    // A runtime that has ended drops its tasks.
    runtime.spawn(ready(())).await.map_err(has_ended)?;
    Ok(Inside { runtime, work: pin!(work) }.await)
}

struct Inside<'a, F> {
    runtime: &'a Handle,
    work: Pin<&'a mut F>,
}

impl<F: Future> Future for Inside<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _entered = self.runtime.enter();
        self.work.as_mut().poll(context)
    }
}
