//! Messages between contexts. A message is a hint: it makes things fast, and nothing rests on its arrival.

use super::{
    id::{Incarnation, RequestId, StoreId},
    key::Key,
    token::{Token, TokenBlock},
};

/// What one context tells the others after its transaction committed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// The store that it is about.
    pub store: StoreId,
    /// The key that it is about.
    pub key: Key,
    /// What happened.
    pub body: Body,
}

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// The next in line was granted.
    Granted {
        /// To whom.
        holder: Incarnation,
        /// Which of its requests.
        request: RequestId,
        /// Its tokens.
        block: TokenBlock,
        /// How long the first lease lasts, in ms.
        lease_ms: u64,
        /// The last token of the exclusive grant before it.
        previous: Token,
    },
    /// Somebody would like to have the key.
    Wanted {
        /// Who.
        holder: Incarnation,
        /// It has no place in the queue, and looks again in a moment.
        tries: bool,
    },
    /// The key was kept without being used, and given back because somebody wanted it.
    Freed {
        /// By whom.
        holder: Incarnation,
    },
    /// The key that somebody tried is in use.
    InUse {
        /// By whom.
        holder: Incarnation,
    },
    /// A context was stopped, and left a tombstone: what it had at any key does not count.
    Gone {
        /// Which one.
        holder: Incarnation,
    },
    /// A grant was evicted.
    Evicted {
        /// Whose.
        holder: Incarnation,
        /// Its first token.
        token: Token,
    },
    /// A grant was stolen.
    Stolen {
        /// Whose.
        holder: Incarnation,
        /// Its first token.
        token: Token,
    },
}

impl Body {
    /// Whom it concerns alone, if it does not concern everybody.
    pub const fn recipient(&self) -> Option<Incarnation> {
        match *self {
            Self::Granted { holder, .. } | Self::Evicted { holder, .. } | Self::Stolen { holder, .. } => Some(holder),
            Self::Wanted { .. } | Self::Freed { .. } | Self::InUse { .. } | Self::Gone { .. } => None,
        }
    }
}
