//! Many tabs that count up one number, while some of them are closed, reloaded and crashed: the number is exact, and no
//! turn was written after a later one.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use leasehold_browser_tests::{Engine, Tab};
use serde_json::{Value, json};

use crate::world::{World, now_ms};

/// What the random numbers begin with.
const SEED: u64 = 20_261_121;
const PATIENCE: Duration = Duration::from_secs(240);

pub async fn many_tabs_that_come_and_go_count_exactly(world: &World) -> anyhow::Result<()> {
    count(world, 8, 40).await
}

pub async fn count(world: &World, tabs: usize, steps: u64) -> anyhow::Result<()> {
    let mut random = Random(SEED);
    let mut counting = Vec::with_capacity(tabs);
    for name in 0..tabs {
        let tab = world.tab(json!({})).await?;
        begin(&tab, name, steps).await?;
        counting.push((name, tab));
    }
    let began = now_ms();
    // A quarter of them meets with an accident.
    for _ in 0..tabs / 4 {
        let (name, tab) = counting.swap_remove(random.below(counting.len()));
        tokio::time::sleep(Duration::from_millis(random.below(300) as u64)).await;
        match (random.below(3), world.engine) {
            (0, _) => tab.close().await?,
            (1, Engine::Chromium) => tab.crash().await?,
            _ => tab.reload().await?,
        }
        // Somebody goes on in its place.
        let tab = world.tab(json!({})).await?;
        begin(&tab, name, steps).await?;
        counting.push((name, tab));
    }
    for (name, tab) in &counting {
        let made = tab.outcome("turns", PATIENCE).await?;
        ensure!(made == steps, "the tab {name} has made {made} turns");
    }
    world.tell(&format!("{tabs} tabs × {steps} turns"), now_ms() - began);
    check(&counting[0].1, tabs, steps).await
}

async fn begin(tab: &Tab, name: usize, steps: u64) -> anyhow::Result<()> {
    tab.start("turns", "return makeTurns(arg)", json!({ "key": "counter", "tab": name, "steps": steps })).await
}

async fn check(tab: &Tab, tabs: usize, steps: u64) -> anyhow::Result<()> {
    let log = tab.run("return readTurns()", Value::Null).await?;
    let turns = log["turns"].as_array().context("turns")?;
    ensure!(log["count"] == turns.len(), "the count is {} after {} turns", log["count"], turns.len());
    ensure!(turns.len() as u64 == tabs as u64 * steps, "{} turns were made", turns.len());
    let number = |turn: &Value, name| turn[name].as_u64().unwrap_or_default();
    for pair in turns.windows(2) {
        ensure!(
            number(&pair[0], "token") < number(&pair[1], "token"),
            "a turn after a later one: {} {}",
            pair[0],
            pair[1]
        );
        ensure!(number(&pair[0], "end") <= number(&pair[1], "start"), "two turns at once: {} {}", pair[0], pair[1]);
    }
    Ok(())
}

/// xorshift64
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).expect("a number below a usize")
    }
}
