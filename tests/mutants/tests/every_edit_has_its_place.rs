//! A moment's work, so that a mutant that the source has outgrown is told before minutes are spent on the others.

use std::{fs, path::Path};

use leasehold_mutants::all;

#[test]
fn every_edit_has_its_place() {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut outgrown = Vec::new();
    for mutant in all() {
        for edit in mutant.edits {
            let found = fs::read_to_string(crate_root.join(edit.file)).map(|text| text.matches(edit.from).count());
            if !matches!(found, Ok(1)) {
                outgrown.push(format!("{}, {}: {found:?} in {}:\n{}", mutant.rule, mutant.name, edit.file, edit.from));
            }
        }
    }
    assert!(outgrown.is_empty(), "each stands there once:\n{}", outgrown.join("\n"));
}
