//! How a context closes: it releases its leases first, and then closes its store.

use alloc::{boxed::Box, vec::Vec};
use core::{mem, time::Duration};

use super::{Core, Driver, Response};
use crate::executor::{DROPS_TASKS, MaybeSendFuture};
use crate::machine::{Input, whole_ms};
use crate::oneshot::{self, Receiver, Sender};

/// The state of the store of a context that closes.
#[derive(Clone, Copy, Default, PartialEq)]
pub(super) enum StoreEnd {
    #[default]
    Open,
    /// A call is closing it.
    Closing,
    Closed,
}

/// Who closes the store.
enum Closer<'a> {
    Me(StoreClosing<'a>),
    /// Another call, which has not ended yet.
    Another(Receiver<Response>),
}

impl Driver {
    /// Closes the context and then its store, within two store time-outs.
    pub(crate) async fn close(&self) {
        self.tell_leaks();
        let now = || self.executor.now().monotonic;
        let end = now().plus(whole_ms(self.store_timeout * 2));
        if let Some(closed) = self.close_context() {
            // Either all is released, or the driver is gone, and its leases with it.
            closed.await;
        }
        if !self.is_ours() {
            // A copy would close the connections of its parent, or wait for a thread that only the parent has.
            return;
        }
        let left = Duration::from_millis(end.since(now()));
        // The constant keeps this out of the npm package, whose store closes at once.
        let closing = if DROPS_TASKS { self.close_store_once() } else { (*self.store).close() };
        // A store that does not answer is left behind.
        let _ = self.within(left, closing).await;
    }

    /// Begins to close. The receiver ends when everything is released. `None` if that is already so.
    fn close_context(&self) -> Option<Receiver<Response>> {
        let mut core = self.core();
        if core.closed {
            return None;
        }
        let receiver = core.wait_for_closing();
        self.step(core, Input::Close);
        Some(receiver)
    }

    /// Closes the store, or waits for the call that is closing it: the caller may end the process next.
    fn close_store_once(&self) -> MaybeSendFuture<'_, ()> {
        Box::pin(async move {
            while let Some(closer) = self.closer() {
                match closer {
                    Closer::Me(mut closing) => {
                        (*self.store).close().await;
                        closing.end = StoreEnd::Closed;
                    }
                    Closer::Another(ended) => _ = ended.await,
                }
            }
        })
    }

    /// Who closes the store; `None` once it is closed.
    fn closer(&self) -> Option<Closer<'_>> {
        let mut core = self.core();
        match core.store_end {
            StoreEnd::Open => {
                core.store_end = StoreEnd::Closing;
                Some(Closer::Me(StoreClosing { driver: self, end: StoreEnd::Open }))
            }
            StoreEnd::Closing => Some(Closer::Another(core.wait_for_closing())),
            StoreEnd::Closed => None,
        }
    }
}

/// A call that is closing the store. If it is dropped before it is done, one that waits for it closes the store.
struct StoreClosing<'a> {
    driver: &'a Driver,
    end: StoreEnd,
}

impl Drop for StoreClosing<'_> {
    fn drop(&mut self) {
        let mut core = self.driver.core();
        core.store_end = self.end;
        let waiting: Vec<Sender<Response>> = mem::take(&mut core.closing);
        drop(core);
        drop(waiting);
    }
}

impl Core {
    fn wait_for_closing(&mut self) -> Receiver<Response> {
        let (sender, receiver) = oneshot::channel();
        self.closing.push(sender);
        receiver
    }
}
