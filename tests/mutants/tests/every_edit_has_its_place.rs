//! These tests take a moment. They report a mutant whose quoted source is gone, and a rule without a mutant, before minutes are spent on
//! the mutants themselves.

use std::{collections::BTreeSet, fs, path::Path};

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

/// The protocol's headings name the rules: `S1` and the like for sessions, letters for grants, tokens and fences. Rule `t` has no mutant,
/// because no code implements it: it says what a signal can make a context believe.
#[test]
fn every_rule_about_sessions_grants_tokens_and_fences_has_a_mutant() {
    let protocol = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol.md");
    let protocol = fs::read_to_string(protocol).expect("the protocol is there");
    let headings: BTreeSet<_> = protocol.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let is_letter = |heading: &str| heading.len() == 1;
    let name = |heading: &str| if is_letter(heading) { format!("rule {heading}") } else { heading.to_owned() };
    let broken: BTreeSet<_> = all().iter().map(|mutant| mutant.rule.to_owned()).collect();
    let is_number = |heading: &str| heading.strip_prefix('S').is_some_and(|rest| rest.parse::<u32>().is_ok());
    let rules: Vec<_> = headings.iter().filter(|heading| is_number(heading) || is_letter(heading)).collect();
    assert!(rules.len() > 20, "the headings are found: {rules:?}");
    let whole: Vec<_> =
        rules.iter().map(|rule| name(rule)).filter(|rule| rule != "rule t" && !broken.contains(rule)).collect();
    assert!(whole.is_empty(), "without a mutant: {whole:?}");
    let known = |rule: &str| {
        rule.strip_prefix("rule ").is_none_or(|letter| headings.contains(letter) || letter.parse::<u32>().is_ok())
    };
    let gone: Vec<_> = broken.iter().filter(|rule| !known(rule)).collect();
    assert!(gone.is_empty(), "the protocol has no such rules: {gone:?}");
}
