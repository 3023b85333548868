//! Work that is finished in any case.

use core::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};
use std::boxed::Box;

use tokio::runtime::Handle;

/// Runs where it is awaited. If the caller stops awaiting it, a task of the runtime continues it. So the connection goes back to its pool,
/// instead of being closed in the middle of a transaction.
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
        // Work that panics is over: no task goes on with it.
        let Some(mut work) = self.work.take() else { return Poll::Pending };
        let polled = work.as_mut().poll(context);
        if polled.is_pending() {
            self.work = Some(work);
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

#[cfg(test)]
mod tests {
    use core::{future::pending, task::Waker};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use tokio::runtime::Runtime;

    use super::*;

    fn tasks_after_one_poll(work: impl Future<Output = ()> + Send + 'static) -> usize {
        let runtime = Runtime::new().unwrap();
        let mut finishing = Finishing::new(work, runtime.handle().clone());
        let mut poll = || Pin::new(&mut finishing).poll(&mut Context::from_waker(Waker::noop())).is_ready();
        let _ = catch_unwind(AssertUnwindSafe(&mut poll));
        drop(finishing);
        runtime.metrics().num_alive_tasks()
    }

    #[test]
    fn a_task_goes_on_with_what_was_given_up_only() {
        assert_eq!(tasks_after_one_poll(pending()), 1);
        assert_eq!(tasks_after_one_poll(async {}), 0);
        assert_eq!(tasks_after_one_poll(async { panic!("as its author wants it") }), 0);
    }

    #[test]
    fn it_may_be_dropped_after_its_runtime() {
        let runtime = Runtime::new().unwrap();
        let finishing = Finishing::new(pending::<()>(), runtime.handle().clone());
        drop(runtime);
        drop(finishing);
    }
}
