//! The head of the page: tables in Markdown, with a line for each engine and operation.

use anyhow::Context as _;
use leasehold_browser_tests::Engine;
use serde_json::Value;

use super::guide::title;
use super::table::{OPERATIONS, Tabs};
use crate::figures::number;

/// The parts that the wasm marks, in the order of the columns.
const PARTS: [&str; 4] = ["machine", "decode", "apply", "encode"];

/// The lines of both tables. The first two cells of a line say which one it is.
pub(super) fn rows(engine: Engine, profile: &Value) -> anyhow::Result<Vec<String>> {
    Ok([operations(engine, profile)?, commits(engine, profile)?].concat())
}

/// What `commit()` saves: the time with it and without it, and by hand also the time until the last request has succeeded.
fn commits(engine: Engine, profile: &Value) -> anyhow::Result<Vec<String>> {
    let us = |name: &str, mode: &str| number(&profile["operations"][name][mode]["us"]);
    let line = |name: &str, with: f64, without: f64, success: &str| {
        let more = 100.0 * (without / with - 1.0);
        let (engine, with, without) = (title(engine), short(with), short(without));
        format!("| {engine} | {name} | {with} | {without} | {more:+.0} % | {success} |")
    };
    let by_hand = us("get, put, commit(), to complete", "plain")?;
    let success = short(us("… to the success of the put", "plain")?);
    let mut rows = vec![line("a transaction by hand", by_hand, us("… without commit()", "plain")?, &success)];
    for name in ["cold turn", "hand-off", "crowd's turn"] {
        let (own, flipped) = (us(name, "plain")?, us(name, "flipped")?);
        let (with, without) = if profile["commits"] == true { (own, flipped) } else { (flipped, own) };
        rows.push(line(&format!("a {name}"), with, without, "–"));
    }
    Ok(rows)
}

fn operations(engine: Engine, profile: &Value) -> anyhow::Result<Vec<String>> {
    let rows = OPERATIONS.iter().map(|(name, tabs)| {
        let modes = &profile["operations"][name];
        row(engine, name, *tabs, modes).with_context(|| format!("the summary of {name}"))
    });
    rows.collect()
}

fn row(engine: Engine, name: &str, tabs: Tabs, modes: &Value) -> anyhow::Result<String> {
    let digest = &modes["parts"];
    let spans = digest["spans"].as_array().context("a list of spans")?;
    let sum = |what: &str, is_meant: &dyn Fn(&Value) -> bool| {
        spans.iter().filter(|span| is_meant(span)).map(|span| number(&span[what])).sum::<anyhow::Result<f64>>()
    };
    let mut cells = vec![number(&modes["plain"]["us"])?];
    for group in ["browser", "import", "package"] {
        cells.push(sum("us", &|span| span["group"] == group)?);
    }
    for part in PARTS {
        cells.push(sum("us", &|span| span["group"] == "part" && span["name"] == part)?);
    }
    cells.push(sum("us", &|span| span["group"] == "wasm")?);
    let cells: Vec<String> = cells.iter().map(|us| short(*us)).collect();
    let rest = if tabs == Tabs::One {
        short(number(&digest["us"])? - sum("us", &|_| true)? - sum("wrappingUs", &|_| true)?)
    } else {
        "–".into()
    };
    let added = 100.0 * (number(&digest["us"])? / number(&modes["plain"]["us"])? - 1.0);
    Ok(format!("| {} | {name} | {} | {rest} | {added:+.0} % |", title(engine), cells.join(" | ")))
}

/// With as many digits as a reader compares. Where more was taken off for the wrapping than was measured, it is 0.
fn short(us: f64) -> String {
    let digits = usize::from(us < 20.0);
    format!("{:.digits$}", us.max(0.0) + 0.0)
}
