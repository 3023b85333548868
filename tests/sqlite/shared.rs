//! The scenarios that need a shared store, over a file.

use leasehold::LeaseManagerBuilder;

use crate::{Scratch, manager, scenarios};

struct Shared(Scratch);

impl Shared {
    #[expect(clippy::unused_async, reason = "other stores are opened over a network")]
    async fn context(&self) -> LeaseManagerBuilder {
        manager(&self.0.0)
    }
}

#[expect(clippy::unused_async, reason = "other stores are opened over a network")]
async fn open(_name: &str) -> Option<Shared> {
    Some(Shared(Scratch::new()))
}

scenarios::tests!(open);
