//! Whether notifications arrive at all. A pooler that gives each transaction another connection accepts `LISTEN`, and passes no
//! notification on. So a store once notifies a session of its own, by a connection of its pool, and waits for what the session hears.

use core::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};
use std::format;

use tokio::time::sleep;
use tracing::warn;

use super::super::{
    Place,
    carrier::{Line, Round},
    literal::text,
    options::ask,
};
use crate::executor::Shared;
use crate::machine::SessionId;

/// What the session is notified of. Others ignore it, as they ignore whatever a session tells itself.
pub(super) const TRIAL: &str = "trial";
/// A connection is tried out once it has stood for this long. A program that is over sooner need not pay for it. And what a session says
/// when it begins is said by then: while its connection is busy, such a pooler may happen to pass a notification on.
const BEFORE: Duration = Duration::from_secs(1);
/// How long the task of the session may take to note what its connection has received.
const AFTER: Duration = Duration::from_secs(2);

const DEAF: &str = "PostgreSQL accepts LISTEN, but no notification arrives, so a lease is granted up to a heartbeat late; a pooler in \
    between seems to give each transaction another connection, as pgbouncer does in transaction mode: connect past it, or choose \
    without_signals(), or ?signals=off in the URL";

/// Whether the sessions of a store hear, as far as that was found out.
#[derive(Debug, Default)]
pub(in super::super) struct Hearing {
    is_known: AtomicBool,
}

impl Hearing {
    pub(super) fn is_known(&self) -> bool {
        self.is_known.load(Relaxed)
    }

    /// The trial was heard.
    pub(super) fn heard(&self) {
        self.is_known.store(true, Relaxed);
    }
}

/// Tries out the connection of a session, and warns if it is deaf. If anything fails meanwhile, a later connection is tried.
pub(super) async fn try_out(place: Shared<Place>, session: SessionId, line: Shared<dyn Line>) {
    sleep(BEFORE).await;
    let channel = place.names.channel_of(session);
    let notify = format!("SELECT pg_notify({}, {})", text(&channel), text(&format!("{session} {TRIAL}")));
    if !matches!(ask(&place.lending, &notify).await, Ok(Ok(_))) {
        return;
    }
    // A connection that listens receives the notification before this answer: the server has committed it already.
    if line.carry(Round::one("SELECT")).await.is_err() {
        return;
    }
    sleep(AFTER).await;
    if !place.hearing.is_known.swap(true, Relaxed) {
        warn!(target: "leasehold", store = ?place.names.reach(), "{DEAF}");
    }
}
