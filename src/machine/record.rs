//! The record: one value per key, the whole truth about who holds it and who is next.

use alloc::{string::String, vec::Vec};
use core::cmp::Reverse;

use super::{
    id::{Beacon, Incarnation, RequestId},
    json::Extra,
    mode::Mode,
    time::{Monotonic, Wall},
    token::{Token, TokenBlock},
};

/// The major format of stored records and of messages. A newer one is never written over.
pub const FORMAT: u64 = 1;

/// Who holds a key, who waits for it, and how far its tokens got. It is never deleted, or tokens could start again.
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
    /// The first tokens of the grants that were stolen lately, so that their holders learn why they lost them.
    pub stolen: Vec<Token>,
    pub(super) extra: Extra,
}

/// A lease as it is written down.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The context that holds it.
    pub holder: Incarnation,
    /// The user's own name for the context, stable over restarts; empty for none.
    pub instance: String,
    /// The request that was granted.
    pub request: RequestId,
    /// Whether others may hold the key too.
    pub mode: Mode,
    /// Its tokens; the first is the grant's identity.
    pub block: TokenBlock,
    /// The last token of the exclusive grant before it.
    pub previous: Token,
    /// Grows with each renewal, so that an onlooker sees the holder alive without comparing clocks.
    pub beat: u64,
    /// The generation of the holder's beacon if it stood before this was written, else 0.
    pub beacon: u64,
    /// How long the lease lasts from each renewal, in ms.
    pub lease_ms: u64,
    /// When it was last renewed: for display only.
    pub renewed_at: Wall,
    /// When it runs out unless renewed: for display only.
    pub expires_at: Wall,
    /// When it runs out by the clock of a [trusted](super::StoreClock::Trusted) store; never stored elsewhere.
    pub(super) deadline: Option<Monotonic>,
    /// What the holder says of itself.
    pub info: String,
    pub(super) extra: Extra,
}

/// A place in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiter {
    /// The context that waits.
    pub holder: Incarnation,
    /// The user's own name for the context; empty for none.
    pub instance: String,
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
    /// Grows each time the waiter renews its place.
    pub beat: u64,
    /// The generation of the waiter's beacon if it stood before this was written, else 0.
    pub beacon: u64,
    /// How long the lease lasts once the waiter has renewed it, in ms; and how long it may be silent.
    pub lease_ms: u64,
    /// How long its first lease lasts if somebody else's transaction grants it, in ms.
    pub heir_ms: u64,
    /// When the place runs out by the clock of a trusted store.
    pub(super) deadline: Option<Monotonic>,
    /// What the waiter says of itself.
    pub info: String,
    pub(super) extra: Extra,
}

/// Which entry of a record is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Entry {
    /// The grant with this first token.
    Grant(Token),
    /// The place in the queue of this request.
    Waiter(RequestId),
}

/// What an onlooker saw of an entry that stands before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sighting {
    /// Whose entry it is.
    pub holder: Incarnation,
    /// Which entry.
    pub entry: Entry,
    /// The request that it is of.
    pub request: RequestId,
    /// Its beat at that time: as long as it stands still, the holder is silent.
    pub beat: u64,
    /// The generation of its beacon, 0 for none.
    pub beacon: u64,
    /// How long it may be silent, in ms.
    pub lease_ms: u64,
    /// Whether it is a grant of the onlooker's own instance, in another incarnation.
    pub twin: bool,
}

impl Record {
    /// Tells stores to write it. Whatever number a record came with, the next one differs.
    pub(super) fn changed(&mut self) {
        self.revision = self.revision.wrapping_add(1);
    }

    /// Removes all entries but these. Whether there were others.
    pub(super) fn keep(&mut self, grant: &dyn Fn(&Grant) -> bool, waiter: &dyn Fn(&Waiter) -> bool) -> bool {
        let entries = self.grants.len() + self.queue.len();
        self.grants.retain(grant);
        self.queue.retain(waiter);
        self.grants.len() + self.queue.len() < entries
    }
}

impl Sighting {
    /// The beacon whose absence would prove the holder dead.
    pub(super) fn beacon(&self) -> Option<Beacon> {
        (self.beacon > 0).then_some(Beacon { holder: self.holder, generation: self.beacon })
    }

    /// Whether `other` is the same entry, and its holder was silent in between.
    pub(super) fn same_beat(&self, other: &Self) -> bool {
        (self.holder, self.entry, self.beat) == (other.holder, other.entry, other.beat)
    }
}

/// The queue is sorted by this: upgrades first, then by priority, then by ticket.
pub(super) type Rank = (bool, Reverse<i32>, u64);

pub(super) fn rank(upgrades: Option<Token>, priority: i32, ticket: u64) -> Rank {
    (upgrades.is_none(), Reverse(priority), ticket)
}

impl Waiter {
    pub(super) fn rank(&self) -> Rank {
        rank(self.upgrades, self.priority, self.ticket)
    }
}

impl From<&Grant> for Sighting {
    fn from(grant: &Grant) -> Self {
        Self {
            holder: grant.holder,
            entry: Entry::Grant(grant.block.first),
            request: grant.request,
            beat: grant.beat,
            beacon: grant.beacon,
            lease_ms: grant.lease_ms,
            twin: false,
        }
    }
}

impl From<&Waiter> for Sighting {
    fn from(waiter: &Waiter) -> Self {
        Self {
            holder: waiter.holder,
            entry: Entry::Waiter(waiter.request),
            request: waiter.request,
            beat: waiter.beat,
            beacon: waiter.beacon,
            lease_ms: waiter.lease_ms,
            twin: false,
        }
    }
}
