//! Finds out whether notifications arrive at all. A pooler that gives each transaction another connection accepts `LISTEN`, but passes no
//! notification on. So a store notifies one of its own sessions once, by a connection of its pool, and waits until the session hears it.

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

/// The notification that the session sends itself. Other code ignores it, as it ignores whatever a session tells itself.
pub(super) const TRIAL: &str = "trial";
/// How old a connection is when it is tried out. A program that ends sooner saves the trial. By then the session has also sent its first
/// messages: while its connection is busy, such a pooler may happen to pass a notification on.
const BEFORE: Duration = Duration::from_secs(1);
/// How long the task of the session may take to note what its connection has received.
const AFTER: Duration = Duration::from_secs(2);

const DEAF: &str = "PostgreSQL accepts LISTEN, but no notification arrives, so a waiter may be granted its lease up to a heartbeat \
    late; a pooler in between seems to give each transaction another connection, as pgbouncer does in transaction mode: connect to \
    the server itself, or turn signals off by without_signals() or by ?signals=off in the URL";

/// Whether it is known if the sessions of a store hear notifications.
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

/// Tries out the connection of a session, and warns if no notification arrives. If a query fails, a later connection is tried.
pub(super) async fn try_out(place: Shared<Place>, session: SessionId, line: Shared<dyn Line>) {
    sleep(BEFORE).await;
    // Each notification wakes every connection that listens, so one trial has to do for all sessions of the store.
    if place.hearing.is_known() {
        return;
    }
    let channel = place.names.channel_of(session);
    let notify = format!("SELECT pg_notify({}, {})", text(&channel), text(&format!("{session} {TRIAL}")));
    if !matches!(ask(&place.lending, &notify).await, Ok(Ok(_))) {
        return;
    }
    // The server has committed the notification. So a connection that listens receives it before the answer to this query.
    if line.carry(Round::one("SELECT")).await.is_err() {
        return;
    }
    sleep(AFTER).await;
    if !place.hearing.is_known.swap(true, Relaxed) {
        warn!(target: "leasehold", store = ?place.names.reach(), "{DEAF}");
    }
}
