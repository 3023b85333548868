//! What a store does: the record of each key, the row of each session, and the operations on them.
//!
//! A record says who holds a key and who is next. It says nothing of time: whether a holder is alive stands in the row
//! of its [session]. [`Batch::apply`] is the only code that changes either.

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

/// The major format of stored values and of messages. A newer one is never written over.
pub const FORMAT: u64 = 1;

/// Who holds a key, who waits for it, and how far its tokens got.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Record {
    /// The last token that was ever reserved.
    pub last_token: Token,
    /// Grows with every change.
    pub revision: u64,
    /// Who holds the key.
    pub grants: Vec<Grant>,
    /// Who waits for it, the next first.
    pub queue: Vec<Waiter>,
    /// The last token of the latest exclusive grant: who finds it unchanged knows that nobody else wrote meanwhile.
    pub last_exclusive: Token,
    extra: Extra,
}

/// A lease as it is written down.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The session that holds it.
    pub holder: SessionId,
    /// The request that was granted.
    pub request: RequestId,
    /// Whether others may hold the key too.
    pub mode: Mode,
    /// Its tokens; the first is the grant's identity.
    pub block: TokenBlock,
    /// The last token of the exclusive grant before it.
    pub previous: Token,
    /// What the holder says of itself.
    pub info: String,
    extra: Extra,
}

/// A place in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiter {
    /// The session that waits.
    pub holder: SessionId,
    /// Its request.
    pub request: RequestId,
    /// How it will hold the key.
    pub mode: Mode,
    /// A larger one goes first.
    pub priority: i32,
    /// Within a priority: first come, first served.
    pub ticket: u64,
    /// The shared grant of its own that it gives for an exclusive one: it goes before everybody else.
    pub upgrades: Option<Token>,
    /// Whether it has this place for itself, and not for all requests of its context.
    pub alone: bool,
    /// What the waiter says of itself.
    pub info: String,
    extra: Extra,
}

/// Which entry of a record is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Entry {
    /// The grant with this first token.
    Grant(Token),
    /// The place in the queue of this request.
    Waiter(RequestId),
}

/// What an onlooker saw of an entry that stands before it, and of its holder's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sighting {
    /// Whose entry it is.
    pub holder: SessionId,
    /// Which entry.
    pub entry: Entry,
    /// The request that it is of.
    pub request: RequestId,
    /// The session's beat at that time: as long as it stands still, the holder is silent.
    pub beat: u64,
    /// Whether the session's beacon stood when the row was written.
    pub beacon: bool,
    /// How long the session may be silent, in ms.
    pub lease_ms: u64,
    /// Whether it is a grant of the onlooker's own instance, in another session.
    pub twin: bool,
}

impl Record {
    /// The record of a key that has none: its tokens start where those of the forgotten records ended.
    pub(super) fn starting_at(floor: Token) -> Self {
        Self { last_token: floor, last_exclusive: floor, ..Self::default() }
    }

    /// Tells stores to write it. Whatever number a record came with, the next one differs.
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
    /// What its holder is told of a grant.
    fn of(key: &key::Key, grant: &Grant) -> Self {
        let Grant { holder, request, block, previous, .. } = *grant;
        Self { key: key.clone(), holder, request, block, previous, contended: false, told: false }
    }
}

impl Waiter {
    pub(super) fn rank(&self) -> Rank {
        rank(self.upgrades, self.priority, self.ticket)
    }

    /// The grant that its place becomes.
    fn into_grant(self, block: TokenBlock, previous: Token) -> Grant {
        let Self { holder, request, mode, info, extra, .. } = self;
        Grant { holder, request, mode, block, previous, info, extra }
    }
}
