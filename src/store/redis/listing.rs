//! The keys that have a record.

use std::{format, string::String, vec::Vec};

use redis::cmd;

use super::{
    attempt::Place,
    failure::{self, Stage},
};
use crate::machine::{Key, StoreError};

/// Rows that the server looks at in one go, while all its other clients wait.
const AT_ONCE: usize = 500;
/// Before each key, in the name of its row.
const BEFORE: &str = "lease:";

/// Steps through all rows. A record that is written meanwhile may be missed.
pub(super) async fn keys(place: &Place, prefix: &str) -> Result<Vec<Key>, StoreError> {
    let pattern = format!("{BEFORE}{}*", literally(prefix));
    let (mut cursor, mut keys) = (String::from("0"), Vec::new());
    let mut connection = place.link.opened();
    loop {
        let mut scan = cmd("HSCAN");
        scan.arg(&place.rows).arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(AT_ONCE);
        let page = place.link.send(&scan, Stage::Reading).await?;
        // Names and texts by turns.
        let (next, rows): (String, Vec<Vec<u8>>) =
            redis::from_redis_value(page).map_err(|_| failure::of_answer(Stage::Reading))?;
        keys.extend(rows.into_iter().step_by(2).filter_map(key_of));
        if place.link.opened() != connection {
            // A cursor means nothing to another server.
            connection = place.link.opened();
            cursor = String::from("0");
            keys.clear();
            continue;
        }
        if next == "0" {
            break;
        }
        cursor = next;
    }
    keys.sort_unstable();
    // A row may come twice while the server rearranges them.
    keys.dedup();
    Ok(keys)
}

/// The key whose record stands under this name, if it is such a name.
pub(super) fn key_of(name: Vec<u8>) -> Option<Key> {
    Key::new(String::from_utf8(name).ok()?.strip_prefix(BEFORE)?).ok()
}

/// A pattern that matches this text only.
fn literally(text: &str) -> String {
    let mut pattern = String::new();
    for letter in text.chars() {
        if matches!(letter, '*' | '?' | '[' | ']' | '^' | '\\') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}
