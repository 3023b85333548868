//! The connection of a session's signals.

use std::{string::String, vec::Vec};

use tokio::sync::mpsc::UnboundedSender;
use tokio_postgres::{AsyncMessage, Client, Error, types::Type};

use super::super::{
    dial::Dial,
    failure,
    names::Names,
    rows::{Parameter, Runner},
};
use crate::executor::Shared;
use crate::machine::{SessionId, StoreError};

/// What the task of a session's signals is told.
#[derive(Debug)]
pub(super) enum Event {
    /// Somebody notified this session, or all.
    Heard { payload: String },
    /// The connection with this number is over.
    Cut { number: u64 },
    /// Notify others.
    Send { channel: String, payload: String },
    /// There is one more beacon to be watched.
    Watched,
    /// End everything.
    Rest,
}

/// A connection that listens. Its notifications, and its end, go to the task as events.
pub(super) struct Link {
    client: Shared<Client>,
    pub(super) number: u64,
}

impl Link {
    pub(super) async fn open(
        dial: &Dial,
        names: &Names,
        session: SessionId,
        number: u64,
        events: UnboundedSender<Event>,
    ) -> Result<Self, StoreError> {
        let hear = move |message: Option<AsyncMessage>| {
            let event = match message {
                Some(AsyncMessage::Notification(heard)) => Event::Heard { payload: heard.payload().into() },
                Some(_) => return,
                None => Event::Cut { number },
            };
            // The task ended before its connection did.
            let _ = events.send(event);
        };
        let client = Shared::new(dial.open(hear).await?);
        let listen = format!("LISTEN {}; LISTEN {}", names.channel(), names.channel_of(session));
        let listening = client.batch_execute(&listen).await;
        listening.map_err(|error| failure::of_statement(&error, names))?;
        Ok(Self { client, number })
    }

    /// Takes the advisory lock of a beacon, and keeps it as long as the connection stands. Whether it was free.
    pub(super) async fn raise(&self, lock: i64) -> Result<bool, Error> {
        let runner = Runner::Connection(&self.client);
        let taken = runner.query("SELECT pg_try_advisory_lock($1)", &[(&lock, Type::INT8)]).await?;
        taken.first().map_or(Ok(false), |row| row.try_get(0))
    }

    /// Which of these advisory locks somebody has; `None` if the server started a moment ago, so that their absence proves nothing.
    pub(super) async fn standing(&self, locks: &[i64]) -> Result<Option<Vec<i64>>, Error> {
        let found = Runner::Connection(&self.client).query(STANDING, &[(&locks, Type::INT8_ARRAY)]).await?;
        found.first().map_or(Ok(None), |row| row.try_get(0))
    }

    /// Notifies without waiting for the answer. A notification that fails is lost, as hints may be.
    pub(super) fn send(&self, dial: &Dial, channel: String, payload: String) {
        let client = self.client.clone();
        dial.runtime().spawn(async move {
            let runner = Runner::Connection(&client);
            let to: [Parameter<'_>; 2] = [(&channel, Type::TEXT), (&payload, Type::TEXT)];
            let _ = runner.query("SELECT pg_notify($1, $2)", &to).await;
        });
    }
}

/// A lock with a number of 64 bits shows as two halves. Those who held beacons before the server was restarted get 10 s to write down
/// that they have them no more.
const STANDING: &str = "SELECT CASE WHEN clock_timestamp() < pg_postmaster_start_time() + interval '10 s' THEN NULL ELSE ARRAY( \
    SELECT wanted FROM unnest($1) AS wanted WHERE EXISTS ( \
    SELECT FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted \
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
    AND classid = ((wanted >> 32) & 4294967295)::oid AND objid = (wanted & 4294967295)::oid)) END";
