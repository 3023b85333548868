//! Messages between contexts. A message is a hint: it makes things fast, and nothing rests on its arrival.

use super::{
    id::{RequestId, SessionId, StoreId},
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
        holder: SessionId,
        /// Which of its requests.
        request: RequestId,
        /// Its tokens.
        block: TokenBlock,
        /// The last token of the exclusive grant before it.
        previous: Token,
        /// Whether others queue behind it.
        contended: bool,
    },
    /// Somebody would like to have the key.
    Wanted {
        /// Who holds it.
        holder: SessionId,
        /// Who wants it.
        by: SessionId,
        /// It has no place in the queue, and looks again in a moment.
        tries: bool,
    },
    /// The key was kept without being used, and given back because somebody tried it.
    Freed {
        /// Who did.
        asker: SessionId,
    },
    /// The key that somebody tried is in use.
    InUse {
        /// Who did.
        asker: SessionId,
    },
    /// A context ended its session: what it had at any key does not count.
    Gone {
        /// Which session.
        holder: SessionId,
    },
    /// A session was ended by somebody who took its context for dead.
    Ended {
        /// Which session.
        holder: SessionId,
    },
    /// A grant was stolen.
    Stolen {
        /// Whose.
        holder: SessionId,
        /// Its first token.
        token: Token,
    },
}

impl Body {
    /// Whom it concerns alone, if it does not concern everybody.
    pub const fn recipient(&self) -> Option<SessionId> {
        match *self {
            Self::Granted { holder, .. }
            | Self::Wanted { holder, .. }
            | Self::Ended { holder }
            | Self::Stolen { holder, .. } => Some(holder),
            Self::Freed { asker } | Self::InUse { asker } => Some(asker),
            Self::Gone { .. } => None,
        }
    }
}
