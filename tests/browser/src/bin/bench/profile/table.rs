//! A profile as a text.

use std::fmt::Write as _;

use anyhow::Context as _;
use serde_json::Value;

use super::MODES;
use crate::figures::number;

/// The operations that have a part of their own, and how many tabs take part in one. All others stand in one list.
pub(super) const OPERATIONS: [(&str, Tabs); 5] = [
    ("cold turn", Tabs::One),
    ("hand-off", Tabs::Two),
    ("fenced write", Tabs::One),
    ("linger hit", Tabs::One),
    ("crowd's turn", Tabs::Many),
];
/// How many calls are named in a list; the rest is one line.
const NAMED: usize = 5;
/// The requests of one transaction of a turn, without the package.
const TWIN: &str = "… with a get and a getAll of three rows";

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tabs {
    One,
    Two,
    Many,
}

pub(crate) fn of(profile: &Value) -> anyhow::Result<String> {
    let mut out = String::new();
    let text = |name: &str| profile[name].as_str().context("a text");
    writeln!(out, "{}\n{}", text("browser")?, text("machine")?)?;
    let clock = |name: &str| Ok::<_, anyhow::Error>(number(&profile["calibration"][name])? * 1e3);
    let (bare, added, part) = (clock("bareMs")?, clock("withinMs")? + clock("aroundMs")?, clock("partMs")?);
    writeln!(
        out,
        "An empty call from the wasm takes {bare:.3} µs. Wrapping a call adds {added:.3} µs, which is taken off below."
    )?;
    writeln!(out, "The two marks of a part take {part:.3} µs; as much as for a call is taken off.")?;
    for (name, tabs) in OPERATIONS {
        operation(&mut out, name, tabs, profile).with_context(|| format!("the table of {name}"))?;
    }
    pieces(&mut out, &profile["operations"])?;
    Ok(out)
}

fn operation(out: &mut String, name: &str, tabs: Tabs, profile: &Value) -> anyhow::Result<()> {
    let operations = &profile["operations"];
    let modes = &operations[name];
    let of_all = if tabs == Tabs::Many { ", of all tabs together" } else { "" };
    writeln!(out, "\n{:-<100}", format!("{}, µs per operation{of_all} ", name.to_uppercase()))?;
    wholes(out, modes, profile["commits"] == true)?;
    floor(out, name, operations)?;
    spans(out, tabs, &modes["crossings"])?;
    parts(out, &modes["parts"])?;
    waits(out, &modes["marks"]["waits"])?;
    counts(out, &modes["marks"]["marks"])?;
    course(out, &modes["marks"]["course"])
}

/// The time of the whole in each mode in which the operation was measured.
fn wholes(out: &mut String, modes: &Value, commits: bool) -> anyhow::Result<()> {
    let plain = number(&modes[MODES[0]]["us"])?;
    for mode in MODES.into_iter().filter(|mode| modes.get(mode).is_some()) {
        let us = number(&modes[mode]["us"])?;
        let words = match mode {
            "plain" => "the whole, unprofiled".into(),
            "flipped" if commits => "the whole, unprofiled, without commit()".into(),
            "flipped" => "the whole, unprofiled, with commit()".into(),
            _ => format!("the whole, profiled by {mode}"),
        };
        write!(out, "  {words:50}{us:10.1}")?;
        match modes[mode].get("medianUs") {
            Some(median) => writeln!(out, "   median {:.1}, {:+.0} %", number(median)?, 100.0 * (us / plain - 1.0))?,
            None => writeln!(out, "   {:+.0} %", 100.0 * (us / plain - 1.0))?,
        }
    }
    Ok(())
}

/// What the browser takes for the same without the package, in the same run.
fn floor(out: &mut String, name: &str, operations: &Value) -> anyhow::Result<()> {
    let (words, times, twin) = match name {
        "cold turn" => ("two transactions of the same requests alone", 2.0, TWIN),
        "fenced write" => ("the same write without a fence", 1.0, "plain write"),
        _ => return Ok(()),
    };
    let us = times * number(&operations[twin]["plain"]["us"])?;
    Ok(writeln!(out, "  {words:50}{us:10.1}")?)
}

/// Who has the processor.
fn spans(out: &mut String, tabs: Tabs, digest: &Value) -> anyhow::Result<()> {
    let all = digest["spans"].as_array().context("a list of spans")?;
    let (mut sum, mut wrapping) = (0.0, 0.0);
    for (group, words) in [
        ("wasm", "in the wasm"),
        ("import", "in the glue that the wasm calls"),
        ("browser", "in calls of the browser, by that glue or the page"),
        ("package", "in the package's JavaScript, up to its first await"),
    ] {
        let rows: Vec<&Value> = all.iter().filter(|span| span["group"] == group).collect();
        if rows.is_empty() {
            continue;
        }
        let total = |what: &str| rows.iter().map(|row| number(&row[what])).sum::<anyhow::Result<f64>>();
        let (calls, us) = (total("calls")?, total("us")?);
        (sum, wrapping) = (sum + us, wrapping + total("wrappingUs")?);
        writeln!(out, "  {words:50}{us:10.1}   {calls:7.2} calls")?;
        if rows.len() > 1 {
            named(out, &rows)?;
        }
    }
    if tabs == Tabs::One {
        let rest = number(&digest["us"])? - sum - wrapping;
        writeln!(out, "  {:50}{rest:10.1}", "the rest: waiting, promises, JavaScript after an await")?;
    }
    writeln!(out, "  {:50}{wrapping:10.1}", "(the wrapping, taken off)")?;
    Ok(())
}

/// What the wasm does while it has the processor, by the wasm that marks its parts.
fn parts(out: &mut String, digest: &Value) -> anyhow::Result<()> {
    let all = digest["spans"].as_array().context("a list of spans")?;
    let of = |group: &str| all.iter().filter(|span| span["group"] == group).collect::<Vec<_>>();
    let (parts, wasm) = (of("part"), of("wasm"));
    let sum = |rows: &[&Value], what: &str| rows.iter().map(|row| number(&row[what])).sum::<anyhow::Result<f64>>();
    let (us, wrapping) = (sum(&parts, "us")? + sum(&wasm, "us")?, sum(&parts, "wrappingUs")?);
    writeln!(out, "  {:50}{us:10.1}", "of which, in the wasm that marks its parts")?;
    named(out, &parts)?;
    writeln!(out, "      {:46}{:10.1}", "the driver, the stores and all else", sum(&wasm, "us")?)?;
    Ok(writeln!(out, "  {:50}{wrapping:10.1}", "(the marks of the parts, taken off)")?)
}

fn named(out: &mut String, rows: &[&Value]) -> anyhow::Result<()> {
    // What happens once in hundreds of operations is not named.
    let (often, seldom): (Vec<&Value>, Vec<&Value>) = rows.iter().partition(|row| happens(&row["calls"]));
    let (shown, others) = often.split_at(NAMED.min(often.len()));
    let others = [others, &seldom].concat();
    for row in shown {
        let (us, calls) = (number(&row["us"])?.max(0.0), number(&row["calls"])?);
        writeln!(out, "      {:46}{us:10.1}   {calls:7.2}", row["name"].as_str().unwrap_or_default())?;
    }
    if !others.is_empty() {
        let total = |what: &str| others.iter().map(|row| number(&row[what])).sum::<anyhow::Result<f64>>();
        writeln!(
            out,
            "      {:46}{:10.1}   {:7.2}",
            format!("{} others", others.len()),
            total("us")?,
            total("calls")?
        )?;
    }
    Ok(())
}

/// Whether it is more than once in fifty operations.
fn happens(count: &Value) -> bool {
    count.as_f64().is_some_and(|count| count >= 0.02)
}

/// How long each kind of wait for the browser takes.
fn waits(out: &mut String, waits: &Value) -> anyhow::Result<()> {
    let waits = waits.as_array().into_iter().flatten().filter(|wait| happens(&wait["count"]));
    for (at, wait) in waits.enumerate() {
        let (us, count) = (number(&wait["us"])?, number(&wait["count"])?);
        if at == 0 {
            writeln!(out, "  waits for the browser, µs of each")?;
        }
        writeln!(out, "      {:46}{us:10.1}   {count:7.2}", wait["name"].as_str().unwrap_or_default())?;
    }
    Ok(())
}

/// How often everything happens.
fn counts(out: &mut String, marks: &Value) -> anyhow::Result<()> {
    let mut line = String::new();
    for (name, count) in marks.as_object().into_iter().flatten().filter(|(_, count)| happens(count)) {
        let item = format!("{} {:.2}", name, number(count)?);
        if line.len() + item.len() > 92 {
            writeln!(out, "      {line}")?;
            line.clear();
        }
        write!(line, "{}{item}", if line.is_empty() { "" } else { ", " })?;
    }
    if !line.is_empty() {
        writeln!(out, "      {line}")?;
    }
    Ok(())
}

/// From mark to mark.
fn course(out: &mut String, course: &Value) -> anyhow::Result<()> {
    let Some(steps) = course["steps"].as_array().filter(|steps| steps.len() > 1) else { return Ok(()) };
    let share = 100.0 * number(&course["share"])?;
    writeln!(out, "  the course of {share:.0} % of them: µs since the mark before, and since the start")?;
    let mut since = 0.0;
    for step in steps {
        let us = number(&step["us"])?;
        since += us;
        writeln!(out, "      {:46}{us:10.1}   {since:9.1}", step["name"].as_str().unwrap_or_default())?;
    }
    Ok(())
}

/// What single things take.
fn pieces(out: &mut String, operations: &Value) -> anyhow::Result<()> {
    writeln!(out, "\n{:-<100}", "SINGLE THINGS, without the package, µs of each ")?;
    let pieces = operations.as_object().context("operations by name")?.iter();
    for (name, modes) in pieces.filter(|(name, _)| OPERATIONS.iter().all(|(known, _)| known != name)) {
        let (us, median) = (number(&modes["plain"]["us"])?, number(&modes["plain"]["medianUs"])?);
        writeln!(out, "  {name:50}{us:10.1}   median {median:.1}")?;
    }
    Ok(())
}
