//! All mutants, by subject. "mutant n" are those of the list that every lease must survive, "rule x" those of the
//! protocol, by their letters.
//!
//! Rule p, of tombstones, is not here: nothing writes one yet. Rule t promises nothing that could be broken.

mod attempts;
mod ends;
mod record;
mod signs;
mod time;
mod tokens;

use crate::Mutant;

/// All of them.
pub fn all() -> Vec<Mutant> {
    [record::MUTANTS, tokens::MUTANTS, time::MUTANTS, attempts::MUTANTS, ends::MUTANTS, signs::MUTANTS].concat()
}
