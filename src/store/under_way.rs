//! The messages of a store that are under way. Closing the store waits for them.

use core::{convert::Infallible, mem, time::Duration};
use std::{
    boxed::Box,
    sync::{Arc, MutexGuard},
};

use futures::{
    FutureExt, StreamExt,
    channel::mpsc::{Receiver, Sender, channel},
};
use tokio::{runtime::Handle, time::timeout};

use super::inside::inside;
use crate::executor::Mutex;

/// How long closing waits for the last messages, at most.
const FAREWELL: Duration = Duration::from_secs(2);

/// The messages that have been neither sent nor lost so far. Each keeps a sender of this channel; nobody sends anything through it.
#[derive(Clone, Debug)]
pub(super) struct UnderWay(Arc<Mutex<Ends>>);

type Ends = (Sender<Infallible>, Receiver<Infallible>);

impl UnderWay {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(channel(0))))
    }

    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.0.lock()
    }

    pub(super) fn one_more(&self) -> Sender<Infallible> {
        self.ends().0.clone()
    }

    /// Waits for the messages that are under way now, but not for long. The store's runtime sends them, and may end after this call.
    pub(super) async fn settle(&self, runtime: &Handle) {
        let (ours, mut settled) = mem::replace(&mut *self.ends(), channel(0));
        drop(ours);
        let mut settled = Box::pin(async move { settled.next().await });
        // Usually no messages are under way. Then this ends at once, even if nothing drives the runtime.
        if (&mut settled).now_or_never().is_none() {
            // If the runtime has ended, the messages that were under way have ended with it.
            drop(inside(runtime, async move { timeout(FAREWELL, settled).await }).await);
        }
    }
}
