//! The connection of a session's signals.

use core::time::Duration;
use std::{string::String, vec::Vec};

use tokio::{sync::mpsc::UnboundedSender, time::sleep};
use tokio_postgres::{AsyncMessage, Client, Error, types::Type};

use super::super::{dial::Dial, failure, names::Names, rows::Runner};
use super::outbox::Letter;
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
    Send(Letter),
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
        let (all, own, ear) = (names.channel(), names.channel_of(session), names.ear(session));
        let listen = format!("LISTEN {all}; LISTEN {own}; SELECT pg_try_advisory_lock({ear}); {STAYS}");
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

    /// Sends a letter. One that fails is lost, as hints may be.
    ///
    /// Who has just begun to wait may be written down before it listens, and would hear nothing until its next heartbeat: so a
    /// letter for one session is sent again until that one listens.
    pub(super) fn notify(&self, letter: Letter) -> impl Future<Output = ()> + Send + use<> {
        let client = self.client.clone();
        async move {
            for pause in PAUSES_MS {
                match try_notify(&client, &letter).await {
                    Ok(true) | Err(_) => return,
                    Ok(false) => sleep(Duration::from_millis(pause)).await,
                }
            }
        }
    }
}

/// A connection that only listens is idle for long, and with beacons its end counts as a death: a limit that the role or the database
/// sets for idle ones must not apply to it. Servers before version 14 have no such limit.
const STAYS: &str = "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'";

/// More than a session takes to connect.
const PAUSES_MS: [u64; 7] = [10, 20, 40, 80, 160, 320, 640];

/// Whether the session that it is for listens. The shared lock is free if nobody has the other one, and held for a moment only.
async fn try_notify(client: &Client, letter: &Letter) -> Result<bool, Error> {
    let runner = Runner::Connection(client);
    let (channel, payload) = ((&letter.channel as _, Type::TEXT), (&letter.payload as _, Type::TEXT));
    let Some(ear) = letter.ear else {
        return runner.query("SELECT pg_notify($1, $2)", &[channel, payload]).await.map(|_| true);
    };
    let statement = "SELECT pg_notify($1, $2), NOT pg_try_advisory_xact_lock_shared($3)";
    let told = runner.query(statement, &[channel, payload, (&ear, Type::INT8)]).await?;
    told.first().map_or(Ok(false), |row| row.try_get(1))
}

/// A beacon stands if its lock cannot be shared; the look costs the same, however many locks others have. Those who held beacons before
/// the server was restarted get 10 s to write down that they have them no more. A server whose process died restarts the others without
/// a new start of its own, but begins its statistics anew.
const STANDING: &str = "SELECT CASE WHEN clock_timestamp() < interval '10 s' + \
    (SELECT greatest(pg_postmaster_start_time(), stats_reset) FROM pg_stat_bgwriter) THEN NULL ELSE ARRAY( \
    SELECT wanted FROM unnest($1) AS wanted WHERE NOT pg_try_advisory_xact_lock_shared(wanted)) END";
