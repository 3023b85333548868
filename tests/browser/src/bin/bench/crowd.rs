//! Many tabs want the same lock again and again: whether all get their turns, and whether they are alone in them.

use std::time::Duration;

use anyhow::Context as _;
use leasehold_browser_tests::Tab;
use serde_json::{Value, json};

use crate::{
    contestants::{Contestant, Wake, contestants},
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
    /// Of leases.
    transactions: f64,
}

/// What all tabs told, and what the browser worked meanwhile.
struct Crowd {
    reports: Vec<Report>,
    work_ms: f64,
}

pub(crate) async fn measure(pages: &Pages, plan: &Plan, figures: &mut Figures) -> anyhow::Result<()> {
    let mut tabs = vec![];
    for contestant in contestants().filter(|contestant| contestant.crowd > 0) {
        let turns = (contestant.crowd / plan.crowd_divisor).max(2);
        open_up_to(plan.crowd_tabs, pages, &mut tabs).await?;
        match gather(pages, &tabs, contestant, turns).await {
            Ok(crowd) => judge(contestant, &crowd, figures),
            Err(error) => {
                eprintln!("  crowd: {} failed: {error:#}", contestant.name);
                close(&mut tabs).await?;
            }
        }
    }
    for contestant in contestants().filter(|contestant| contestant.wake == Wake::Told && contestant.crowd > 10) {
        open_up_to(plan.large_crowd_tabs, pages, &mut tabs).await?;
        match gather(pages, &tabs, contestant, contestant.crowd / plan.crowd_divisor / 5).await {
            Ok(crowd) => figures.add(contestant.figure("large_crowd_turn_mean_ms"), crowd.turn_ms()),
            Err(error) => {
                eprintln!("  large crowd: {} failed: {error:#}", contestant.name);
                close(&mut tabs).await?;
            }
        }
    }
    close(&mut tabs).await
}

/// After a failure too: in some of these tabs, its program may go on.
async fn close(tabs: &mut Vec<Tab>) -> anyhow::Result<()> {
    for tab in tabs.drain(..) {
        tab.close().await?;
    }
    Ok(())
}

async fn open_up_to(count: usize, pages: &Pages, tabs: &mut Vec<Tab>) -> anyhow::Result<()> {
    while tabs.len() < count {
        tabs.push(pages.open().await?);
    }
    Ok(())
}

async fn gather(pages: &Pages, tabs: &[Tab], contestant: &Contestant, turns: u32) -> anyhow::Result<Crowd> {
    let arg = json!({ "name": contestant.name, "turns": turns });
    for tab in tabs {
        tab.start("crowd", "return bench.crowd(arg)", arg.clone()).await?;
    }
    for tab in tabs {
        tab.until("return window.standsReady", Value::Null, SOON).await?;
    }
    let first = tabs.first().context("a crowd is not empty")?;
    let before = pages.browser.work_ms()?;
    first.run("new BroadcastChannel('bench-starts').postMessage(null)", Value::Null).await?;
    let mut reports = vec![];
    for tab in tabs {
        reports.push(read(&tab.outcome("crowd", LONG).await?)?);
    }
    Ok(Crowd { reports, work_ms: pages.browser.work_ms()? - before })
}

fn read(told: &Value) -> anyhow::Result<Report> {
    Ok(Report {
        values: numbers(&told["values"])?,
        started: number(&told["started"])?,
        ended: number(&told["ended"])?,
        transactions: number(&told["transactions"])?,
    })
}

fn judge(contestant: &Contestant, crowd: &Crowd, figures: &mut Figures) {
    let turns = crowd.turns();
    let reached = crowd.reports.iter().flat_map(|report| &report.values).copied().fold(0.0, f64::max);
    figures.add(contestant.figure("crowd_total_ms"), crowd.turn_ms() * turns);
    figures.add(contestant.figure("crowd_turn_mean_ms"), crowd.turn_ms());
    figures.add(contestant.figure("crowd_cpu_ms"), crowd.work_ms / turns);
    figures.add(contestant.figure("crowd_fairness_index"), fairness(&crowd.reports));
    figures.add(contestant.figure("crowd_lost_updates"), turns - reached);
    if contestant.prefix.is_empty() {
        let transactions: f64 = crowd.reports.iter().map(|report| report.transactions).sum();
        figures.add("crowd_transactions_per_turn", transactions / turns);
    }
}

impl Crowd {
    fn turns(&self) -> f64 {
        self.reports.iter().map(|report| report.values.len()).sum::<usize>() as f64
    }

    /// From the first tab's start to the last tab's end, for each turn.
    fn turn_ms(&self) -> f64 {
        let started = self.reports.iter().map(|report| report.started).fold(f64::INFINITY, f64::min);
        let ended = self.reports.iter().map(|report| report.ended).fold(0.0, f64::max);
        (ended - started) / self.turns()
    }
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
