//! The names of a store in its database: its tables, its advisory locks, its channels.

use std::borrow::Cow;

use crate::machine::{Key, SessionId};
use crate::store::Reach;

/// PostgreSQL cuts names after 63 bytes, and the longest suffix has 8.
const LONGEST_PREFIX: usize = 50;
/// The beginning of the [`Reach::Named`] of such a store.
const KIND: &str = "postgres";

/// Where a store is: which cluster, which database, which schema, and which prefix its tables have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names {
    /// The ids of the cluster and the database, as the server reports them, without colons.
    pub(super) database: String,
    pub(super) prefix: String,
    pub(super) schema: String,
}

/// Whether a prefix can stand in a name without quotes, and means the same with them.
pub(super) fn is_plain(prefix: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    prefix.len() <= LONGEST_PREFIX
        && prefix.bytes().next().is_some_and(is_letter)
        && prefix.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit())
}

impl Names {
    pub(super) fn reach(&self) -> Reach {
        Reach::Named(format!("{KIND}:{}:{}:{}", self.database, self.prefix, self.schema))
    }

    /// The names behind a reach, if it is that of such a store.
    pub(super) fn of(reach: &Reach) -> Option<Self> {
        let Reach::Named(name) = reach else { return None };
        let mut parts = name.strip_prefix(KIND)?.strip_prefix(':')?.splitn(3, ':').map(String::from);
        Some(Self { database: parts.next()?, prefix: parts.next()?, schema: parts.next()? })
    }

    /// A table with its schema: whatever a session searches first, it is the same table.
    pub(super) fn table(&self, kind: &str) -> String {
        format!("\"{}\".{}_{kind}", self.schema.replace('"', "\"\""), self.prefix)
    }

    /// The table's name as messages show it.
    pub(super) fn plain_table(&self, kind: &str) -> String {
        format!("{}_{kind}", self.prefix)
    }

    /// The advisory lock of a key.
    pub(super) fn lock_of_key(&self, key: &Key) -> i64 {
        self.number("key", key.as_str().as_bytes())
    }

    /// The advisory lock that transactions of one session take.
    pub(super) fn lock_of_session(&self, session: SessionId) -> i64 {
        self.number("session", &bytes_of(session))
    }

    /// The advisory lock that is a session's beacon.
    pub(super) fn beacon(&self, session: SessionId) -> i64 {
        self.number("beacon", &bytes_of(session))
    }

    /// The advisory lock that a session has while it waits and watches others.
    pub(super) fn waits(&self, session: SessionId) -> i64 {
        self.number("waits", &bytes_of(session))
    }

    /// The advisory lock that a session has while it listens.
    pub(super) fn ear(&self, session: SessionId) -> i64 {
        self.number("ear", &bytes_of(session))
    }

    /// The advisory lock of this one of a session's connections.
    pub(super) fn link(&self, session: SessionId, number: u64) -> i64 {
        self.number("link", &[&bytes_of(session)[..], &number.to_be_bytes()].concat())
    }

    /// The advisory lock of whoever makes the tables.
    pub(super) fn lock_of_schema(&self) -> i64 {
        self.number("schema", b"")
    }

    /// The channel that all contexts listen to.
    pub(super) fn channel(&self) -> String {
        format!("leasehold_{:016x}", self.number("channel", b""))
    }

    /// The channel that one session listens to.
    pub(super) fn channel_of(&self, session: SessionId) -> String {
        format!("{}_{session}", self.channel())
    }

    /// The name of a prepared statement. No two stores of a database share one: a pooler may give a connection to both in turn.
    pub(super) fn prepared(&self, end: &str) -> String {
        format!("leasehold_{:016x}_{end}", self.number("prepared", b""))
    }

    /// 64 bits of FNV-1a: every version must draw the same number. Advisory locks are the database's, so it need not be named.
    fn number(&self, kind: &str, name: &[u8]) -> i64 {
        let parts = [b"leasehold", self.schema.as_bytes(), self.prefix.as_bytes(), kind.as_bytes(), name];
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        for part in parts {
            part.iter().copied().for_each(&mut add);
            add(0);
        }
        hash.cast_signed()
    }
}

/// A session's id as its table keeps it: in the order of the numbers.
pub(super) fn bytes_of(session: SessionId) -> [u8; 16] {
    session.0.to_be_bytes()
}

/// PostgreSQL indexes values of up to 2,704 bytes, including some bytes of overhead.
const LONGEST_PLAIN: usize = 2_600;
/// The mark of a long form: no UTF-8 has this byte.
const LONG: u8 = 0xff;

/// A key as its table keeps it: as UTF-8; or, if that is too long for an index, as a mark and UTF-16, which takes 2,048 bytes at most.
/// Only the names of locks can be longer than that.
pub(super) fn bytes_of_key(key: &Key) -> Cow<'_, [u8]> {
    let plain = key.as_str().as_bytes();
    if plain.len() <= LONGEST_PLAIN { Cow::Borrowed(plain) } else { Cow::Owned(long_form(key.as_str())) }
}

/// The prefix that the long forms of all keys with this prefix share.
pub(super) fn long_form(prefix: &str) -> Vec<u8> {
    let units = prefix.encode_utf16().flat_map(u16::to_be_bytes);
    core::iter::once(LONG).chain(units).collect()
}

/// An upper bound for all short forms with this prefix, because no UTF-8 has such a byte. Larger values have another prefix.
pub(super) fn end_of(prefix: &str) -> Vec<u8> {
    [prefix.as_bytes(), &[LONG]].concat()
}

/// The key that these bytes stand for. Bytes that stand for none were put there by somebody else.
pub(super) fn key_of(bytes: &[u8]) -> Option<Key> {
    match bytes.strip_prefix(&[LONG]) {
        None => Key::new(core::str::from_utf8(bytes).ok()?).ok(),
        Some(long) => {
            let units: Vec<u16> =
                long.chunks(2).map(|unit| unit.iter().fold(0, |all, byte| all << 8 | u16::from(*byte))).collect();
            Key::from_utf16(&units).ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(schema: &str) -> Names {
        Names { database: "7:16384".replace(':', "/"), prefix: "leasehold".into(), schema: schema.into() }
    }

    #[test]
    fn a_reach_names_the_tables_again() {
        for schema in ["public", "a:b", "with \"quotes\""] {
            assert_eq!(Names::of(&names(schema).reach()), Some(names(schema)));
        }
        assert_eq!(Names::of(&Reach::Process(1)), None);
        assert_eq!(Names::of(&Reach::Named("leasehold:app".into())), None);
    }

    #[test]
    fn a_prefix_is_a_plain_identifier() {
        for plain in ["leasehold", "_a9", "a"] {
            assert!(is_plain(plain), "{plain}");
        }
        for other in ["", "9a", "A", "a-b", "a b", "a\"", "a.b", "ä", &"a".repeat(51)] {
            assert!(!is_plain(other), "{other}");
        }
    }

    #[test]
    fn a_key_comes_back_from_its_bytes_and_fits_into_an_index() {
        for name in
            ["a", "\0", "\u{ffff}", &"\u{4e00}".repeat(1_024), &"\u{1f98a}".repeat(512), &"\u{ffff}".repeat(1_024)]
        {
            let key = Key::new(name).unwrap();
            let bytes = bytes_of_key(&key);
            assert!(bytes.len() <= LONGEST_PLAIN, "{} bytes", bytes.len());
            assert_eq!(key_of(&bytes), Some(key));
        }
        assert_eq!(key_of(&[LONG]), None);
        assert_eq!(key_of(&[b'a', LONG]), None);
    }

    /// Two versions of this crate must take the same locks.
    #[test]
    fn the_numbers_of_locks_never_change() {
        let key = Key::new("notes").unwrap();
        let numbers = [names("public").lock_of_key(&key), names("public").lock_of_session(SessionId(7))];
        assert_eq!(numbers, [-6_437_018_197_104_263_828, 981_792_539_549_181_293]);
        let session = [Names::beacon, Names::ear, Names::waits].map(|lock| lock(&names("public"), SessionId(7)));
        assert_eq!(session, [4_746_207_125_424_032_789, 5_897_979_666_883_748_745, -2_352_491_695_355_044_337]);
        assert_ne!(names("public").lock_of_key(&key), names("other").lock_of_key(&key));
    }

    #[test]
    fn a_channel_fits_into_a_name_of_the_database() {
        assert!(names("public").channel_of(SessionId(u128::MAX)).len() <= 63);
    }
}
