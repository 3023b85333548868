//! Finds out whether notifications arrive at all. A pooler that gives each transaction another connection accepts `LISTEN`, but passes no
//! notification on. So a store notifies one of its own sessions once, by a connection of its pool, and waits until the session hears it.
//!
//! If the store has beacons, each session tries out its connection before it raises its own beacon. A notification that arrives while the
//! connection is idle shows that no pooler lends the server's end of it to others. Only then does a lock stand as long as the session:
//! such a pooler may close or reset a connection that it does not need at the moment, and the lock ends although the session lives.

use core::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};
use std::{boxed::Box, format, string::String};

use tokio::{
    sync::mpsc::unbounded_channel,
    time::{sleep, timeout},
};
use tracing::warn;

use super::super::{
    Place,
    carrier::{Exchange, Line, Round},
    failure,
    lending::Lending,
    names::Names,
    options::{ask, invalid},
};
use crate::executor::Shared;
use crate::machine::{SessionId, StoreError};

/// The notification that the session sends itself. Other code ignores it, as it ignores whatever a session tells itself.
pub(super) const TRIAL: &str = "trial";
/// How old a connection is when it is tried out. A program that ends sooner saves the trial. By then the session has also sent its first
/// messages: while its connection is busy, such a pooler may happen to pass a notification on.
const BEFORE: Duration = Duration::from_secs(1);
/// How long the task of the session may take to note what its connection has received.
const AFTER: Duration = Duration::from_secs(2);
/// How long a connection is idle before it is tried out for a beacon. By then a pooler has taken the server's connection back.
const IDLE: Duration = Duration::from_millis(10);
/// The longest time for which a session waits for the notification that allows its beacon. A slower server is not fit for beacons, either.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

const DEAF: &str = "PostgreSQL accepts LISTEN, but no notification arrives, so a waiter may be granted its lease up to a heartbeat \
    late; a pooler in between seems to give each transaction another connection, as pgbouncer does in transaction mode: connect to \
    the server itself, or turn signals off by without_signals() or by ?signals=off in the URL";

const NO_BEACONS: &str = "PostgreSQL accepts LISTEN, but no notification arrived within 5 s, so beacons are of no use: a pooler in between seems \
    to give each transaction another connection, as pgbouncer does in transaction mode, and a lease would be granted twice when it \
    closes one of them; connect to the server itself, or open the store without beacons";

const CUT: &str = "the connection for signals ended while it was tried out for beacons; check the server and the network, and connect again";

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

    /// A trial was not heard.
    pub(super) fn is_deaf(&self, names: &Names) {
        if !self.is_known.swap(true, Relaxed) {
            warn!(target: "leasehold", store = ?names.reach(), "{DEAF}");
        }
    }
}

/// Tries out the connection of a session, and warns if no notification arrives. If a query fails, a later connection is tried.
pub(super) async fn try_out(place: Shared<Place>, session: SessionId, line: Shared<dyn Line>) {
    sleep(BEFORE).await;
    // Each notification wakes every connection that listens, so one trial has to do for all sessions of the store.
    if place.hearing.is_known() {
        return;
    }
    if notify(&place.lending, &place.names, session).await.is_err() {
        return;
    }
    // The server has committed the notification. So a connection that listens receives it before the answer to this query.
    if line.carry(Round::one("SELECT")).await.is_err() {
        return;
    }
    sleep(AFTER).await;
    place.hearing.is_deaf(&place.names);
}

/// Notifies a session by a connection of the pool. The user needs no right for the command, as for the function of the same name.
async fn notify(lending: &Lending, names: &Names, session: SessionId) -> Result<(), StoreError> {
    let notify = format!("NOTIFY {}, '{session} {TRIAL}'", names.channel_of(session));
    ask(lending, &notify).await?.map(drop).map_err(|failure| failure::of_statement(&failure, names))
}

/// Notifies a session that has been idle for a moment.
pub(super) async fn try_when_idle(place: Shared<Place>, session: SessionId) -> Result<(), StoreError> {
    sleep(IDLE).await;
    notify(&place.lending, &place.names, session).await
}

/// Tries out whether connections for signals are fit for beacons. `nobody` is a session that is never opened.
///
/// # Errors
/// [`StoreError`] if no notification arrives, or the server cannot be asked.
pub(in super::super) async fn check_for_beacons(
    lending: &Lending,
    exchange: &dyn Exchange,
    names: &Names,
    nobody: SessionId,
) -> Result<Hearing, StoreError> {
    let (tell, mut told) = unbounded_channel();
    // The connection tells what it hears, and last that it has ended.
    let hear = move |payload: Option<String>| _ = tell.send(payload.is_some());
    let line = exchange.open(Box::new(hear)).await?;
    let listen = Round::one(&format!("LISTEN {}", names.channel_of(nobody)));
    line.carry(listen).await.map_err(|failure| failure::of_statement(&failure, names))?;
    sleep(IDLE).await;
    notify(lending, names, nobody).await?;
    match timeout(PATIENCE, told.recv()).await {
        Ok(Some(true)) => Ok(Hearing { is_known: AtomicBool::new(true) }),
        Ok(_) => Err(StoreError::transient(CUT)),
        Err(_) => Err(invalid(NO_BEACONS)),
    }
}
