//! One engine, from its start to its figures.

use leasehold_bench_machine::Watch;
use leasehold_browser_tests::{Browser, Server, Tab};
use serde_json::Value;

use crate::{alone, crowd, figures::Figures, first, idle, page::Pages, pair, report::Run, take_over};

/// How much of everything.
pub(crate) struct Plan {
    /// Rounds of uncontended turns, of ten turns each for the quick.
    pub(crate) alone_rounds: u32,
    /// Rounds of hand-offs, of ten each for the quick.
    pub(crate) hand_off_rounds: u32,
    pub(crate) take_overs: u32,
    /// Of those who poll.
    pub(crate) slow_take_overs: u32,
    pub(crate) crowd_tabs: usize,
    pub(crate) large_crowd_tabs: usize,
    /// A tab's turns in the crowd are divided by this.
    pub(crate) crowd_divisor: u32,
    pub(crate) idle_beats: u32,
    /// Fresh tabs of each page.
    pub(crate) fresh_tabs: u32,
}

impl Plan {
    pub(crate) const FULL: Self = Self {
        alone_rounds: 40,
        hand_off_rounds: 20,
        take_overs: 30,
        slow_take_overs: 3,
        crowd_tabs: 10,
        large_crowd_tabs: 50,
        crowd_divisor: 1,
        idle_beats: 8,
        fresh_tabs: 25,
    };
    pub(crate) const QUICK: Self = Self {
        alone_rounds: 5,
        hand_off_rounds: 3,
        take_overs: 3,
        slow_take_overs: 1,
        crowd_tabs: 4,
        large_crowd_tabs: 8,
        crowd_divisor: 5,
        idle_beats: 3,
        fresh_tabs: 4,
    };
}

/// Adds the figures part by part. A part that fails is reported, and the others go on.
///
/// # Errors
/// When the browser itself can no longer be used. The figures up to then are there.
pub(crate) async fn measure(plan: &Plan, run: &mut Run) -> anyhow::Result<()> {
    let engine = run.engine;
    let pages = start(run).await?;
    let mut tab = pages.open().await?;
    tell_clock(&tab).await?;
    run.part(FIRST, async |figures| first::measure(&pages, plan, figures).await).await;
    if !run.part("turns alone", async |figures| alone::measure(&pages, &tab, plan, figures).await).await {
        tab = pages.open().await?;
    }
    if !run.part("hand-offs", async |figures| pair::measure(&pages, &tab, plan, figures).await).await {
        tab = pages.open().await?;
    }
    let told = async |figures: &mut Figures| take_over::measure(engine, &pages, &tab, plan, figures).await;
    if !run.part("take-overs", told).await {
        tab = pages.open().await?;
    }
    run.part("crowds", async |figures| crowd::measure(&pages, plan, figures).await).await;
    // Counts and seconds, which nothing here disturbs: both at a time.
    let mut idle_figures = Figures::default();
    let polled = async |figures: &mut Figures| {
        let polled = take_over::measure_slow(engine, &pages, &tab, plan, figures);
        let (polled, idle) = tokio::join!(polled, idle::measure(&pages, plan, &mut idle_figures));
        tell_end("idle managers", idle);
        polled
    };
    run.part("slow take-overs", polled).await;
    run.figures.append(idle_figures);
    run.figures.compare_with_old();
    Ok(())
}

/// The fresh tabs alone.
pub(crate) async fn measure_first(plan: &Plan, run: &mut Run) -> anyhow::Result<()> {
    let pages = start(run).await?;
    run.part(FIRST, async |figures| first::measure(&pages, plan, figures).await).await;
    Ok(())
}

const FIRST: &str = "first leases";

async fn start(run: &mut Run) -> anyhow::Result<Pages> {
    let pages = Pages { server: Server::start()?, browser: Browser::start(run.engine).await? };
    run.version = Some(pages.browser.version());
    Ok(pages)
}

impl Run {
    /// Whether a part came to its end; if it did not, its tabs may go on with it.
    async fn part(&mut self, name: &'static str, work: impl AsyncFnOnce(&mut Figures) -> anyhow::Result<()>) -> bool {
        let watch = Watch::begin();
        let outcome = work(&mut self.figures).await;
        self.others.extend(watch.and_then(|watch| watch.others()).map(|others| (name, others)));
        tell_end(name, outcome)
    }
}

fn tell_end(part: &str, outcome: anyhow::Result<()>) -> bool {
    outcome.inspect_err(|error| eprintln!("  {part}: not measured to the end: {error:#}")).is_ok()
}

async fn tell_clock(tab: &Tab) -> anyhow::Result<()> {
    if tab.run("return crossOriginIsolated", Value::Null).await? != true {
        eprintln!("  the page is not isolated, and so has a coarse clock");
    }
    Ok(())
}
