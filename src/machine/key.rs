//! Keys: the names of leased resources.

use alloc::{string::String, sync::Arc, vec::Vec};
use core::{
    cmp::Ordering,
    fmt::{self, Write as _},
};

/// A key longer than this many UTF-16 units is refused.
pub const KEY_LIMIT: usize = 1024;

/// The prefix of the keys that `leases.locks` of the npm package uses. The name of a lock follows it, in any length, escaped by the caller.
pub const LOCK_PREFIX: &str = "\0lock:";

/// The checked name of a leased resource: not empty, and at most [`KEY_LIMIT`] UTF-16 units. A key that begins with [`LOCK_PREFIX`] may
/// have any length.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Arc<str>);

impl Ord for Key {
    /// Most of the keys that are compared are clones of each other, so their texts need not be read.
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Why a name is not a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidKey {
    /// The name is empty.
    Empty,
    /// The name is longer than [`KEY_LIMIT`].
    TooLong {
        /// The name's length in UTF-16 units.
        units: usize,
    },
    /// The name has half of a surrogate pair, so it is not well-formed text and cannot be stored faithfully.
    LoneSurrogate {
        /// Its position, in UTF-16 units from the start.
        at: usize,
    },
    /// The name begins with [`LOCK_PREFIX`].
    Reserved,
}

/// A name in quotes, as errors show it: no control character of a key reaches a terminal. Rust's own `{:?}` would add its tables
/// of printable characters to the wasm.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("\"")?;
        for character in self.0.chars() {
            match character {
                '"' | '\\' => {
                    out.write_char('\\')?;
                    out.write_char(character)?;
                }
                _ if character.is_control() => write!(out, "\\u{{{:x}}}", u32::from(character))?,
                _ => out.write_char(character)?,
            }
        }
        out.write_str("\"")
    }
}

impl Key {
    /// Checks a name.
    ///
    /// # Errors
    /// [`InvalidKey`] if it is empty or too long.
    pub fn new(name: &str) -> Result<Self, InvalidKey> {
        let mut units = 0;
        for character in name.chars() {
            units += character.len_utf16();
        }
        match units {
            _ if name.starts_with(LOCK_PREFIX) => Ok(Self(name.into())),
            0 => Err(InvalidKey::Empty),
            1..=KEY_LIMIT => Ok(Self(name.into())),
            _ => Err(InvalidKey::TooLong { units }),
        }
    }

    /// Checks a name given in UTF-16, as JavaScript keeps its strings.
    ///
    /// # Errors
    /// [`InvalidKey`] if it is empty, too long, or has a lone surrogate.
    pub fn from_utf16(units: &[u16]) -> Result<Self, InvalidKey> {
        let mut name = String::with_capacity(units.len());
        let mut at = 0;
        for unit in char::decode_utf16(units.iter().copied()) {
            let character = unit.map_err(|_| InvalidKey::LoneSurrogate { at })?;
            at += character.len_utf16();
            name.push(character);
        }
        Self::new(&name)
    }

    /// Adds this key to a sorted list, unless the list has it already.
    pub(super) fn join(&self, keys: &mut Vec<Self>) {
        if let Err(at) = keys.binary_search(self) {
            keys.insert(at, self.clone());
        }
    }

    /// The key of the lock with this name, which must be escaped so that it is well-formed text.
    pub fn of_lock(name: &str) -> Self {
        Self([LOCK_PREFIX, name].concat().into())
    }

    /// Whether this is the key of a lock of `leases.locks`, which no user of other leases can name.
    pub fn is_of_lock(&self) -> bool {
        self.0.starts_with(LOCK_PREFIX)
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, out)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Display for InvalidKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => out.write_str("the key is empty; name what is leased"),
            Self::TooLong { units } => {
                write!(out, "the key has {units} UTF-16 units; shorten it to at most {KEY_LIMIT}")
            }
            Self::LoneSurrogate { at } => {
                write!(out, "the key has a lone surrogate at UTF-16 unit {at}; use well-formed text")
            }
            Self::Reserved => {
                out.write_str("the key begins with U+0000 and `lock:`, as those of `leases.locks` do; choose another")
            }
        }
    }
}

impl core::error::Error for InvalidKey {}
