//! A holder goes, in each of the ways in which holders do, and a waiter in another tab gets its turn.

use std::time::Duration;

use leasehold_browser_tests::{Engine, Tab};
use serde_json::{Value, json};

use crate::{
    contestants::{CONTESTANTS, Contestant, Wake},
    figures::{Figures, Unit, number},
    measure::Plan,
    page::{Pages, SOON, loaded},
};

/// Longer than the slowest of those who poll.
const LONG: Duration = Duration::from_secs(60);

/// How it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Close,
    Reload,
    Crash,
    Worker,
}

impl End {
    fn name(self) -> &'static str {
        match self {
            Self::Close => "close",
            Self::Reload => "reload",
            Self::Crash => "crash",
            Self::Worker => "worker_end",
        }
    }

    /// Only Chromium can be told to crash a tab.
    fn is_possible(self, engine: Engine) -> bool {
        self != Self::Crash || engine == Engine::Chromium
    }

    /// The rivals that are bundled for windows do without a worker.
    fn holds(self, contestant: &Contestant) -> bool {
        self != Self::Worker || ["leasehold", "weblocks"].contains(&contestant.name)
    }
}

/// Samples of one way and one contestant.
struct Samples {
    end: End,
    contestant: &'static Contestant,
    ms: Vec<f64>,
}

/// Those whom the browser tells.
pub(crate) async fn measure(
    engine: Engine,
    pages: &Pages,
    waiter: &Tab,
    plan: &Plan,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let ends = [End::Close, End::Reload, End::Crash, End::Worker].into_iter().filter(|end| end.is_possible(engine));
    let ends: Vec<End> = ends.collect();
    let mut all = samples_of(&ends, Wake::Told);
    let stays = pages.open().await?;
    let mut failed = vec![];
    for round in 0..plan.take_overs {
        for end in ends.iter().filter(|end| !failed.contains(*end)).copied().collect::<Vec<_>>() {
            let key = format!("life-{}-{round}", end.name());
            if let Err(error) = once(pages, waiter, &stays, end, &key, &mut all).await {
                eprintln!("  take-over, {key}: {error:#}");
                failed.push(end);
            }
        }
    }
    report(&all, &[50, 99], figures);
    stays.close().await
}

async fn once(
    pages: &Pages,
    waiter: &Tab,
    stays: &Tab,
    end: End,
    key: &str,
    all: &mut [Samples],
) -> anyhow::Result<()> {
    let passing = if matches!(end, End::Close | End::Crash) { Some(pages.open().await?) } else { None };
    start(passing.as_ref().unwrap_or(stays), waiter, end, key, all).await?;
    finish(passing, stays, end).await?;
    collect(waiter, end, key, all).await
}

/// Those who poll: all keys at once, since each take-over takes seconds.
pub(crate) async fn measure_slow(
    engine: Engine,
    pages: &Pages,
    waiter: &Tab,
    plan: &Plan,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let ends: Vec<End> = [End::Close, End::Crash].into_iter().filter(|end| end.is_possible(engine)).collect();
    let mut all = samples_of(&ends, Wake::Polls);
    let mut keys = vec![];
    for round in 0..plan.slow_take_overs {
        for end in &ends {
            let (key, holder) = (format!("slow-{}-{round}", end.name()), pages.open().await?);
            start(&holder, waiter, *end, &key, &all).await?;
            // At once: one of them loses a lock that it holds for long.
            finish(Some(holder), waiter, *end).await?;
            keys.push((*end, key));
        }
    }
    for (end, key) in keys {
        collect(waiter, end, &key, &mut all).await?;
    }
    report(&all, &[50], figures);
    Ok(())
}

fn samples_of(ends: &[End], wake: Wake) -> Vec<Samples> {
    let mut all = vec![];
    for end in ends {
        let contestants = CONTESTANTS.iter().filter(|contestant| contestant.wake == wake && end.holds(contestant));
        all.extend(contestants.map(|contestant| Samples { end: *end, contestant, ms: vec![] }));
    }
    all
}

/// The holder holds what the waiter waits for.
async fn start(holder: &Tab, waiter: &Tab, end: End, key: &str, all: &[Samples]) -> anyhow::Result<()> {
    let names = all.iter().filter(|samples| samples.end == end).map(|samples| samples.contestant.name);
    let arg = json!({ "names": names.collect::<Vec<_>>(), "key": key });
    match end {
        End::Worker => holder.run("await bench.startWorker(arg)", json!(key)).await?,
        _ => holder.run("await bench.live(arg)", arg.clone()).await?,
    };
    waiter.start(key, "return bench.takeOver(arg)", arg).await?;
    waiter.until("return bench.waiting(arg)", json!(key), SOON).await?;
    Ok(())
}

async fn finish(passing: Option<Tab>, stays: &Tab, end: End) -> anyhow::Result<()> {
    match (end, passing) {
        (End::Close, Some(holder)) => holder.close().await,
        (End::Crash, Some(holder)) => holder.crash().await,
        (End::Worker, _) => stays.run("bench.endWorker()", Value::Null).await.map(drop),
        _ => {
            stays.reload().await?;
            loaded(stays).await
        }
    }
}

async fn collect(waiter: &Tab, end: End, key: &str, all: &mut [Samples]) -> anyhow::Result<()> {
    let taken = waiter.outcome(key, LONG).await?;
    for samples in all.iter_mut().filter(|samples| samples.end == end) {
        match taken.get(samples.contestant.name) {
            Some(ms) => samples.ms.push(number(ms)?),
            None => eprintln!("  take-over, {key}: {} gave no sample", samples.contestant.name),
        }
    }
    Ok(())
}

fn report(all: &[Samples], percents: &[usize], figures: &mut Figures) {
    for Samples { end, contestant, ms } in all {
        figures.percentiles(&contestant.figure(&format!("{}_takeover", end.name())), Unit::Ms, ms, percents);
    }
}
