//! What a resource would remember of all grants of a key, whatever the store forgot since.

use std::collections::BTreeMap;

use leasehold::machine::{Key, Mode, Outcome, Record, Token, TokenBlock};

use crate::rules::Moved;
use crate::sessions::Rows;

/// All that ever was granted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ghost {
    pub(crate) rows: Rows,
    /// By key, the last token that anybody was ever given.
    last: BTreeMap<Key, Token>,
    /// By key, the last token of the latest exclusive grant.
    last_exclusive: BTreeMap<Key, Token>,
    /// Every grant, with its mode as it was granted.
    granted: Vec<(Key, Token, Mode)>,
}

impl Ghost {
    /// I1, over records that were deleted too.
    pub(crate) fn note_grants(&mut self, moved: &Moved<'_>) {
        let refill = match moved.answer.outcome {
            Outcome::Current { refill, .. } => refill,
            _ => None,
        };
        let fresh = moved.fresh_grants().into_iter().map(|(block, previous, mode)| (block, Some((previous, mode))));
        // A refill may stand before the grants of those whom the same operation lets in.
        let mut blocks: Vec<_> = fresh.chain(refill.map(|block| (block, None))).collect();
        blocks.sort_by_key(|(block, _)| block.first);
        for (block, grant) in blocks {
            self.note_tokens(moved.key, block);
            match grant {
                Some((previous, mode)) => self.note_grant(moved.key, block, previous, mode),
                None => self.note_refill(moved.key, moved.after, block),
            }
        }
    }

    fn note_grant(&mut self, key: &Key, block: TokenBlock, previous: Token, mode: Mode) {
        let exclusive = self.last_exclusive.get(key).copied().unwrap_or_default();
        assert!(previous >= exclusive, "whoever comes next learns that an exclusive grant was between");
        if mode == Mode::Exclusive {
            self.last_exclusive.insert(key.clone(), block.last);
        }
        self.granted.push((key.clone(), block.first, mode));
    }

    fn note_tokens(&mut self, key: &Key, block: TokenBlock) {
        let last = self.last.get(key).copied().unwrap_or_default();
        assert!(block.first > last, "I1: tokens grow for ever: {block:?} after {last:?} at {key}");
        self.last.insert(key.clone(), block.last);
    }

    fn note_refill(&mut self, key: &Key, after: &Record, block: TokenBlock) {
        if after.grants.iter().any(|grant| grant.block.last == block.last && grant.mode == Mode::Exclusive) {
            self.last_exclusive.insert(key.clone(), block.last);
        }
    }

    /// I2 and I13: a fence lets nobody pass after whom somebody was granted what excludes it.
    pub(crate) fn fence_let_pass(&self, key: &Key, token: Token, mode: Mode) {
        let passed = self.granted.iter().find(|(at, later, other)| {
            at == key && *later > token && (mode == Mode::Exclusive || *other == Mode::Exclusive)
        });
        assert_eq!(passed, None, "I2: {token:?} passed a fence");
    }
}
