//! What a store is called in its database: its tables, its advisory locks, its channels.

use crate::machine::{Key, SessionId};
use crate::store::Reach;

/// PostgreSQL cuts names after 63 bytes, and the longest suffix has 8.
const LONGEST_PREFIX: usize = 50;
/// So begins what [`Reach::Named`] says of such a store.
const KIND: &str = "postgres";

/// Where a store is: which cluster, which database, which schema, and which prefix its tables have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names {
    /// Of the cluster and the database, as the server says; no part has a colon.
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

    /// The table as people are told of it.
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

    /// The advisory lock that a session has while it listens.
    pub(super) fn ear(&self, session: SessionId) -> i64 {
        self.number("ear", &bytes_of(session))
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

    /// Two versions of this crate must take the same locks.
    #[test]
    fn the_numbers_of_locks_never_change() {
        let key = Key::new("notes").unwrap();
        let numbers = [names("public").lock_of_key(&key), names("public").lock_of_session(SessionId(7))];
        assert_eq!(numbers, [-6_437_018_197_104_263_828, 981_792_539_549_181_293]);
        assert_ne!(names("public").lock_of_key(&key), names("other").lock_of_key(&key));
    }

    #[test]
    fn a_channel_fits_into_a_name_of_the_database() {
        assert!(names("public").channel_of(SessionId(u128::MAX)).len() <= 63);
    }
}
