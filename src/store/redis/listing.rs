//! The keys that are in use.

use std::{format, string::String, vec::Vec};

use redis::{Value, cmd};
use tokio::time::Instant;

use super::{
    attempt::Place,
    failure::{self, Stage},
};
use crate::machine::{Key, StoreError};
use crate::store::idle::is_idle;

/// Rows that the server looks at in one go, while all its other clients wait.
const AT_ONCE: usize = 500;
/// Before each key, in the name of its row.
const BEFORE: &str = "lease:";

/// Where the next page begins, and the rows of this one: names and texts.
type Page = (String, Vec<(Vec<u8>, Vec<u8>)>);

/// Steps through all rows, and leaves out the keys of idle records. A record that is made meanwhile may be missed.
pub(super) async fn keys(place: &Place, prefix: &str) -> Result<Vec<Key>, StoreError> {
    let pattern = format!("{BEFORE}{}*", literally(prefix));
    let (mut cursor, mut keys) = (String::from("0"), Vec::new());
    let mut connection = place.link.opened();
    loop {
        let mut scan = cmd("HSCAN");
        scan.arg(&place.rows).arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(AT_ONCE);
        let page = place.link.send(&scan, Stage::Reading).await?;
        let (next, rows): Page = redis::from_redis_value(page).map_err(|_| failure::of_answer(Stage::Reading))?;
        let used = rows.into_iter().filter(|(_, text)| !core::str::from_utf8(text).is_ok_and(is_idle));
        keys.extend(used.filter_map(|(name, _)| key_of(name)));
        if next == "0" {
            check_role(place).await?;
        }
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

/// A master that was made a replica keeps its connections, and answers from old rows. The scripts notice that by themselves. If the user
/// may not ask for the role, the list is not checked.
async fn check_role(place: &Place) -> Result<(), StoreError> {
    let Ok(Value::Array(role)) = place.link.ask(&cmd("ROLE"), Stage::Reading).await? else { return Ok(()) };
    if !matches!(role.first(), Some(Value::BulkString(role)) if role == b"slave") {
        return Ok(());
    }
    place.link.forget(Instant::now());
    let address = place.link.address();
    Err(StoreError::transient(format!("Redis at {address}: connect to the master: this is a replica")))
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
