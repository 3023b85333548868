//! Tabs that come, go and change their minds.

use std::{collections::HashSet, time::Duration};

use anyhow::ensure;
use leasehold_browser_tests::{Engine, Tab};
use serde_json::{Value, json};

use crate::{
    counting::read,
    world::{SOON, World},
};

const LONG: Duration = Duration::from_secs(240);

/// Two tabs count from beginning to end; others join them, and are ended in the middle of whatever they do.
pub async fn tabs_that_come_and_go_lose_no_increment(world: &World) -> anyhow::Result<()> {
    let steady = [world.tab(json!({})).await?, world.tab(json!({})).await?];
    for tab in &steady {
        count(tab, 1_000).await?;
    }
    steady[0].run("go()", Value::Null).await?;
    for guest in 0..6 {
        let tab = world.tab(json!({})).await?;
        count(&tab, 1_000).await?;
        tab.run("go()", Value::Null).await?;
        tab.until("return (await leases.status('counter')).holders.some(({ own }) => own)", Value::Null, SOON).await?;
        match (guest % 3, world.engine) {
            (0, Engine::Chromium) => tab.crash().await?,
            (1, _) => tab.reload().await?,
            _ => tab.close().await?,
        }
    }
    for tab in &steady {
        tab.outcome("count", LONG).await?;
    }
    let (actual, expected) = read(&steady[0]).await?;
    ensure!(expected >= 2_000, "only {expected} steps were made");
    ensure!(actual == expected, "of {expected} steps {} were lost", expected - actual);
    nothing_is_left(&steady[0], "counter").await
}

async fn count(tab: &Tab, steps: u32) -> anyhow::Result<()> {
    tab.start("count", "return count(arg)", json!({ "steps": steps, "key": "counter" })).await
}

/// Two tabs whose waits end in every way: granted, timed out, aborted, refused. If the tabs did not run at the same time, they do it again.
pub async fn given_up_waits_leave_nothing_behind(world: &World) -> anyhow::Result<()> {
    const ROUNDS: usize = 5;
    let tabs = [world.window(json!({})).await?, world.window(json!({})).await?];
    let mut missing = HashSet::new();
    for round in 1..=ROUNDS {
        let ends = waver(&tabs).await?;
        let never = |ends: &Value, end: &str| ends[end].as_u64() == Some(0);
        let all = ends.iter().zip(1..).flat_map(|(ends, tab)| WAYS.map(|end| (tab, end, never(ends, end))));
        let new: HashSet<(usize, &str)> = all.filter(|(.., never)| *never).map(|(tab, end, _)| (tab, end)).collect();
        missing = if round == 1 { new } else { &missing & &new };
        if missing.is_empty() {
            return nothing_is_left(&tabs[0], "notes").await;
        }
        world.note(&format!("after round {round}, waits of these tabs have not yet ended in these ways: {missing:?}"));
    }
    anyhow::bail!("no wait of these tabs ended in these ways: {missing:?}")
}

/// The ways in which a wait ends.
const WAYS: [&str; 4] = ["granted", "timed out", "aborted", "refused"];

/// How often the waits of each tab ended in each way.
async fn waver(tabs: &[Tab; 2]) -> anyhow::Result<[Value; 2]> {
    for tab in tabs {
        tab.start("waver", "return waver(arg)", json!({ "key": "notes", "times": 200 })).await?;
    }
    tabs[0].run("go()", Value::Null).await?;
    let ends = [tabs[0].outcome("waver", LONG).await?, tabs[1].outcome("waver", LONG).await?];
    for ends in &ends {
        ensure!(ends["surprises"] == json!([]), "{ends}");
    }
    Ok(ends)
}

/// A tab keeps for a moment what nobody else wants.
async fn nothing_is_left(tab: &Tab, key: &str) -> anyhow::Result<()> {
    let look = "
        for (let looks = 0; looks < 600; looks++) {
            const { holder, queue } = await leases.status(arg);
            if (!holder && queue.length === 0) break;
            await new Promise((resolve) => setTimeout(resolve, 50));
        }
        return leases.status(arg)";
    let status = tab.run(look, json!(key)).await?;
    ensure!(status["holder"].is_null() && status["queue"] == json!([]), "something is left: {status}");
    Ok(())
}
