//! Every scenario has a row in `tests/README.md`, and every test that a row names is there.
#![cfg(not(all(target_family = "wasm", target_os = "unknown")))]

use std::{collections::BTreeMap, fs, path::Path};

/// How many scenarios each system gave.
const SCENARIOS: [(char, u32); 7] = [('M', 17), ('S', 20), ('L', 16), ('G', 9), ('R', 14), ('W', 15), ('X', 18)];

/// The cells of each row, by the scenario's id.
fn rows() -> BTreeMap<String, (String, String)> {
    let table = read("tests/README.md");
    let rows = table.lines().filter_map(|line| {
        let [_, id, test, note, _] = line.split('|').map(str::trim).collect::<Vec<_>>()[..] else { return None };
        let (letter, number) = id.split_at_checked(1)?;
        let known = SCENARIOS.iter().any(|(known, _)| letter.starts_with(*known)) && number.parse::<u32>().is_ok();
        known.then(|| (id.to_owned(), (test.to_owned(), note.to_owned())))
    });
    rows.collect()
}

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn every_scenario_has_a_row() {
    let rows = rows();
    let ids = SCENARIOS.into_iter().flat_map(|(letter, count)| (1..=count).map(move |id| format!("{letter}{id}")));
    let missing: Vec<_> = ids.filter(|id| !rows.contains_key(id)).collect();
    assert!(missing.is_empty(), "without a row: {missing:?}");
}

#[test]
fn every_test_that_a_row_names_is_there() {
    for (id, (tests, note)) in rows() {
        let named: Vec<_> = tests.split('`').filter(|name| name.contains("::")).collect();
        assert!(!named.is_empty() || note.len() > 20, "{id}: without a test, the note says why");
        for name in named {
            let (file, test) = name.split_once("::").expect("it was looked for");
            assert!(read(file).contains(&format!("fn {test}(")), "{id}: {name} is not there");
        }
    }
}

/// The README says how many scenarios have a test, and how many run on each shared store.
#[test]
fn the_readme_counts_the_scenarios() {
    let rows = rows();
    let count = |part: &str| rows.values().filter(|(tests, _)| tests.contains(part)).count();
    let readme = read("README.md");
    for sentence in [
        format!("{} of them are derived from other systems", count("::")),
        format!("{} scenarios run on each of these stores", count("tests/stores/scenarios")),
    ] {
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&readme).contains(&sentence), "the README does not say: {sentence}");
    }
}
