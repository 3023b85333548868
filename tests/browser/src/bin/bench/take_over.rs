//! A holder goes, in each of the ways in which holders do, and a waiter in another tab gets its turn.

use std::time::Duration;

use leasehold_browser_tests::{Engine, Tab};
use serde_json::{Value, json};

use crate::{
    contestants::{Contestant, Wake, contestants},
    figures::{Figures, Unit, number},
    measure::Plan,
    page::{Pages, SOON, loaded, tell_failures},
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
    /// A contestant that failed once takes no further part: if it hangs, it would cost half a minute each time.
    failed: bool,
}

impl Samples {
    fn takes_part(&self, end: End) -> bool {
        self.end == end && !self.failed
    }
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
    let started = start(passing.as_ref().unwrap_or(stays), waiter, end, key, all).await;
    // Its holder goes in any case: while it lives, it shows signs of life all the time.
    let finished = finish(passing, stays, end).await;
    started.and(finished)?;
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
    let mut begun = vec![];
    for round in 0..plan.slow_take_overs {
        for end in &ends {
            let key = format!("slow-{}-{round}", end.name());
            match begin(pages, waiter, *end, &key, &mut all).await {
                Ok(()) => begun.push((*end, key)),
                Err(error) => eprintln!("  take-over, {key}: {error:#}"),
            }
        }
    }
    for (end, key) in begun {
        if let Err(error) = collect(waiter, end, &key, &mut all).await {
            eprintln!("  take-over, {key}: {error:#}");
        }
    }
    report(&all, &[50], figures);
    Ok(())
}

async fn begin(pages: &Pages, waiter: &Tab, end: End, key: &str, all: &mut [Samples]) -> anyhow::Result<()> {
    let holder = pages.open().await?;
    let started = start(&holder, waiter, end, key, all).await;
    // At once: one of them loses a lock that it holds for long.
    let finished = finish(Some(holder), waiter, end).await;
    started.and(finished)
}

fn samples_of(ends: &[End], wake: Wake) -> Vec<Samples> {
    let mut all = vec![];
    for end in ends {
        let those = contestants().filter(|contestant| contestant.wake == wake && end.holds(contestant));
        all.extend(those.map(|contestant| Samples { end: *end, contestant, ms: vec![], failed: false }));
    }
    all
}

/// The holder holds what the waiter waits for.
async fn start(holder: &Tab, waiter: &Tab, end: End, key: &str, all: &mut [Samples]) -> anyhow::Result<()> {
    let failures = match end {
        End::Worker => holder.run("await bench.startWorker(arg)", json!(key)).await?,
        _ => holder.run("return bench.live(arg)", whose(end, key, all)).await?,
    };
    leave_out(&failures, end, key, all);
    waiter.start(key, "return bench.takeOver(arg)", whose(end, key, all)).await?;
    waiter.until("return bench.waiting(arg)", json!(key), SOON).await?;
    Ok(())
}

/// The locks of all who still take part, and the key.
fn whose(end: End, key: &str, all: &[Samples]) -> Value {
    let names = all.iter().filter(|samples| samples.takes_part(end)).map(|samples| samples.contestant.name);
    json!({ "names": names.collect::<Vec<_>>(), "key": key })
}

fn leave_out(failures: &Value, end: End, key: &str, all: &mut [Samples]) {
    tell_failures(&format!("take-over, {key}"), failures);
    for samples in all.iter_mut().filter(|samples| samples.end == end) {
        samples.failed |= failures.get(samples.contestant.name).is_some();
    }
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
    leave_out(&taken["failures"], end, key, all);
    for samples in all.iter_mut().filter(|samples| samples.takes_part(end)) {
        match taken["samples"].get(samples.contestant.name) {
            Some(ms) => samples.ms.push(number(ms)?),
            None => eprintln!("  take-over, {key}: {} gave no sample", samples.contestant.name),
        }
    }
    Ok(())
}

fn report(all: &[Samples], percents: &[usize], figures: &mut Figures) {
    for Samples { end, contestant, ms, .. } in all {
        figures.percentiles(&contestant.figure(&format!("{}_takeover", end.name())), Unit::Ms, ms, percents);
    }
}
