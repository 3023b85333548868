//! What a context leaves behind when the platform stops it: it has no time to release anything.

use alloc::{string::String, vec::Vec};

use super::{
    id::Incarnation,
    json::{Extra, Fields, Object, quoted},
    key::Key,
    record::{FORMAT, Record},
};

/// Says that an incarnation is gone: none of its grants and places counts any more. One serves all keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tombstone {
    /// Who is gone.
    pub holder: Incarnation,
    /// Where it may have left something. When all of these were cleaned, nothing names it any more.
    pub keys: Vec<Key>,
}

impl Tombstone {
    /// Writes the keys down. It is stored under the name of its holder.
    pub fn encode(&self) -> String {
        let key = |key: &Key| quoted(key.as_str());
        Object::new().number("format", FORMAT).list("keys", &self.keys, key).end(&Extra::default())
    }

    /// Reads what [`encode`](Self::encode) wrote. `None` if it is of a newer format or cannot be read: its holder is gone
    /// all the same.
    pub fn decode(holder: Incarnation, text: &str) -> Option<Self> {
        let mut fields = Fields::read(text)?;
        let mut keys = Vec::new();
        for name in &fields.texts("keys") {
            keys.push(Key::new(name).ok()?);
        }
        (fields.number("format") == FORMAT && fields.is_sound()).then_some(Self { holder, keys })
    }
}

/// The tombstones that a transaction knows of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Graves(Vec<Grave>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Grave {
    holder: Incarnation,
    /// `None` if it could not be read: it is left as it is.
    tombstone: Option<Tombstone>,
    changed: bool,
}

impl Graves {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn add(&mut self, holder: Incarnation, tombstone: Option<Tombstone>) {
        self.0.retain(|grave| grave.holder != holder);
        self.0.push(Grave { holder, tombstone, changed: false });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn hold(&self, holder: Incarnation) -> bool {
        self.0.iter().any(|grave| grave.holder == holder)
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        let mut keys = Vec::new();
        for tombstone in self.0.iter().flat_map(|grave| &grave.tombstone) {
            keys.extend_from_slice(&tombstone.keys);
        }
        keys
    }

    /// Forgets the keys that were cleaned.
    pub(super) fn settle(&mut self, is_clean: impl Fn(Incarnation, &Key) -> bool) {
        for grave in &mut self.0 {
            let Some(Tombstone { keys, .. }) = &mut grave.tombstone else { continue };
            let before = keys.len();
            keys.retain(|key| !is_clean(grave.holder, key));
            // One without keys says of nobody where it was: it would stand for ever.
            grave.changed |= keys.len() < before || keys.is_empty();
        }
    }

    /// What must be written: the shortened tombstones, and `None` for those that nothing names any more.
    pub(super) fn take_changed(&mut self) -> Vec<(Incarnation, Option<String>)> {
        let mut written = Vec::new();
        self.0.retain_mut(|grave| {
            let Some(tombstone) = &grave.tombstone else { return true };
            let is_named = !tombstone.keys.is_empty();
            if core::mem::take(&mut grave.changed) {
                written.push((grave.holder, is_named.then(|| tombstone.encode())));
            }
            is_named
        });
        written
    }
}

impl Record {
    /// Removes what those who are gone left here. Whether there was anything.
    pub(super) fn clean(&mut self, graves: &Graves) -> bool {
        if graves.is_empty() {
            return false;
        }
        self.keep(&|grant| !graves.hold(grant.holder), &|waiter| !graves.hold(waiter.holder))
    }

    /// Whether it has an entry whose holder is like this.
    pub(super) fn names(&self, is_it: impl Fn(Incarnation) -> bool) -> bool {
        self.grants.iter().any(|grant| is_it(grant.holder)) || self.queue.iter().any(|waiter| is_it(waiter.holder))
    }
}
