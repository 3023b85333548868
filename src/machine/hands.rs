//! Who held a key last: whether what a context remembers of it may be out of date.

use super::{Machine, key::Key, mode::Mode, operation::Granted, sorted::SortedMap, token::Token};

/// The keys that this context held, and whether another one wrote since.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Hands(SortedMap<Key, Hand>);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Hand {
    /// The last token of the latest exclusive grant that this context knows of.
    known: Option<Token>,
    changed: bool,
}

impl Hands {
    /// A lease was granted; one that was resumed is no change of hands.
    pub(super) fn granted(&mut self, key: &Key, mode: Mode, granted: &Granted, resumed: bool) {
        let hand = self.0.or_default(key.clone());
        hand.changed |= !resumed && hand.known.is_some_and(|known| known != granted.previous);
        hand.known = Some(if mode == Mode::Exclusive { granted.block.last } else { granted.previous });
    }

    /// An exclusive lease got more tokens.
    pub(super) fn refilled(&mut self, key: &Key, mode: Mode, last: Token) {
        if mode == Mode::Exclusive {
            self.0.or_default(key.clone()).known = Some(last);
        }
    }

    pub(super) fn clear_changed(&mut self, key: &Key) {
        self.0.or_default(key.clone()).changed = false;
    }
}

impl Machine {
    /// Whether another context held the key exclusively since this one did, and nobody
    /// [took note](super::Input::ClearChanged) of it.
    pub fn changed_hands(&self, key: &Key) -> bool {
        self.hands.0.get(key).is_some_and(|hand| hand.changed)
    }
}
