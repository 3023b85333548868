//! Idle records stay, so that it can be told who held a key last. Where there are very many, they go.

use std::{
    rc::{Rc, Weak},
    vec::Vec,
};

use wasm_bindgen_futures::spawn_local;

use super::{connection::Connection, listing, transaction};
use crate::machine::{Batch, Key, Now, SessionId, StoreNow};

/// More records than this are looked through.
const MANY: f64 = 512.0;
/// So many are looked at in one transaction: others wait for it.
const AT_ONCE: usize = 128;

/// Forgets the records that nobody uses, if there are many records. It begins when the connection's first transaction is
/// over, and ends early with the connection, or when a transaction fails.
pub(super) fn begin_if_many(count: f64, connection: &Rc<Connection>, session: SessionId, now: StoreNow) {
    if count > MANY {
        let connection = Rc::downgrade(connection);
        spawn_local(async move {
            // What is left stays until the next connection.
            let _ = sweep(connection, session, now).await;
        });
    }
}

async fn sweep(connection: Weak<Connection>, session: SessionId, now: StoreNow) -> Option<()> {
    let listing = listing::start(&connection.upgrade()?).ok()?;
    let names = listing.await?.ok()?;
    for some in names.chunks(AT_ONCE) {
        let mut batch = Batch::new(session, Vec::new());
        for name in some {
            batch.forgets.extend(Key::new(name).ok());
        }
        let forgetting = transaction::start(&connection.upgrade()?, &Rc::new(batch), now, Now::default()).ok()?;
        forgetting.await?.ok()?;
    }
    Some(())
}
