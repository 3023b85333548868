//! All mutants, by subject. "mutant n" are those of the list that every lease must survive, "rule x" those of the
//! protocol, by their letters.
//!
//! Rule t promises nothing that could be broken.

mod attempts;
mod ends;
mod graves;
mod record;
mod signs;
mod time;
mod tokens;

use crate::Mutant;

/// All of them.
pub fn all() -> Vec<Mutant> {
    let all = [record::MUTANTS, tokens::MUTANTS, time::MUTANTS, attempts::MUTANTS, ends::MUTANTS, signs::MUTANTS];
    [&all.concat(), graves::MUTANTS].concat()
}
