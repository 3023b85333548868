//! A copy of a context, in a process that a fork made.

use super::Driver;
use crate::executor::this_process;
use crate::machine::{StoreError, StoreErrorKind};

const FORKED: &str = "this process was forked after the lease manager was built, and the leases belong to its parent; build a manager \
    after the fork";

impl Driver {
    /// Refuses the store to a copy of this context that a fork has made. A copy has its parent's session and connections: each process
    /// would read answers meant for the other, and both would hold what one of them was granted.
    pub(crate) fn check_process(&self) -> Result<(), StoreError> {
        self.is_ours().then_some(()).ok_or_else(|| StoreError::permanent(StoreErrorKind::Unsupported, FORKED))
    }

    /// Whether this context was not copied by a fork, or its store was copied with it. A copy also has its parent's ids, so its beacon
    /// would replace that of its parent.
    pub(super) fn is_ours(&self) -> bool {
        self.stays_within || self.process == this_process()
    }
}
