//! Fields that a newer version of the same format wrote: they stay with their entry, and go with it.

use leasehold::machine::{Record, RequestId, Row, Token};

use crate::shop::Texts;

const RECORD_FIELD: &str = "\"later\":{\"a\":[1,\"}\"]}";
const ENTRY_FIELD: &str = ":[1.5e3,null,{\"}\":\"\\u00e9\"}]";
const ENTRY: &str = "{\"holder\":\"";

/// What a newer version makes of a whole store.
pub(crate) fn added_everywhere(texts: &Texts, mut number: impl FnMut() -> u64) -> Texts {
    let marked = texts.iter().map(|(row, text)| {
        let marked = match row {
            Row::Record(_) => added(text, &mut number),
            _ if text.contains(RECORD_FIELD) => text.clone(),
            Row::Session(_) | Row::Store => text.replacen('{', &format!("{{{RECORD_FIELD},"), 1),
        };
        (row.clone(), marked)
    });
    marked.collect()
}

/// Panics unless the rows of sessions, and of the store, kept their unknown fields.
pub(crate) fn survive_in_rows(before: &Texts, after: &Texts) {
    for (row, text) in before.iter().filter(|(row, _)| !matches!(row, Row::Record(_))) {
        let kept = after.get(row).is_none_or(|after| after.contains(RECORD_FIELD) == text.contains(RECORD_FIELD));
        assert!(kept, "a row keeps what nobody knows: {text} became {:?}", after.get(row));
    }
}

/// Gives the record, and each entry that has none yet, a field of its own.
fn added(text: &str, number: &mut impl FnMut() -> u64) -> String {
    let mut pieces = text.split(ENTRY);
    let head = pieces.next().unwrap_or_default();
    let mut marked = match head.contains(RECORD_FIELD) || text.contains(RECORD_FIELD) {
        true => head.to_owned(),
        false => head.replacen('{', &format!("{{{RECORD_FIELD},"), 1),
    };
    for piece in pieces {
        if marks(piece).is_empty() {
            marked += &format!("{{\"mood {}\"{ENTRY_FIELD},{}{piece}", number(), &ENTRY[1..]);
        } else {
            marked += ENTRY;
            marked += piece;
        }
    }
    marked
}

/// The numbers of the fields in one entry's text, each as it was written.
fn marks(piece: &str) -> Vec<u64> {
    let names = piece.split("\"mood ").skip(1);
    let read = names.map(|rest| {
        let (number, value) = rest.split_once('"').expect("a name ends");
        assert!(value.starts_with(ENTRY_FIELD), "an unknown field stays as it stood: {value}");
        number.parse().expect("a number")
    });
    read.collect()
}

/// Panics unless every entry kept its unknown fields, and got no others.
pub(crate) fn survive(before: &Record, after: &Record) {
    let (old, new) = (before.encode(), after.encode());
    assert_eq!(old.matches(RECORD_FIELD).count(), new.matches(RECORD_FIELD).count(), "the record's fields survive");
    let (old, new): (Vec<_>, Vec<_>) = (old.split(ENTRY).skip(1).collect(), new.split(ENTRY).skip(1).collect());
    let origin = |holder, request: RequestId, token: Option<Token>| {
        let grants = before.grants.iter().position(|grant| Some(grant.block.first) == token);
        let waits = || before.queue.iter().position(|waiter| (waiter.holder, waiter.request) == (holder, request));
        grants.or_else(|| waits().map(|at| before.grants.len() + at))
    };
    let grants = after.grants.iter().map(|grant| origin(grant.holder, grant.request, Some(grant.block.first)));
    let waiters = after.queue.iter().map(|waiter| origin(waiter.holder, waiter.request, None));
    for (piece, origin) in new.into_iter().zip(grants.chain(waiters)) {
        let had = origin.map_or_else(Vec::new, |at| marks(old[at]));
        assert_eq!(marks(piece), had, "an entry keeps what nobody knows: {piece}");
    }
}
