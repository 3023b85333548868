//! Lets a future that needs tokio's timers be awaited anywhere: on a plain thread, or in another executor.

use core::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use std::panic::{catch_unwind, resume_unwind};

use tokio::{
    runtime::Handle,
    task::{JoinError, JoinHandle},
    time::{sleep, timeout},
};

use crate::machine::{StoreError, StoreErrorKind};

/// A runtime that does not run a task for so long stands still: nobody drives it.
const STANDS_STILL: Duration = Duration::from_secs(1);

/// Does work in the tokio runtime that the store was made in. The caller's own runtime may have no timers, and tokio reveals that only by a
/// panic. If the store's runtime stands still and the caller's has timers, the work is done in the caller's. A caller without a runtime
/// waits until something drives the store's.
///
/// # Errors
/// [`StoreError`] if the store's runtime has ended, or ends before the work.
pub(super) async fn inside<T: Send + 'static>(
    runtime: &Handle,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, StoreError> {
    let here = Handle::try_current().ok();
    if here.as_ref().is_some_and(|here| here.id() == runtime.id()) {
        return Ok(work.await);
    }
    if here.is_some() && has_timers() {
        let turns = Task(runtime.spawn(async {}));
        match timeout(STANDS_STILL, turns).await {
            Ok(turned) => turned.map_err(has_ended)?,
            Err(_) => return Ok(work.await),
        }
    }
    Task(runtime.spawn(work)).await.map_err(has_ended)
}

fn has_ended(error: JoinError) -> StoreError {
    let sentence = "the tokio runtime that the store was made in has ended; make the store in one that outlives it";
    match error.try_into_panic() {
        Ok(panic) => resume_unwind(panic),
        Err(_) => StoreError::permanent(StoreErrorKind::Closed, sentence),
    }
}

/// Whether the runtime that this is called in has timers. Where panics abort, nobody can ask.
fn has_timers() -> bool {
    cfg!(panic = "unwind") && catch_unwind(|| drop(sleep(Duration::ZERO))).is_ok()
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
