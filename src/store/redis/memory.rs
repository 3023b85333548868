//! The rows as this process saw them last.

use std::{
    collections::HashMap,
    string::{String, ToString},
    sync::{Arc, MutexGuard},
    vec::Vec,
};

use crate::executor::Mutex;

/// What stands under the name of a row, and its digest, which Redis computes by `redis.sha1hex`.
#[derive(Debug)]
pub(super) struct Text {
    bytes: Vec<u8>,
    pub(super) digest: String,
}

impl Text {
    pub(super) fn new(bytes: Vec<u8>) -> Arc<Self> {
        let digest = sha1_smol::Sha1::from(&bytes).digest().to_string();
        Arc::new(Self { bytes, digest })
    }

    /// As text. If the bytes are not text, the result cannot be read as a row either.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// In bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// A row by its name, and what stands there; `None` if nothing does.
pub(super) type Found = Option<Arc<Text>>;

/// How many rows are remembered.
const REMEMBERED: usize = 4_096;

/// What this process saw last. A guess: what rests on it is written only if it still stands.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<HashMap<String, Arc<Text>>>);

impl Memory {
    fn texts(&self) -> MutexGuard<'_, HashMap<String, Arc<Text>>> {
        self.0.lock()
    }

    pub(super) fn guess(&self, name: &str) -> Found {
        self.texts().get(name).cloned()
    }

    pub(super) fn learn(&self, name: &str, found: Found) {
        let mut texts = self.texts();
        let Some(text) = found else {
            texts.remove(name);
            return;
        };
        if texts.len() >= REMEMBERED {
            texts.clear();
        }
        texts.insert(name.to_string(), text);
    }
}
