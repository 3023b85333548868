//! Fencing tokens: they only grow, and stay exact in JavaScript.

use core::fmt;

use super::time::Wall;

/// How many tokens one grant reserves, so that no two guards that a context hands out under it share one.
pub const BLOCK: u64 = 64;

/// How many tokens a grant gets when it has used up its block: such a context is busy, and each refill costs a transaction.
const REFILL: u64 = 1_024;

/// The clock's part of a token is capped here (the year 2109), so that one wrong clock cannot use up a key.
const CLOCK_CAP_MS: u64 = 1 << 42;

/// Tokens stay below this, and so are exact as JavaScript numbers.
const END: u64 = 1 << 53;

/// How many tokens are reserved for every other key, whatever the record of one key says: more than a key uses up.
const NEAR_THE_END: u64 = 1 << 51;

/// A fencing token: of two grants of one key, the later has the larger.
///
/// A resource that keeps the largest token it has seen, and refuses smaller ones, is safe from a holder that was paused and does not know
/// that it lost its lease. `Display` and records show the plain number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub(super) u64);

impl Token {
    /// The token as a number below 2^53.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    pub(super) const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Whether this token is so large that the clock cannot be the cause.
    pub(super) const fn is_near_the_end(self) -> bool {
        self.0 >= END - NEAR_THE_END
    }

    /// The token with this number, if that is in range.
    pub(crate) fn from_u64(number: u64) -> Option<Self> {
        (number < END).then_some(Self(number))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl From<Token> for u64 {
    fn from(token: Token) -> Self {
        token.0
    }
}

/// For a `bigint` column of a database. Every token fits.
impl From<Token> for i64 {
    fn from(token: Token) -> Self {
        token.0.cast_signed()
    }
}

/// A block of tokens, first and last, reserved by one grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenBlock {
    /// The first token: the grant's identity.
    pub first: Token,
    /// The last token of the block.
    pub last: Token,
}

impl TokenBlock {
    /// The block with these ends, if they are in order and in range.
    pub(super) fn from_range(first: u64, last: u64) -> Option<Self> {
        (first <= last && last < END).then_some(Self { first: Token(first), last: Token(last) })
    }

    /// The block after `last`: `max(last + 1, min(now, 2^42) << 10)`, or `None` at the end of the range.
    ///
    /// Because the wall clock is mixed in, tokens still grow after the store was wiped or lost its latest write.
    pub(super) fn after(last: Token, now: Wall) -> Option<Self> {
        Self::of(BLOCK, last, now)
    }

    /// The next block for a grant that goes on: a larger one, if there is room.
    pub(super) fn refill_after(last: Token, now: Wall) -> Option<Self> {
        Self::of(REFILL, last, now).or_else(|| Self::after(last, now))
    }

    // Protocol: docs/protocol.md#r.
    fn of(size: u64, last: Token, now: Wall) -> Option<Self> {
        let clock = now.as_ms().min(CLOCK_CAP_MS) << 10;
        let first = last.0.checked_add(1)?.max(clock);
        let end = first.checked_add(size - 1)?;
        (end < END).then_some(Self { first: Token(first), last: Token(end) })
    }
}
