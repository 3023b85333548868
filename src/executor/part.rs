//! The parts of the work of a context, as the profile of the npm package tells them apart.

use super::marks;

/// A part of the work. The page of the profile, `benches/browser/profile/parts.mjs`, names them in this order.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "a program without a browser's store has only the machine")]
pub(crate) enum Part {
    /// The machine takes an input.
    Machine,
    /// The texts of rows and messages become values.
    Decode,
    /// A batch or a fence is applied to the rows.
    Apply,
    /// Values become the texts of rows and messages.
    Encode,
}

impl Part {
    /// The part goes on until what this returns is dropped. Without the feature `marks` this does nothing.
    pub(crate) fn begin(self) -> Marked {
        marks::begin(self as u32);
        Marked
    }
}

/// A part that goes on until this is dropped.
#[must_use]
pub(crate) struct Marked;

impl Drop for Marked {
    fn drop(&mut self) {
        marks::end();
    }
}
