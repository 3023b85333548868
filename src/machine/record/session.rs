//! The row of a session: one small value per context, which says that it may be alive.

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

/// A session as it is written down. It is there: its context may be alive. It is gone: the session has ended for ever.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Session {
    /// Grows with each heartbeat, so that an onlooker sees the context alive without comparing clocks.
    pub beat: u64,
    /// Whether the session's beacon stood before this was written.
    pub beacon: bool,
    /// For how long the context may be silent, in ms: the lease of all that it holds.
    pub lease_ms: u64,
    /// The user's own name for the context, stable over restarts; empty for none.
    pub instance: String,
    /// Attempts with a smaller number come late, and are refused.
    pub floor: u64,
    /// When the context was last heard, by its own wall clock: for display only.
    pub heard_at: Wall,
    /// The grants that were stolen from it. The list is never cut.
    pub robbed: Vec<Stolen>,
    /// When the session ends by the clock of a [trusted](super::StoreClock::Trusted) store.
    pub(super) deadline: Option<Monotonic>,
    /// Why what stands under its name cannot be read, if so: it is watched like any other, and never written.
    pub(super) unreadable: Option<Unreadable>,
    pub(super) extra: Extra,
}

/// A grant that was stolen from a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stolen {
    /// Of which key.
    pub key: Key,
    /// Its first token.
    pub token: Token,
    /// The request that it was granted to: asked again, that gets no other grant.
    pub request: RequestId,
}

/// A heartbeat: what a context writes of itself, for all that it holds and waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Beat {
    /// Larger than any that the session sent before.
    pub beat: u64,
    /// Whether the session's beacon stands.
    pub beacon: bool,
    /// For how long the context may be silent from now, in ms.
    pub lease_ms: u64,
    /// Attempts with a smaller number come late: see [`Acquire::attempt`](super::Acquire::attempt).
    pub floor: u64,
}

impl Session {
    /// A row that nobody here can read. Any change of its text counts as a beat, since its context may be alive; whoever is
    /// blocked by it waits as long as anybody may be silent.
    // Protocol: docs/protocol.md#s4.
    pub(super) fn unreadable(text: &str, why: Unreadable) -> Self {
        Self { beat: fingerprint(text), lease_ms: LONGEST_SILENCE_MS, unreadable: Some(why), ..Self::default() }
    }

    /// The grants that were stolen from it: key and first token.
    pub fn robbed(&self) -> Vec<(Key, Token)> {
        let mut robbed = Vec::with_capacity(self.robbed.len());
        self.robbed.iter().for_each(|stolen| robbed.push((stolen.key.clone(), stolen.token)));
        robbed
    }

    /// When the session runs out unless it beats again, by its own wall clock: for display only.
    pub fn expires_at(&self) -> Wall {
        self.heard_at.plus(self.lease_ms)
    }

    /// Takes a heartbeat. Of one that comes late, only the floor counts: attempts below the floor were given up, whatever was heard since.
    /// Returns whether the row has changed.
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
