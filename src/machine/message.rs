//! Messages between contexts. A message is a hint: it saves time, and nothing depends on its arrival.

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
    /// A waiter was granted the lease.
    Granted {
        /// The session of the waiter.
        holder: SessionId,
        /// The request that was granted.
        request: RequestId,
        /// Its tokens.
        block: TokenBlock,
        /// The last token of the exclusive grant before it.
        previous: Token,
        /// Whether others queue behind it.
        contended: bool,
    },
    /// Another context wants the key.
    Wanted {
        /// The session that holds it.
        holder: SessionId,
        /// The session that wants it.
        by: SessionId,
        /// Whether that session only tries: it has no place in the queue, and asks the store again in a moment.
        tries: bool,
    },
    /// The holder kept the key unused, and released it because another context tried to acquire it.
    Freed {
        /// The session that tried.
        asker: SessionId,
    },
    /// The holder uses the key that another context tried to acquire.
    InUse {
        /// The session that tried.
        asker: SessionId,
    },
    /// A context ended its session, so its entries at all keys no longer count; or this key was stolen from it. Whoever waits behind it has
    /// to look who is ahead now.
    Gone {
        /// That session.
        holder: SessionId,
    },
    /// A context ended this session of another context, which it considered dead.
    Ended {
        /// That session.
        holder: SessionId,
    },
    /// A grant was stolen.
    Stolen {
        /// The session that held it.
        holder: SessionId,
        /// Its first token.
        token: Token,
    },
}

impl Body {
    /// The only session that it concerns; `None` if it concerns all.
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

    /// Whether the recipient needs the message even if its sender has closed. Nobody needs a request any more then. A message to a session
    /// that was ended as dead seldom arrives, and is not needed either: if that session lives, its next heartbeat finds out.
    #[must_use]
    pub const fn outlives_its_sender(&self) -> bool {
        !matches!(self, Self::Wanted { .. } | Self::Ended { .. })
    }
}
