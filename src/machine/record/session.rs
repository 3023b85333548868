//! The row of a session: one small value for each context, which says that the context may be alive.

use alloc::{string::String, vec::Vec};

use super::{
    codec::Unreadable,
    config::LONGEST_SILENCE_MS,
    id::RequestId,
    json::Extra,
    key::Key,
    time::{Monotonic, Wall},
    token::Token,
};

/// The row of a session. While it exists, the context may be alive. Once it is gone, the session has ended for ever.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Session {
    /// A number that grows with each heartbeat, so that other contexts see that this one is alive without comparing clocks.
    pub beat: u64,
    /// Whether the session's beacon was raised before this was written.
    pub beacon: bool,
    /// How long the context may be silent, in ms: the length of all its leases.
    pub lease_ms: u64,
    /// The context's instance name, which is stable over restarts; empty if it has none.
    pub instance: String,
    /// Attempts with a smaller number are too late, and are refused.
    pub floor: u64,
    /// When the context sent its last heartbeat, by its own wall clock: for display only.
    pub heard_at: Wall,
    /// The grants that were stolen from the session. The list is never shortened.
    pub robbed: Vec<Stolen>,
    /// When the session ends by the clock of a [trusted](super::StoreClock::Trusted) store.
    pub(super) deadline: Option<Monotonic>,
    /// Why the row cannot be read, if it cannot. Such a row is watched like any other, and never written.
    pub(super) unreadable: Option<Unreadable>,
    pub(super) extra: Extra,
}

/// A grant that was stolen from a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stolen {
    /// The key.
    pub key: Key,
    /// The grant's first token.
    pub token: Token,
    /// The request to which it was granted. If that request is repeated, it gets no other grant.
    pub request: RequestId,
}

/// A heartbeat: what a context writes about itself, for all that it holds and waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Beat {
    /// A number that is larger than in all earlier heartbeats of the session.
    pub beat: u64,
    /// Whether the session's beacon is raised.
    pub beacon: bool,
    /// How long the context may be silent from now, in ms.
    pub lease_ms: u64,
    /// Attempts with a smaller number are too late: see [`Acquire::attempt`](super::Acquire::attempt).
    pub floor: u64,
}

impl Session {
    /// A row that this version cannot read. Any change of its text counts as a beat, since its context may be alive. Whoever is blocked by
    /// it waits for the longest time that any session may be silent.
    // Protocol: docs/protocol.md#s4.
    pub(super) fn unreadable(text: &str, why: Unreadable) -> Self {
        Self { beat: fingerprint(text), lease_ms: LONGEST_SILENCE_MS, unreadable: Some(why), ..Self::default() }
    }

    /// The grants that were stolen from the session, by key and first token.
    pub fn robbed(&self) -> Vec<(Key, Token)> {
        let mut robbed = Vec::with_capacity(self.robbed.len());
        self.robbed.iter().for_each(|stolen| robbed.push((stolen.key.clone(), stolen.token)));
        robbed
    }

    /// When the session expires unless it sends another heartbeat, by its own wall clock: for display only.
    pub fn expires_at(&self) -> Wall {
        self.heard_at.plus(self.lease_ms)
    }

    /// Applies a heartbeat. If it arrives after a later one, only its floor counts, because attempts below the floor were given up in any
    /// case. Returns whether the row has changed.
    // Protocol: docs/protocol.md#s8, #s11, #s13.
    pub(super) fn take(&mut self, beat: &Beat, heard_at: Wall, deadline: Option<Monotonic>) -> bool {
        let is_late = beat.beat <= self.beat;
        if !is_late {
            self.beat = beat.beat;
            self.beacon = beat.beacon;
            self.lease_ms = beat.lease_ms;
            self.heard_at = heard_at;
            self.deadline = deadline;
        }
        let raised = beat.floor > self.floor;
        self.floor = self.floor.max(beat.floor);
        !is_late || raised
    }
}

/// FNV-1a, in the range of numbers that are exact in JavaScript.
/// <https://www.rfc-editor.org/rfc/rfc9923>
fn fingerprint(text: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash >> 11
}
