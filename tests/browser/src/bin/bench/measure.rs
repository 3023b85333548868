//! Drives the page of `benches/browser` in several tabs, and turns its samples into figures.

use std::time::Duration;

use anyhow::Context as _;
use leasehold_browser_tests::{Browser, Engine, Server, Shape, Tab};
use serde_json::{Value, json};

/// Rounds of uncontended turns: ten samples each for all but the slowest.
const ROUNDS: u32 = 40;
const PINGS: u32 = 500;
const HAND_OFFS: u32 = 200;
/// For those who poll, and so take a hundred times as long.
const SLOW_HAND_OFFS: u32 = 20;
const TAKE_OVERS: usize = 9;
const LONG: Duration = Duration::from_secs(120);

/// Names with the unit last, and values, in the order of the table.
pub(crate) type Figures = Vec<(String, f64)>;

pub(crate) async fn measure(engine: Engine) -> anyhow::Result<Figures> {
    let server = Server::start()?;
    let browser = Browser::start(engine).await?;
    let tab = open(&browser, &server).await?;
    let mut figures = Figures::new();
    alone(&tab, &mut figures).await?;

    let other = open(&browser, &server).await?;
    other.run("bench.serve()", Value::Null).await?;
    pair(&tab, &mut figures).await?;

    if engine == Engine::Chromium {
        let samples = take_overs(&browser, &server, &other, async |holder| holder.crash().await).await?;
        percentiles(&mut figures, "crash_takeover", &samples, &[50, 95]);
    }
    let samples = take_overs(&browser, &server, &other, async |holder| holder.close().await).await?;
    percentiles(&mut figures, "close_takeover", &samples, &[50, 95]);
    Ok(figures)
}

/// A window of its own: a browser slows down what it hides.
async fn open(browser: &Browser, server: &Server) -> anyhow::Result<Tab> {
    let tab = browser.open(&server.url("/benches/browser/"), Shape::Window).await?;
    let ready = "if (window.failed) throw Error('pkg/ did not load: `make pkg` builds it'); return window.ready";
    tab.until(ready, Value::Null, Duration::from_secs(20)).await?;
    let isolated = tab.run("return crossOriginIsolated", Value::Null).await?;
    anyhow::ensure!(isolated == true, "the page is not isolated, and so has a coarse clock");
    Ok(tab)
}

async fn alone(tab: &Tab, figures: &mut Figures) -> anyhow::Result<()> {
    let measured = ask(tab, "return bench.alone(arg)", json!(ROUNDS)).await?;
    let names = [
        ("raw", "raw_transaction"),
        ("leasehold", "cold_acquire_release"),
        ("weblocks", "weblocks_request"),
        ("idb_mutex", "idb_mutex_lock_unlock"),
        ("browser_tabs_lock", "browser_tabs_lock_acquire_release"),
    ];
    for (contestant, name) in names {
        let samples = samples(&measured[contestant])?;
        percentiles(figures, name, &samples, &[50, 99]);
        // Over the whole run, where a coarse clock matters least.
        figures.push((format!("{name}_mean_ms"), samples.iter().sum::<f64>() / samples.len() as f64));
    }
    Ok(())
}

async fn pair(tab: &Tab, figures: &mut Figures) -> anyhow::Result<()> {
    let measured = ask(tab, "return bench.pings(arg)", json!(PINGS)).await?;
    let hops: Vec<f64> = samples(&measured["trips"])?.into_iter().map(|trip| trip / 2.0).collect();
    percentiles(figures, "hop", &hops, &[50, 99]);
    let contestants = [
        ("leasehold", "handoff", HAND_OFFS),
        ("weblocks", "weblocks_handoff", HAND_OFFS),
        ("idb_mutex", "idb_mutex_handoff", SLOW_HAND_OFFS),
        ("browser_tabs_lock", "browser_tabs_lock_handoff", SLOW_HAND_OFFS),
    ];
    for (contestant, name, count) in contestants {
        let measured = ask(tab, "return bench.handOffs(...arg)", json!([contestant, count])).await?;
        percentiles(figures, name, &samples(&measured)?, &[50, 95]);
    }
    Ok(())
}

/// Ends a new holder each time, in the given way.
async fn take_overs(
    browser: &Browser,
    server: &Server,
    waiter: &Tab,
    end: impl AsyncFn(Tab) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<f64>> {
    let mut samples = vec![];
    for _ in 0..TAKE_OVERS {
        let holder = open(browser, server).await?;
        holder.run("await bench.live()", Value::Null).await?;
        waiter.start("take over", "return bench.takeOver()", Value::Null).await?;
        waiter.until("return bench.queued()", Value::Null, Duration::from_secs(10)).await?;
        end(holder).await?;
        samples.push(waiter.outcome("take over", LONG).await?.as_f64().context("a number")?);
    }
    Ok(samples)
}

/// What takes longer than a WebDriver command may.
async fn ask(tab: &Tab, body: &str, arg: Value) -> anyhow::Result<Value> {
    tab.start("bench", body, arg).await?;
    tab.outcome("bench", LONG).await
}

fn samples(list: &Value) -> anyhow::Result<Vec<f64>> {
    list.as_array().context("a list of samples")?.iter().map(|sample| sample.as_f64().context("a number")).collect()
}

fn percentiles(figures: &mut Figures, name: &str, samples: &[f64], percents: &[usize]) {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    for percent in percents {
        figures.push((format!("{name}_p{percent}_ms"), sorted[(sorted.len() - 1) * percent / 100]));
    }
}
