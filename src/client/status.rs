//! The state of a key, as the store shows it to every context.

use alloc::{boxed::Box, string::String, vec::Vec};
use core::time::Duration;

use crate::client::error::AcquireError;
use crate::driver::{Driver, Response};
use crate::executor::DROPS_TASKS;
use crate::machine::{Grant, Key, Mode, Outcome, Session, SessionId, StoreError, StoreErrorKind, Token, Waiter, Wall};

/// The answer to a look.
pub(crate) fn seen(driver: &Driver, key: Key, answer: Option<Response>) -> Result<LeaseStatus, Box<AcquireError>> {
    Err(Box::new(match answer {
        Some(Response::Status(status)) => match *status {
            Ok(Outcome::Status { last_token, grants, queue, sessions }) => {
                return Ok(LeaseStatus::new(driver.session(), key, last_token, grants, queue, &sessions));
            }
            Ok(Outcome::Unreadable(unreadable)) => AcquireError::unreadable(unreadable, key.as_str()),
            Err(error) => unseen(driver, error),
            _ => AcquireError::Closed,
        },
        Some(Response::Failed(refusal)) => AcquireError::refused(refusal, key.as_str()),
        _ => AcquireError::Closed,
    }))
}

/// Why the store shows nothing. If the manager was closed, it closed the store, so the error is `Closed`. In the npm package, nobody else
/// closes a store.
pub(crate) fn unseen(driver: &Driver, error: StoreError) -> AcquireError {
    match error.kind {
        StoreErrorKind::Closed if !DROPS_TASKS || driver.is_closed() => AcquireError::Closed,
        _ => error.into(),
    }
}

/// A snapshot of a key, as the store has it: one holder or waiter for each context and mode, not one for each request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseStatus {
    /// The key.
    pub key: Key,
    /// The last token that was ever reserved.
    pub last_token: Token,
    /// Who holds it. A context that keeps an unused lease for its [linger](crate::LeaseManagerBuilder::linger) is shown, too; the manager
    /// that reads the status releases its own first.
    pub holders: Vec<HolderStatus>,
    /// Who waits, in order. Requests that wait for a guard of their own context are not shown.
    pub queue: Vec<WaiterStatus>,
}

/// A holder of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderStatus {
    /// The context.
    pub holder: SessionId,
    /// Whether it is the context that reads the status.
    pub own: bool,
    /// The context's [instance name](crate::LeaseManagerBuilder::instance); empty if it has none.
    pub instance: String,
    /// How it holds the key.
    pub mode: Mode,
    /// The first token of its grant.
    pub token: Token,
    /// When the lease expires unless it is renewed, by the holder's wall clock: for display only.
    pub expires_at: Wall,
    /// How long the lease lasts without a heartbeat of the context.
    pub lease: Duration,
    /// Whether the context reported with its last heartbeat that it has a [beacon](crate::signal). If that beacon is gone, the context has
    /// most likely ended.
    pub beacon: bool,
    /// The `info` of the request that the store granted. If the context passes the lease to its next request, this does not change.
    pub info: String,
}

/// A context that waits for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaiterStatus {
    /// The context.
    pub holder: SessionId,
    /// Whether it is the context that reads the status.
    pub own: bool,
    /// The context's [instance name](crate::LeaseManagerBuilder::instance); empty if it has none.
    pub instance: String,
    /// How it will hold the key.
    pub mode: Mode,
    /// Its priority in the queue: larger ones go first.
    pub priority: i32,
    /// When the context's lease expires unless it is renewed, by its own wall clock: for display only.
    pub expires_at: Wall,
    /// How long the lease lasts without a heartbeat of the context.
    pub lease: Duration,
    /// Whether the context reported with its last heartbeat that it has a [beacon](crate::signal). If that beacon is gone, the context has
    /// most likely ended.
    pub beacon: bool,
    /// The `info` of the first of the requests that wait here.
    pub info: String,
}

impl LeaseStatus {
    /// How many entries of the queue are ahead of the first one of this context, which reads the status. `None` if it has no entry: its
    /// requests wait for nothing, or only for a guard of its own.
    pub fn position(&self) -> Option<usize> {
        self.queue.iter().position(|waiter| waiter.own)
    }

    /// Whether nobody holds the key or waits for it.
    pub fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty()
    }

    pub(crate) fn new(
        me: SessionId,
        key: Key,
        last_token: Token,
        grants: Vec<Grant>,
        queue: Vec<Waiter>,
        sessions: &[(SessionId, Session)],
    ) -> Self {
        let mut status = Self { key, last_token, holders: Vec::new(), queue: Vec::new() };
        for grant in grants {
            let session = Known::of(grant.holder, sessions);
            status.holders.push(HolderStatus {
                holder: grant.holder,
                own: grant.holder == me,
                instance: session.instance,
                mode: grant.mode,
                token: grant.block.first,
                expires_at: session.expires_at,
                lease: session.lease,
                beacon: session.beacon,
                info: grant.info,
            });
        }
        for waiter in queue {
            let session = Known::of(waiter.holder, sessions);
            status.queue.push(WaiterStatus {
                holder: waiter.holder,
                own: waiter.holder == me,
                instance: session.instance,
                mode: waiter.mode,
                priority: waiter.priority,
                expires_at: session.expires_at,
                lease: session.lease,
                beacon: session.beacon,
                info: waiter.info,
            });
        }
        status
    }
}

/// What is known of a session; nothing if it has ended.
#[derive(Default)]
struct Known {
    instance: String,
    expires_at: Wall,
    lease: Duration,
    beacon: bool,
}

impl Known {
    /// Finds the session by binary search: the store returns the sessions sorted, and thousands may wait.
    fn of(id: SessionId, sessions: &[(SessionId, Session)]) -> Self {
        let Ok(at) = sessions.binary_search_by_key(&id, |(known, _)| *known) else { return Self::default() };
        let session = &sessions[at].1;
        Self {
            instance: session.instance.clone(),
            expires_at: session.expires_at(),
            lease: Duration::from_millis(session.lease_ms),
            beacon: session.beacon,
        }
    }
}
