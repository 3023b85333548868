//! docs/command-line.md: its examples do what it says, and its table has the codes of the help.

use crate::harness::{Scratch, done};

const GUIDE: &str = include_str!("../../docs/command-line.md");

#[test]
fn the_examples_of_the_guide_print_what_it_says() {
    let mut count = 0;
    for example in GUIDE.split("```sh\n").skip(1) {
        let (script, rest) = example.split_once("```\n").expect("it ends");
        let (output, _) = rest.strip_prefix("```text\n").and_then(|text| text.split_once("```")).expect("its output");
        let scratch = Scratch::new();
        let done = done(&mut scratch.command("sh", &["-ec", script]));
        assert_eq!((&*done.out, &*done.err), (output, ""));
        count += 1;
    }
    assert!(count > 0, "else this test is of no use any more");
}

#[test]
fn the_guide_has_the_exit_codes_of_the_help() {
    let help = Scratch::new().done(&["--help"]).out;
    let (_, codes) = help.split_once("Exit codes:").expect("it has them");
    let (codes, _) = codes.split_once("Environment:").expect("they end");
    let codes: Vec<_> = codes.lines().filter_map(|line| line.split_whitespace().next()?.parse::<u8>().ok()).collect();
    assert!(codes.len() >= 8, "{codes:?}");
    for code in codes {
        let rows = GUIDE.lines().filter(|line| line.starts_with("| "));
        let cells = rows.filter_map(|row| row.split('|').nth(1));
        assert!(
            cells.flat_map(|cell| cell.split([' ', ','])).any(|word| word == code.to_string()),
            "the table lacks {code}"
        );
    }
}
