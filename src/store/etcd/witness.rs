//! Whether the runtime of a store still runs.

use tokio::{runtime::Handle, task::JoinHandle};

use super::super::inside::ended;
use crate::machine::StoreError;

/// A task that does nothing, and ends with its runtime.
#[derive(Debug)]
pub(super) struct Witness(JoinHandle<()>);

impl Witness {
    pub(super) fn new(runtime: &Handle) -> Self {
        Self(runtime.spawn(core::future::pending()))
    }

    /// # Errors
    /// [`StoreError`] if the runtime has ended. The connections that were opened in it are dead, and a request would wait for them in vain.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        if self.0.is_finished() { Err(ended()) } else { Ok(()) }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.0.abort();
    }
}
