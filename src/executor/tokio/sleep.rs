//! Sleeps that outlive their runtime: tokio's own timers panic once theirs has ended.

use core::{
    future::{Future, poll_fn},
    pin::pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::runtime::Handle;

/// For a manager that is closed on a plain thread, in a program that has no runtime: closing has a time limit.
pub(super) async fn sleep_without_runtime(duration: Duration) {
    let (slept, waited) = futures::channel::oneshot::channel();
    // Disconnected when this future is dropped, so that the thread does not outlive it.
    let (_dropped, wakes) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::Builder::new().name("leasehold sleeps".into());
    let spawned = thread.spawn(move || {
        // It times out, unless the future is dropped before.
        let _ = wakes.recv_timeout(duration);
        // Nobody may be waiting any more.
        let _ = slept.send(());
    });
    if spawned.is_ok() {
        // It is sent before the thread ends.
        let _ = waited.await;
    }
}

/// Whether the caller runs in this runtime.
fn runs_in(runtime: &Handle) -> bool {
    Handle::try_current().is_ok_and(|current| current.id() == runtime.id())
}

/// Sleeps while it is polled inside this runtime, which lives as long as it polls. Returns false as soon as it is polled elsewhere, because
/// tokio's timers panic once their runtime has ended.
pub(super) async fn sleep_while_in(runtime: &Handle, left: &impl Fn() -> Duration) -> bool {
    if !runs_in(runtime) {
        return false;
    }
    let mut sleep = pin!(tokio::time::sleep(left()));
    // The closure owns what it uses. If it borrowed, the future would store the borrowed values, too.
    let sleep_on = move |context: &mut Context<'_>| match runs_in(runtime) {
        true => sleep.as_mut().poll(context).map(|()| true),
        false => Poll::Ready(false),
    };
    poll_fn(sleep_on).await
}

/// For a thread of no runtime, which may outlive this one. Tokio's own timers panic when their runtime ends; this sleep ends, too.
pub(super) async fn sleep_in(runtime: &Handle, left: impl FnOnce() -> Duration + Send + 'static) {
    let (mut slept, waited) = futures::channel::oneshot::channel::<()>();
    runtime.spawn(async move {
        let sleep = pin!(tokio::time::sleep(left()));
        futures::future::select(sleep, slept.cancellation()).await;
    });
    // Whether the time is over or the runtime: the sender is gone.
    let _ = waited.await;
}
