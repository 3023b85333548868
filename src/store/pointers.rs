//! A store behind a pointer is a store, too. So a program can choose one when it starts, or keep a handle to one.

use alloc::{boxed::Box, vec::Vec};
use core::time::Duration;

use super::{Durability, Reach, Store, StoreWatcher};
use crate::executor::{Shared, WeakShared};
use crate::machine::{Batch, Key, Now, Reply, SessionId, StoreClock, StoreError};
use crate::signal::Signals;

macro_rules! behind {
    ($pointer:ty) => {
        maybe_send! {
        impl<S: Store + ?Sized> Store for $pointer {
            async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError> {
                (**self).transact(batch, now, limit).await
            }

            fn transact_at_once(&self, batch: &Batch, now: Now) -> Option<Result<Reply, StoreError>> {
                (**self).transact_at_once(batch, now)
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

            fn signals(&self) -> Option<Shared<dyn Signals>> {
                (**self).signals()
            }

            fn watch(&self, watcher: WeakShared<dyn StoreWatcher>) {
                (**self).watch(watcher);
            }

            async fn close(&self) {
                (**self).close().await;
            }

            fn loses_writes_in_failover(&self) -> bool {
                (**self).loses_writes_in_failover()
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
