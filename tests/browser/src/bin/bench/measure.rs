//! One engine, from its start to its figures.

use leasehold_browser_tests::{Browser, Engine, Server, Tab};
use serde_json::Value;

use crate::{alone, crowd, figures::Figures, first, idle, page::Pages, pair, take_over};

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

/// Adds the figures part by part. A part that fails is told, and the others go on.
///
/// # Errors
/// When the browser itself can no longer be used. The figures up to then are there.
pub(crate) async fn measure(engine: Engine, plan: &Plan, figures: &mut Figures) -> anyhow::Result<()> {
    let pages = Pages { server: Server::start()?, browser: Browser::start(engine).await? };
    let mut tab = pages.open().await?;
    tell_clock(&tab).await?;
    has_ended("the first lease", first::measure(&pages, plan, figures).await);
    if !has_ended("turns alone", alone::measure(&pages, &tab, plan, figures).await) {
        tab = pages.open().await?;
    }
    if !has_ended("hand-offs", pair::measure(&pages, &tab, plan, figures).await) {
        tab = pages.open().await?;
    }
    if !has_ended("take-overs", take_over::measure(engine, &pages, &tab, plan, figures).await) {
        tab = pages.open().await?;
    }
    has_ended("the crowds", crowd::measure(&pages, plan, figures).await);
    // Counts and seconds, which nothing here disturbs: both at a time.
    let mut slow = Figures::default();
    let polled = take_over::measure_slow(engine, &pages, &tab, plan, &mut slow);
    let (polled, idle) = tokio::join!(polled, idle::measure(&pages, plan, figures));
    has_ended("slow take-overs", polled);
    has_ended("idle managers", idle);
    slow.iter().for_each(|(name, value)| figures.add(name, value));
    Ok(())
}

/// The fresh tabs alone.
pub(crate) async fn measure_first(engine: Engine, plan: &Plan, figures: &mut Figures) -> anyhow::Result<()> {
    let pages = Pages { server: Server::start()?, browser: Browser::start(engine).await? };
    first::measure(&pages, plan, figures).await
}

/// Whether a part came to its end; tells why it did not. Its tab may go on with it.
fn has_ended(part: &str, outcome: anyhow::Result<()>) -> bool {
    outcome.inspect_err(|error| eprintln!("  {part} ended early: {error:#}")).is_ok()
}

async fn tell_clock(tab: &Tab) -> anyhow::Result<()> {
    if tab.run("return crossOriginIsolated", Value::Null).await? != true {
        eprintln!("  the page is not isolated, and so has a coarse clock");
    }
    Ok(())
}
