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

#[cfg(all(test, feature = "test-util", not(feature = "js")))]
mod tests {
    use futures::FutureExt as _;

    use crate::{
        LeaseManager,
        executor::{SimExecutor, this_thread},
        store::MemoryStore,
    };

    /// At the moment of the fork another thread was at work, which only the parent has.
    #[test]
    fn the_copy_of_a_memory_store_works_although_a_thread_of_the_parent_seems_to() {
        let leases = LeaseManager::builder(MemoryStore::new(), SimExecutor::new(1).context()).build().unwrap();
        let request = leases.lock("k");
        let stranger = std::thread::spawn(this_thread).join().unwrap();
        let mut core = request.driver.core();
        core.pumping = Some(stranger);
        core.process += 1;
        drop(core);
        let granted = request.acquire().now_or_never();
        assert!(matches!(granted, Some(Ok(_))), "{granted:?}");
    }
}
