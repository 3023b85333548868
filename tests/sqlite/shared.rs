//! The scenarios that need a shared store, over a file.

use leasehold::LeaseManagerBuilder;

use crate::{
    Scratch, connect, manager,
    scenarios::{self, removals},
};

struct Shared(Scratch);

impl Shared {
    #[expect(clippy::unused_async, reason = "other stores are opened over a network")]
    async fn context(&self) -> LeaseManagerBuilder {
        manager(&self.0.0)
    }
}

impl removals::Rows for Shared {
    async fn context(&self) -> LeaseManagerBuilder {
        Self::context(self).await
    }

    async fn remove(&self, key: &str) {
        assert_eq!(connect(&self.0.0).execute("DELETE FROM leasehold_record WHERE key = ?1", [key]).unwrap(), 1);
    }

    async fn wipe(&self) {
        let wipe = "BEGIN IMMEDIATE; DELETE FROM leasehold_record; DELETE FROM leasehold_session;
                    UPDATE leasehold_store SET state = NULL; COMMIT";
        connect(&self.0.0).execute_batch(wipe).unwrap();
    }
}

#[expect(clippy::unused_async, reason = "other stores are opened over a network")]
async fn open(_name: &str) -> Option<Shared> {
    Some(Shared(Scratch::new()))
}

scenarios::tests!(open);
removals::tests!(open);
