//! Keys and times as JavaScript gives them.

use core::time::Duration;
use std::vec::Vec;

use js_sys::JsString;

use crate::{
    InvalidKey, Mode,
    machine::{KEY_LIMIT, Key},
};

/// Checks a key unit by unit: turned into UTF-8 first, keys with different halves of a surrogate pair would be one.
pub(super) fn key(name: &JsString) -> Result<Key, InvalidKey> {
    match name.length() as usize {
        units if units > KEY_LIMIT => Err(InvalidKey::TooLong { units }),
        _ => Key::from_utf16(&name.iter().collect::<Vec<_>>()),
    }
}

pub(super) fn mode(shared: bool) -> Mode {
    if shared { Mode::Shared } else { Mode::Exclusive }
}

/// A time that may be cut to whole ms. What is too large for the cast is out of every range.
pub(super) fn rounded_down(ms: f64) -> Duration {
    Duration::from_millis(ms as u64)
}

/// A time of which every bit counts.
pub(super) fn rounded_up(ms: f64) -> Duration {
    Duration::from_millis(ms.ceil() as u64)
}
