//! Where the beacons of a store's own sessions stand: on which server, and in which of its runs.
//!
//! A beacon is a lock of one server, which ends with a restart. So a replica that was promoted, or a server that was started again, has
//! none of the beacons that the rows tell of, although their contexts may live and be cut off. So a session's row also says
//! where its beacon was raised. The absence of a beacon that was raised elsewhere proves nothing.

use std::{collections::HashMap, string::String};

use crate::executor::{Mutex, Shared};
use crate::machine::SessionId;

/// An expression in SQL: what tells a run of a server from all others. After a crash a server goes on without a new start, but
/// [forgets its statistics](https://www.postgresql.org/docs/current/monitoring-stats.html).
pub(super) const RUN: &str = "(SELECT concat(extract(epoch FROM pg_postmaster_start_time()), '/', extract(epoch FROM stats_reset)) \
    FROM pg_stat_archiver)";

/// The runs in which the beacons of the store's own sessions stand.
#[derive(Clone, Debug, Default)]
pub(super) struct Standing(Shared<Mutex<HashMap<SessionId, String>>>);

impl Standing {
    /// Notes that a beacon stands, until the value is dropped.
    pub(super) fn note(&self, session: SessionId, run: String) -> Stands {
        self.0.lock().insert(session, run);
        Stands { standing: self.clone(), session }
    }

    /// Where the beacon of this session stands; nowhere is "".
    pub(super) fn of(&self, session: SessionId) -> String {
        self.0.lock().get(&session).cloned().unwrap_or_default()
    }
}

/// A beacon that stands.
#[derive(Debug)]
pub(super) struct Stands {
    standing: Standing,
    session: SessionId,
}

impl Drop for Stands {
    fn drop(&mut self) {
        self.standing.0.lock().remove(&self.session);
    }
}
