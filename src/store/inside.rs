//! The tokio runtime that a store is made in, and how a plain thread or another executor awaits the store's work.

use core::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use std::{
    format,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    panic::{catch_unwind, resume_unwind},
    string::String,
};

use tokio::{
    runtime::Handle,
    task::{JoinError, JoinHandle},
    time::timeout,
};

use crate::executor::timers_run_here;
use crate::machine::{StoreError, StoreErrorKind};

/// A runtime that has not run a new task after this time counts as stalled: nothing drives it.
const STANDS_STILL: Duration = Duration::from_secs(1);

/// The runtime that this is called in, for a store that connects to `server` there. Tokio tells only by a panic that a runtime lacks
/// something. This function catches the panic, but the panic hook has printed tokio's message by then. Where panics abort, the
/// process ends.
///
/// # Errors
/// [`StoreError`] if there is no runtime here, or one without timers or I/O.
pub(super) fn runtime_for(server: &str) -> Result<Handle, StoreError> {
    let refused = |sentence: String| StoreError::permanent(StoreErrorKind::Unsupported, sentence);
    let runtime = Handle::try_current().map_err(|_| {
        refused(format!(
            "there is no tokio runtime here to connect to {server} in; call this inside one, with I/O and timers enabled"
        ))
    })?;
    if !timers_run_here() {
        return Err(lacks("timers", server));
    }
    check_io(server)?;
    Ok(runtime)
}

/// Checks the runtime that this is called in before a connection to `server` is opened there. The store may have been made in another one.
///
/// # Errors
/// [`StoreError`] if the runtime that this is called in has no I/O, so that the connection would panic.
pub(super) fn check_io(server: &str) -> Result<(), StoreError> {
    if io_runs_here() { Ok(()) } else { Err(lacks("I/O", server)) }
}

fn lacks(what: &str, server: &str) -> StoreError {
    let sentence = format!(
        "the tokio runtime here has no {what}, which a connection to {server} needs; call enable_all() on its Builder"
    );
    StoreError::permanent(StoreErrorKind::Unsupported, sentence)
}

/// Whether the runtime that this is called in has I/O. If it has none, and panics abort, the process ends.
pub(super) fn io_runs_here() -> bool {
    catch_unwind(open_a_socket).is_ok()
}

/// Panics if the runtime has no I/O. If the system allows no such socket, this shows nothing, and the connection shows what is missing.
fn open_a_socket() {
    let places = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), SocketAddr::from((Ipv6Addr::LOCALHOST, 0))];
    if let Ok(socket) = UdpSocket::bind(&places[..])
        && socket.set_nonblocking(true).is_ok()
    {
        drop(tokio::net::UdpSocket::from_std(socket));
    }
}

/// Does work in the tokio runtime that the store was made in. The caller's own runtime may have no timers, and tokio reveals that only by a
/// panic. If the store's runtime is stalled and the caller's has timers, the work is done in the caller's. Any other caller waits until
/// something drives the store's runtime, and so does every caller where panics abort.
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
    if here.is_some() && cfg!(panic = "unwind") && timers_run_here() {
        let turns = Task(runtime.spawn(async {}));
        match timeout(STANDS_STILL, turns).await {
            Ok(turned) => turned.map_err(has_ended)?,
            Err(_) => return Ok(work.await),
        }
    }
    Task(runtime.spawn(work)).await.map_err(has_ended)
}

fn has_ended(error: JoinError) -> StoreError {
    match error.try_into_panic() {
        Ok(panic) => resume_unwind(panic),
        Err(_) => ended(),
    }
}

/// What a store says whose runtime has ended.
pub(super) fn ended() -> StoreError {
    let sentence = "the tokio runtime that the store was made in has ended; make the store in one that outlives it";
    StoreError::permanent(StoreErrorKind::Closed, sentence)
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
