//! The tables in the guide.

use std::{fs, path::Path};

use anyhow::Context as _;
use leasehold_browser_tests::Engine;

/// Puts each table in the place of the block of text that stands first under the heading of its engine, and each line of the summary in the
/// place of the one with the same first two cells.
pub(crate) fn replace(guide: &Path, tables: &[(Engine, String)], summary: &[String]) -> anyhow::Result<()> {
    let mut text = fs::read_to_string(guide).with_context(|| format!("cannot read {}", guide.display()))?;
    for (engine, table) in tables {
        let heading = format!("\n## {}\n", title(*engine));
        let (before, rest) =
            text.split_once(&heading).with_context(|| format!("the page has no heading {heading:?}; add it"))?;
        let (words, rest) =
            rest.split_once("```text\n").with_context(|| format!("no ```text follows {heading:?}; add a block"))?;
        let (_, after) = rest.split_once("```").with_context(|| format!("the block after {heading:?} has no end"))?;
        text = [before, &heading, words, "```text\n", table.trim(), "\n```", after].concat();
    }
    for row in summary {
        text = with_row(&text, row)?;
    }
    fs::write(guide, text)?;
    println!("written to docs/profile.md");
    Ok(())
}

/// The text with this row of a table in the place of the row that starts alike.
fn with_row(text: &str, row: &str) -> anyhow::Result<String> {
    let head = row.split_inclusive('|').take(3).collect::<String>();
    let is_old = |line: &&str| line.starts_with(&head);
    let old = text.lines().find(is_old).with_context(|| format!("the page has no row {head:?}; add it"))?;
    Ok(text.replacen(old, row, 1))
}

pub(super) fn title(engine: Engine) -> &'static str {
    match engine {
        Engine::Chromium => "Chromium",
        Engine::Firefox => "Firefox",
        Engine::WebKit => "WebKitGTK",
    }
}
