//! Many tabs want the same lock again and again: whether all get their turns, and whether they are alone in them.

use std::time::Duration;

use anyhow::Context as _;
use leasehold_browser_tests::Tab;
use serde_json::{Value, json};

use crate::{
    contestants::{CONTESTANTS, Contestant},
    figures::{Figures, number, numbers},
    measure::Plan,
    page::{Pages, SOON},
};

const LONG: Duration = Duration::from_secs(90);

/// What one tab tells: the counter's values after its turns, and when it began and ended, in ms.
struct Report {
    values: Vec<f64>,
    started: f64,
    ended: f64,
}

pub(crate) async fn measure(pages: &Pages, plan: &Plan, figures: &mut Figures) -> anyhow::Result<()> {
    let mut tabs = vec![];
    for _ in 0..plan.crowd_tabs {
        tabs.push(pages.open().await?);
    }
    for contestant in CONTESTANTS.iter().filter(|contestant| contestant.crowd > 0) {
        let turns = (contestant.crowd / plan.crowd_divisor).max(2);
        match gather(&tabs, contestant, turns).await {
            Ok(reports) => judge(contestant, &reports, figures),
            Err(error) => eprintln!("  crowd: {} failed: {error:#}", contestant.name),
        }
    }
    for tab in tabs {
        tab.close().await?;
    }
    Ok(())
}

async fn gather(tabs: &[Tab], contestant: &Contestant, turns: u32) -> anyhow::Result<Vec<Report>> {
    let arg = json!({ "name": contestant.name, "turns": turns });
    for tab in tabs {
        tab.start("crowd", "return bench.crowd(arg)", arg.clone()).await?;
    }
    for tab in tabs {
        tab.until("return window.standsReady", Value::Null, SOON).await?;
    }
    let first = tabs.first().context("a crowd is not empty")?;
    first.run("new BroadcastChannel('bench-starts').postMessage(null)", Value::Null).await?;
    let mut reports = vec![];
    for tab in tabs {
        reports.push(read(&tab.outcome("crowd", LONG).await?)?);
    }
    Ok(reports)
}

fn read(told: &Value) -> anyhow::Result<Report> {
    Ok(Report { values: numbers(&told["values"])?, started: number(&told["started"])?, ended: number(&told["ended"])? })
}

fn judge(contestant: &Contestant, reports: &[Report], figures: &mut Figures) {
    let turns: usize = reports.iter().map(|report| report.values.len()).sum();
    let reached = reports.iter().flat_map(|report| &report.values).copied().fold(0.0, f64::max);
    let started = reports.iter().map(|report| report.started).fold(f64::INFINITY, f64::min);
    let ended = reports.iter().map(|report| report.ended).fold(0.0, f64::max);
    figures.add(contestant.figure("crowd_total_ms"), ended - started);
    figures.add(contestant.figure("crowd_turn_mean_ms"), (ended - started) / turns as f64);
    figures.add(contestant.figure("crowd_fairness_index"), fairness(reports));
    figures.add(contestant.figure("crowd_lost_updates"), turns as f64 - reached);
}

/// [Jain's index](https://en.wikipedia.org/wiki/Fairness_measure) of the turns that each had when the first one was
/// through with all of its own: 1 when all had the same.
fn fairness(reports: &[Report]) -> f64 {
    let last = |report: &Report| report.values.iter().copied().fold(0.0, f64::max);
    let end = reports.iter().map(last).fold(f64::INFINITY, f64::min);
    let turns = reports.iter().map(|report| report.values.iter().filter(|value| **value <= end).count() as f64);
    let (sum, squares) = turns.fold((0.0, 0.0), |(sum, squares), count| (sum + count, squares + count * count));
    sum * sum / (reports.len() as f64 * squares)
}
