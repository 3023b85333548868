//! Idle records stay, so that a context can tell who held a key last. If there are very many, they are deleted.

use std::{
    rc::{Rc, Weak},
    string::String,
    vec::Vec,
};

use super::{
    connection::Connection,
    listing,
    pending::{Answer, done},
    transaction,
};
use crate::executor::spawn;
use crate::machine::{Batch, Key, Now, SessionId, StoreNow};

/// Only a store with more records than this is swept.
const MANY: f64 = 512.0;
/// How many records one transaction examines, while others wait for it.
const AT_ONCE: usize = 128;

/// Forgets the records that nobody uses, if there are many records. It begins when the connection's first transaction is
/// over, and ends early with the connection, or when a transaction fails.
pub(super) fn begin_if_many(count: f64, connection: &Rc<Connection>, session: SessionId, now: StoreNow) {
    if count > MANY {
        spawn(Box::pin(sweep(Rc::downgrade(connection), session, now)));
    }
}

/// Forgets those records. What is left when it ends early stays until the next connection.
async fn sweep(connection: Weak<Connection>, session: SessionId, now: StoreNow) {
    let names = Rc::default();
    let Some(listing) = list(&connection, &names) else { return };
    let Ok(()) = done(listing).await else { return };
    for some in names.take().chunks(AT_ONCE) {
        let Some(forgetting) = forget(some, &connection, session, now) else { return };
        let Ok(()) = done(forgetting).await else { return };
    }
}

fn list(connection: &Weak<Connection>, names: &Rc<listing::Names>) -> Option<Answer> {
    listing::start(&connection.upgrade()?, names).ok()
}

fn forget(names: &[String], connection: &Weak<Connection>, session: SessionId, now: StoreNow) -> Option<Answer> {
    let mut batch = Batch::new(session, Vec::new());
    for name in names {
        if let Ok(key) = Key::new(name) {
            batch.forgets.push(key);
        }
    }
    transaction::start(&connection.upgrade()?, &Rc::new(batch), now, Now::default(), &Rc::default()).ok()
}
