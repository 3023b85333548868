//! A store behind a pointer is a store: one that is chosen when the program starts, or that its owner keeps a handle to.

use alloc::{boxed::Box, vec::Vec};

use super::{Durability, Reach, Store};
use crate::executor::Shared;
use crate::machine::{Batch, Key, Now, Reply, SessionId, StoreClock, StoreError};

macro_rules! behind {
    ($pointer:ty) => {
        maybe_send! {
        impl<S: Store + ?Sized> Store for $pointer {
            async fn transact(&self, batch: Batch, now: Now) -> Result<Reply, StoreError> {
                (**self).transact(batch, now).await
            }

            async fn keys(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
                (**self).keys(prefix).await
            }

            fn abandons(&self) -> bool {
                (**self).abandons()
            }

            fn abandon(&self, session: SessionId) {
                (**self).abandon(session);
            }

            fn interrupt(&self) {
                (**self).interrupt();
            }

            async fn close(&self) {
                (**self).close().await;
            }

            fn polls_inline(&self) -> bool {
                (**self).polls_inline()
            }

            fn clock(&self) -> StoreClock {
                (**self).clock()
            }

            fn durability(&self) -> Durability {
                (**self).durability()
            }

            fn reach(&self) -> Reach {
                (**self).reach()
            }
        }
        }
    };
}

behind!(Box<S>);
behind!(Shared<S>);
