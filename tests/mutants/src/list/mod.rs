//! All mutants, by subject. "mutant n" breaks an entry of the list that every lease must survive, "Sn" a rule of the protocol about
//! sessions, and "rule a" and the like a rule about grants, tokens and fences.

mod attempts;
mod belief;
mod ends;
mod evidence;
mod holders;
mod record;
mod runtimes;
mod sessions;
mod sure;
mod tokens;

use crate::Mutant;

/// All of them.
pub fn all() -> Vec<Mutant> {
    let of_stores = [record::MUTANTS, tokens::MUTANTS, sessions::MUTANTS].concat();
    let of_meetings = holders::MUTANTS.to_vec();
    let of_contexts = [belief::MUTANTS, evidence::MUTANTS, attempts::MUTANTS, ends::MUTANTS, sure::MUTANTS].concat();
    let of_drivers = runtimes::MUTANTS.to_vec();
    [of_stores, of_meetings, of_contexts, of_drivers].concat()
}
