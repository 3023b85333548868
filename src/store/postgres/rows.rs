//! The rows that a transaction reads and writes, and the statements for it.

use std::{string::String, vec::Vec};

use super::{
    carrier::{Answers, Round, Row as Found},
    literal::{bytes, bytes_list, hex, numbers, optional_text, text},
    names::{Names, bytes_of, bytes_of_key, end_of, key_of, long_form},
    often::Often,
};
use crate::machine::{FORMAT, Key, Records, Row, SessionId};
use crate::store::sweep::MANY;

/// The version of the tables that this program knows.
pub(super) const SCHEMA: i32 = 1;

/// How a row is locked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// The row is not locked, and may change after this.
    Not,
    /// Others may only read it until the transaction ends.
    Share,
    /// Nobody else may even lock it.
    Update,
    /// The same, but without waiting: the statement fails if somebody else has locked a row.
    UpdateAtOnce,
}

impl Hold {
    const fn clause(self) -> &'static str {
        match self {
            Self::Not => "",
            Self::Share => " FOR SHARE",
            Self::Update => " FOR UPDATE",
            Self::UpdateAtOnce => " FOR UPDATE NOWAIT",
        }
    }
}

/// What a user does with the rows.
#[derive(Clone, Copy)]
pub(super) enum Access {
    /// Reads them.
    Look,
    /// Reads, locks, writes and deletes them.
    Change,
}

/// The store's own row.
pub(super) struct StoreText {
    pub(super) schema: i32,
    /// `None` in a new store.
    pub(super) text: Option<String>,
}

impl StoreText {
    /// What [`Names::read_store`] found; `None` if somebody deleted the row.
    pub(super) fn of(answers: &Answers, place: usize) -> Option<Self> {
        let row = answers.first(place)?;
        let schema = row.text(0).and_then(|number| number.parse().ok()).unwrap_or_default();
        Some(Self { schema, text: row.text(1).map(String::from) })
    }
}

/// The statements.
impl Names {
    /// Waits for these advisory locks, and shares them with other fences until the transaction ends. Ever more transactions could lock a
    /// row `FOR SHARE` while another one waits to change it. With this lock they queue behind that one.
    pub(super) fn lock_shared(&self, locks: &[i64]) -> String {
        format!("SELECT pg_advisory_xact_lock_shared(number) FROM unnest({}) AS number", numbers(locks))
    }

    /// Locks and reads the records of these keys.
    pub(super) fn lock_records(&self, keys: &[Key], round: &mut Round) -> usize {
        match keys {
            [only] => round.run(Often::Record, self, &[&bytes(&bytes_of_key(only))]),
            _ => round.add(&self.read_records(keys, Hold::Update)),
        }
    }

    /// Locks and reads the rows of these sessions.
    pub(super) fn lock_sessions(&self, sessions: &[SessionId], round: &mut Round) -> usize {
        match sessions {
            [only] => round.run(Often::Session, self, &[&bytes(&bytes_of(*only))]),
            _ => round.add(&self.read_sessions(sessions, Hold::Update)),
        }
    }

    /// The records of these keys, locked in their order.
    pub(super) fn read_records(&self, keys: &[Key], hold: Hold) -> String {
        let keys: Vec<_> = keys.iter().map(bytes_of_key).collect();
        self.read("record", "key", keys.iter().map(AsRef::as_ref), hold)
    }

    /// The rows of these sessions, locked in their order.
    pub(super) fn read_sessions(&self, sessions: &[SessionId], hold: Hold) -> String {
        let ids: Vec<_> = sessions.iter().copied().map(bytes_of).collect();
        self.read("session", "id", ids.iter().map(<[u8; 16]>::as_slice), hold)
    }

    /// The server plans the search for one row in half the time of a search for several in their order.
    fn read<'a>(
        &self,
        table: &str,
        column: &str,
        wanted: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
        hold: Hold,
    ) -> String {
        let (table, clause) = (self.table(table), hold.clause());
        let condition = match wanted.clone().next() {
            Some(only) if wanted.len() == 1 => format!("= {}", bytes(only)),
            _ => format!("= ANY({}) ORDER BY {column}", bytes_list(wanted)),
        };
        format!("SELECT encode({column}, 'hex'), text FROM {table} WHERE {column} {condition}{clause}")
    }

    /// Up to this many sessions that follow this one, and the first of all after the last. They are not locked: whoever ends one of them
    /// looks at it again.
    pub(super) fn read_peers(&self, session: SessionId, wanted: usize) -> String {
        let (table, id) = (self.table("session"), bytes(&bytes_of(session)));
        format!(
            "(SELECT encode(id, 'hex'), text FROM {table} WHERE id > {id} ORDER BY id LIMIT {wanted}) UNION ALL \
             (SELECT encode(id, 'hex'), text FROM {table} WHERE id < {id} ORDER BY id LIMIT {wanted}) LIMIT {wanted}"
        )
    }

    /// The keys with this prefix, in their short form and in their long one, without those of idle records. This reads the records of all
    /// keys with the prefix. An index of the records in use would make each write of a record dearer, because the server would have to
    /// write its index entries, too.
    pub(super) fn read_keys(&self, prefix: &str) -> String {
        let (table, first, end) = (self.table("record"), bytes(prefix.as_bytes()), bytes(&end_of(prefix)));
        let (long, length) = (long_form(prefix), long_form(prefix).len());
        let (long, is_used) = (bytes(&long), format!("NOT ({})", is_idle()));
        format!(
            "SELECT encode(key, 'hex') FROM {table} WHERE key >= {first} AND key < {end} AND {is_used} UNION ALL \
             SELECT encode(key, 'hex') FROM {table} WHERE key >= {long} AND substr(key, 1, {length}) = {long} AND {is_used}"
        )
    }

    /// Asks whether policies may hide rows from the user: whether they are active for the user, and do not show every row of each table.
    /// Any condition but `true` counts as one that may hide rows. The policies of UPDATE hide rows from whoever locks them, too. The second
    /// column says whether one of the tables is no table: a view may hide rows by its own condition.
    pub(super) fn ask_hiding(&self, access: Access) -> String {
        let tables = ["store", "record", "session"].map(|kind| text(&self.table(kind))).join(", ");
        let commands = match access {
            Access::Look => "r",
            Access::Change => "r,w,d",
        };
        format!(
            "SELECT bool_or(row_security_active(relation) AND NOT coalesce((SELECT bool_or(polpermissive AND shows) AND \
             bool_and(polpermissive OR shows) FROM (SELECT polpermissive, pg_get_expr(polqual, polrelid) = 'true' AS shows FROM pg_policy \
             WHERE polrelid = relation AND polcmd IN ('*', command) AND EXISTS (SELECT FROM unnest(polroles) AS role \
             WHERE role = 0 OR pg_has_role(role, 'USAGE'))) AS policies), false)), \
             bool_or((SELECT relkind NOT IN ('r', 'p') FROM pg_class WHERE oid = relation)) FROM unnest(ARRAY[{tables}]::regclass[]) AS relation, \
             unnest('{{{commands}}}'::\"char\"[]) AS command"
        )
    }

    /// Finds a row if there are many records.
    pub(super) fn find_crowding(&self) -> String {
        // By the index, so that deleted rows which are not yet vacuumed cost nothing.
        format!("SELECT true FROM {} ORDER BY key OFFSET {MANY} LIMIT 1", self.table("record"))
    }

    /// This many records that follow the one of this key; `None` for the first ones.
    pub(super) fn read_page(&self, after: Option<&Key>, most: usize) -> String {
        let after = after.map(|key| format!(" WHERE key > {}", bytes(&bytes_of_key(key)))).unwrap_or_default();
        format!("SELECT encode(key, 'hex'), text FROM {}{after} ORDER BY key LIMIT {most}", self.table("record"))
    }

    /// The store's own row.
    pub(super) fn read_store(&self, hold: Hold) -> String {
        format!("SELECT schema, text FROM {}{}", self.table("store"), hold.clause())
    }

    /// Writes the store's own row if it is still what was read, and then finds a row.
    pub(super) fn write_store(&self, read: Option<&str>, written: &str) -> String {
        let (table, written, read) = (self.table("store"), text(written), optional_text(read));
        format!("UPDATE {table} SET text = {written} WHERE text IS NOT DISTINCT FROM {read} RETURNING true")
    }

    /// Writes or deletes rows of records and sessions, each table's in one statement. `own` is the session that writes, and its beacon.
    pub(super) fn write(&self, changed: &Changed, own: Option<&(SessionId, String)>, round: &mut Round) {
        let Changed { records, sessions, .. } = changed;
        let rows = records.written.iter().map(|(key, written)| vec![bytes(key), text(written)]);
        self.write_rows(Often::WriteRecord, rows.collect(), round);
        let beacon = |id: &[u8]| match own {
            Some((own, beacon)) if bytes_of(*own) == *id => text(beacon),
            _ => "NULL::text".into(),
        };
        let rows = sessions.written.iter().map(|(id, written)| vec![bytes(id), text(written), beacon(id)]);
        self.write_rows(Often::WriteSession, rows.collect(), round);
        for (table, column, rows) in [("record", "key", records), ("session", "id", sessions)] {
            if !rows.deleted.is_empty() {
                let (table, names) = (self.table(table), bytes_list(rows.deleted.iter().map(Vec::as_slice)));
                round.add(&format!("DELETE FROM {table} WHERE {column} = ANY({names})"));
            }
        }
    }

    /// Writes rows with these values, by a statement for one row or for many.
    fn write_rows(&self, one: Often, rows: Vec<Vec<String>>, round: &mut Round) {
        let place = match &rows[..] {
            [] => return,
            [only] => round.run(one, self, &only.iter().map(String::as_str).collect::<Vec<_>>()),
            _ => {
                let values: Vec<_> = rows.iter().map(|row| format!("({})", row.join(", "))).collect();
                let values = values.join(", ");
                let is_of_records = one == Often::WriteRecord;
                round.add(&if is_of_records { self.write_records(&values) } else { self.write_sessions(&values) })
            }
        };
        round.writes(place, rows.len());
    }

    pub(super) fn write_records(&self, values: &str) -> String {
        let table = self.table("record");
        format!("INSERT INTO {table} (key, text) VALUES {values} ON CONFLICT (key) DO UPDATE SET text = excluded.text")
    }

    /// A NULL leaves `beacon_on` as it is.
    pub(super) fn write_sessions(&self, values: &str) -> String {
        let table = self.table("session");
        format!(
            "INSERT INTO {table} AS old (id, text, beacon_on) VALUES {values} ON CONFLICT (id) DO UPDATE \
             SET text = excluded.text, beacon_on = coalesce(excluded.beacon_on, old.beacon_on)"
        )
    }

    /// Reads which of these sessions have a row that does not name this [run](super::standing) of the server. `run` is an SQL expression.
    pub(super) fn read_elsewhere(&self, sessions: &[SessionId], run: &str) -> String {
        let ids: Vec<_> = sessions.iter().copied().map(bytes_of).collect();
        let (table, ids) = (self.table("session"), bytes_list(ids.iter().map(<[u8; 16]>::as_slice)));
        format!("SELECT encode(id, 'hex') FROM {table} WHERE id = ANY({ids}) AND beacon_on IS DISTINCT FROM {run}")
    }

    pub(super) fn delete_session(&self, session: SessionId) -> String {
        format!("DELETE FROM {} WHERE id = {}", self.table("session"), bytes(&bytes_of(session)))
    }
}

/// The rows of one table that a batch changed.
#[derive(Default)]
pub(super) struct Rows {
    written: Vec<(Vec<u8>, String)>,
    deleted: Vec<Vec<u8>>,
}

impl Rows {
    fn note(&mut self, name: &[u8], text: Option<String>) {
        match text {
            Some(text) => self.written.push((name.to_owned(), text)),
            None => self.deleted.push(name.to_owned()),
        }
    }

    const fn is_empty(&self) -> bool {
        self.written.is_empty() && self.deleted.is_empty()
    }

    /// The text under a name after the changes. `read` is the text that stood there before them.
    fn text_after<'a>(&'a self, name: &[u8], read: Option<&'a str>) -> Option<&'a str> {
        let written = self.written.iter().find(|(written, _)| written == name);
        match written {
            Some((_, text)) => Some(text),
            None => read.filter(|_| !self.deleted.iter().any(|deleted| deleted == name)),
        }
    }
}

/// What a batch changed.
#[derive(Default)]
pub(super) struct Changed {
    records: Rows,
    sessions: Rows,
    /// The sessions to which the rows in `sessions` belong.
    pub(super) owners: Vec<SessionId>,
    pub(super) store: Option<String>,
}

impl Changed {
    pub(super) fn take(records: &mut Records) -> Self {
        let mut changed = Self::default();
        for row in records.take_changed() {
            let text = records.text(&row);
            match row {
                Row::Record(key) => changed.records.note(&bytes_of_key(&key), text),
                Row::Session(session) => {
                    changed.owners.push(session);
                    changed.sessions.note(&bytes_of(session), text);
                }
                Row::Store => changed.store = text,
            }
        }
        changed
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.records.is_empty() && self.sessions.is_empty() && self.store.is_none()
    }

    /// The record of a key after the changes. `read` is the record that stood there before them.
    pub(super) fn record_after<'a>(&'a self, key: &Key, read: Option<&'a str>) -> Option<&'a str> {
        self.records.text_after(&bytes_of_key(key), read)
    }

    /// The row of a session after the changes. `read` is the row that stood there before them.
    pub(super) fn session_after<'a>(&'a self, session: SessionId, read: Option<&'a str>) -> Option<&'a str> {
        self.sessions.text_after(&bytes_of(session), read)
    }
}

/// Puts into `records` what the table of records had, or had not, under these keys.
pub(super) fn load_records(records: &mut Records, keys: &[Key], found: &[Found]) {
    for key in keys {
        records.load(key.clone(), text_of_record(found, key));
    }
}

/// The record that the table of records has under this key.
pub(super) fn text_of_record<'a>(found: &'a [Found], key: &Key) -> Option<&'a str> {
    text_of(found, &bytes_of_key(key))
}

/// The row that the table of sessions has under this id.
pub(super) fn text_of_session(found: &[Found], session: SessionId) -> Option<&str> {
    text_of(found, &bytes_of(session))
}

/// The session in a row that [`Names::read_peers`] found. A row whose name is no id was put there by somebody else.
pub(super) fn session_of(row: &Found) -> Option<SessionId> {
    SessionId::from_digits(row.text(0)?)
}

/// A condition in SQL. It is true if a record has the text that [`Records::text`] writes if nobody uses the record, in this format and with
/// no number out of range. A record in any other form counts as one in use. (A regular expression takes several times as long, because
/// the server compiles a part of it anew for each row.)
fn is_idle() -> String {
    let fields = [
        ("split_part(text, ',', 2)", r#""last_token":"#),
        ("split_part(text, ',', 3)", r#""revision":"#),
        ("left(split_part(text, ',', 6), -1)", r#""last_exclusive":"#),
    ];
    let [(token, _), (revision, _), (exclusive, _)] = fields;
    let [begin, rest, end] = [&format!(r#"{{"format":{FORMAT},"#), r#","grants":[],"queue":[],"#, "}"].map(text);
    // No token has more digits, and none that has so many begins with a 9.
    let numbers = fields.map(|(field, name)| {
        let (least, most, above) = (name.len() + 1, name.len() + 16, text(&format!("{name}9")));
        let name = text(name);
        format!(
            "octet_length({field}) BETWEEN {least} AND {most} AND rtrim({field}, '0123456789') = {name} \
             AND (octet_length({field}) < {most} OR {field} COLLATE \"C\" < {above})"
        )
    });
    // There is nothing else: a later version may have written more fields.
    let whole = format!("{begin} || {token} || ',' || {revision} || {rest} || {exclusive} || {end}");
    format!("text COLLATE \"C\" = {whole} AND {}", numbers.join(" AND "))
}

/// The keys that [`Names::read_keys`] found, in order. A name that is no key was put there by somebody else.
pub(super) fn keys_of(found: &[Found]) -> Vec<Key> {
    let key = |row: &Found| {
        let digits = row.text(0)?.as_bytes();
        let byte = |pair: &[u8]| u8::from_str_radix(core::str::from_utf8(pair).ok()?, 16).ok();
        key_of(&digits.chunks(2).map(byte).collect::<Option<Vec<u8>>>()?)
    };
    let mut keys: Vec<Key> = found.iter().filter_map(key).collect();
    keys.sort_unstable();
    keys
}

/// The text beside a name, which is the first column. The rows stand in the order of their names, and so of their digits.
fn text_of<'a>(found: &'a [Found], name: &[u8]) -> Option<&'a str> {
    let name = hex(name);
    let place = found.binary_search_by(|row| row.text(0).unwrap_or_default().cmp(&name)).ok()?;
    found[place].text(1)
}
