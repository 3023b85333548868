//! Turns that nobody contends for, writes under a fence, and hits within the linger.

use leasehold_browser_tests::{Browser, Tab};
use serde_json::json;

use crate::{
    contestants::contestants,
    figures::{Figures, Unit, mean, numbers},
    measure::Plan,
    page::{Pages, ask, tell_failures},
};

pub(crate) async fn measure(pages: &Pages, tab: &Tab, plan: &Plan, figures: &mut Figures) -> anyhow::Result<()> {
    let measured = ask(tab, "return bench.alone(arg)", json!(plan.alone_rounds)).await?;
    tell_failures("alone", &measured["failures"]);
    let samples = |name: &str| numbers(&measured["samples"][name]);
    let turns = contestants().map(|contestant| (contestant.name, contestant.figure(contestant.turn)));
    let mut all: Vec<(&str, String)> = vec![("raw", "raw_transaction".into())];
    all.extend(turns);
    all.extend(["run", "locks_request"].map(|name| (name, name.into())));
    let writes = ["plain_write", "fenced_write", "old_plain_write", "old_fenced_write"];
    all.extend(writes.map(|name| (name, name.into())));
    for (program, name) in all {
        // The library may have no fences, and there may be no old one.
        let Ok(samples) = samples(program) else { continue };
        figures.percentiles(&name, Unit::Ms, &samples, &[50, 99]);
        figures.mean(&name, Unit::Ms, &samples);
    }
    for (program, name) in [("hit", "linger_hit"), ("weblocks_hit", "weblocks_hit"), ("old_hit", "old_linger_hit")] {
        let Ok(samples) = samples(program) else { continue };
        figures.percentiles(name, Unit::Us, &samples, &[50, 99]);
        if let Some(mean_ms) = mean(&samples) {
            figures.add(format!("{name}s_per_s"), 1e3 / mean_ms);
        }
    }
    for (program, name) in [
        ("raw", "raw_transaction_cpu_ms"),
        ("leasehold", "cold_cpu_ms"),
        ("weblocks", "weblocks_cpu_ms"),
        ("idb_mutex", "idb_mutex_cpu_ms"),
    ] {
        // A program that failed or hung would do so again, for longer.
        if measured["failures"].get(program).is_some() {
            continue;
        }
        match work(&pages.browser, tab, program, 50 * plan.alone_rounds).await {
            Ok(ms) => figures.add(name, ms),
            Err(error) => eprintln!("  CPU: {program} failed: {error:#}"),
        }
    }
    Ok(())
}

/// What all processes of the browser work for one turn, in ms.
async fn work(browser: &Browser, tab: &Tab, program: &str, turns: u32) -> anyhow::Result<f64> {
    let before = browser.work_ms()?;
    ask(tab, "return bench.repeated(arg)", json!({ "name": program, "turns": turns })).await?;
    Ok((browser.work_ms()? - before) / f64::from(turns))
}
