//! What a store does: the record of each key, the row of each session, and the operations on them.
//!
//! A record says who holds a key and who is next. It holds nothing about time: the row of a holder's [session] says whether the holder may
//! be alive. [`Batch::apply`] is the only code that changes either.

mod apply;
mod codec;
mod json;
mod operation;
mod records;
mod session;
mod sessions;
mod sight;
mod status;
mod transition;

#[cfg(test)]
mod alone_tests;
#[cfg(test)]
mod apply_tests;
#[cfg(test)]
mod bench;
#[cfg(test)]
mod mode_tests;
#[cfg(test)]
mod row_tests;
#[cfg(test)]
mod session_tests;
#[cfg(test)]
mod sweep_tests;
#[cfg(test)]
mod text_tests;

pub use codec::Unreadable;
pub use operation::{
    Acquire, Action, Answer, Batch, Ending, Granted, Operation, Outcome, Peer, Promotion, Reply, SessionStep,
    StoreClock, StoreNow, Way,
};
pub use records::{Records, Row};
pub use session::{Beat, Session, Stolen};

use alloc::{string::String, vec::Vec};
use core::cmp::Reverse;

use super::{
    config, failure, id,
    id::{RequestId, SessionId},
    key,
    message::{Body, Message},
    mode,
    mode::Mode,
    sorted, time, token,
    token::{Token, TokenBlock},
};
use json::Extra;

/// The format of stored values and of messages. A value in a newer format is never overwritten.
pub const FORMAT: u64 = 1;

/// Who holds a key, who waits for it, and which tokens it has used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Record {
    /// The last token that was ever reserved.
    pub last_token: Token,
    /// Grows with every change.
    pub revision: u64,
    /// Who holds the key.
    pub grants: Vec<Grant>,
    /// Who waits for it. The first is next.
    pub queue: Vec<Waiter>,
    /// The last token of the latest exclusive grant. A context that finds it unchanged knows that nobody else has written meanwhile.
    pub last_exclusive: Token,
    extra: Extra,
}

/// A lease in a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The session that holds it.
    pub holder: SessionId,
    /// The request that was granted.
    pub request: RequestId,
    /// How the key is held.
    pub mode: Mode,
    /// Its tokens; the first is the grant's identity.
    pub block: TokenBlock,
    /// The last token of the exclusive grant before it.
    pub previous: Token,
    /// The holder's description of itself.
    pub info: String,
    extra: Extra,
}

/// An entry of the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiter {
    /// The session that waits.
    pub holder: SessionId,
    /// Its request.
    pub request: RequestId,
    /// How it will hold the key.
    pub mode: Mode,
    /// Waiters with a larger priority go first.
    pub priority: i32,
    /// The position within a priority: a smaller ticket came earlier.
    pub ticket: u64,
    /// The waiter's own shared grant, if it waits for an upgrade of it: it then goes ahead of everybody else.
    pub upgrades: Option<Token>,
    /// Whether the entry is for this request alone, and not for all requests of its context.
    pub alone: bool,
    /// The waiter's description of itself.
    pub info: String,
    extra: Extra,
}

/// The name of an entry in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Entry {
    /// The grant with this first token.
    Grant(Token),
    /// The queue entry of this request.
    Waiter(RequestId),
}

/// What a waiting context saw of an entry that is ahead of it, and of that entry's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sighting {
    /// The session whose entry it is.
    pub holder: SessionId,
    /// Which entry.
    pub entry: Entry,
    /// The request of the entry.
    pub request: RequestId,
    /// The session's beat at that time. The session is silent for as long as its beat does not change.
    pub beat: u64,
    /// Whether the session's beacon stood when the row was written.
    pub beacon: bool,
    /// How long the session may be silent, in ms.
    pub lease_ms: u64,
    /// Whether it is a grant of another session with the same instance name as the context that looks.
    pub twin: bool,
}

impl Record {
    /// A record for a key that has none. Its tokens start where those of forgotten records ended.
    pub(super) fn starting_at(floor: Token) -> Self {
        Self { last_token: floor, last_exclusive: floor, ..Self::default() }
    }

    /// Changes the revision, so that stores write the record. It wraps around, so it differs whatever it was before.
    pub(super) fn changed(&mut self) {
        self.revision = self.revision.wrapping_add(1);
    }

    /// Whether nobody holds the key or waits for it.
    pub fn is_idle(&self) -> bool {
        self.grants.is_empty() && self.queue.is_empty()
    }
}

/// The queue is sorted by this: upgrades first, then by priority, then by ticket.
pub(super) type Rank = (bool, Reverse<i32>, u64);

pub(super) fn rank(upgrades: Option<Token>, priority: i32, ticket: u64) -> Rank {
    (upgrades.is_none(), Reverse(priority), ticket)
}

impl Promotion {
    /// The promotion that reports a grant to its holder.
    fn of(key: &key::Key, grant: &Grant) -> Self {
        let Grant { holder, request, block, previous, .. } = *grant;
        Self { key: key.clone(), holder, request, block, previous, contended: false, told: false }
    }
}

impl Waiter {
    pub(super) fn rank(&self) -> Rank {
        rank(self.upgrades, self.priority, self.ticket)
    }

    /// The grant that the entry becomes.
    fn into_grant(self, block: TokenBlock, previous: Token) -> Grant {
        let Self { holder, request, mode, info, extra, .. } = self;
        Grant { holder, request, mode, block, previous, info, extra }
    }
}
