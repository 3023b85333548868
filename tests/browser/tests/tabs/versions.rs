//! Tabs of an earlier build stay open while a new one is deployed: they take turns with its tabs.

use anyhow::ensure;
use leasehold_browser_tests::Tab;
use serde_json::{Value, json};

use crate::{
    counting::{count_in_both, read},
    fence,
    world::{SOON, World, brief, granted, hold, lasting, now_ms, opened, wait_in_queue, while_it_hangs},
};

const STEPS: usize = 100;

/// Whether the page runs the present build. The two may be equal byte by byte, as long as nothing changed since the earlier.
const BUILD: &str = "return performance.getEntriesByType('resource')
    .some(({ name }) => new URL(name).pathname === '/pkg/index.mjs')";

/// A tab of each build.
async fn two_builds(world: &World) -> anyhow::Result<[Tab; 2]> {
    let tabs = [world.bare_tab().await?, world.earlier_tab().await?];
    let mut builds = Vec::new();
    for tab in &tabs {
        builds.push(tab.run(BUILD, Value::Null).await?);
    }
    ensure!(builds == [json!(true), json!(false)], "the tabs run the same build");
    Ok(tabs)
}

pub async fn two_builds_lose_no_increment(world: &World) -> anyhow::Result<()> {
    let [new, old] = two_builds(world).await?;
    let tabs = [opened(new, json!({})).await?, opened(old, json!({})).await?];
    let tokens = count_in_both(&tabs, STEPS, "counter".into()).await?;
    let (actual, expected) = read(&tabs[0]).await?;
    ensure!((actual, expected) == (2 * STEPS as u64, 2 * STEPS as u64), "{actual} of {expected} steps");
    let mut all = tokens.concat();
    all.sort_unstable();
    all.dedup();
    ensure!(all.len() == 2 * STEPS, "a token was given out twice");
    Ok(())
}

/// Each hands over to the other, by a release and by its end.
pub async fn two_builds_hand_over(world: &World) -> anyhow::Result<()> {
    for old_first in [true, false] {
        let [new, old] = two_builds(world).await?;
        let [first, second] = if old_first { [old, new] } else { [new, old] };
        let (first, second) = (opened(first, lasting()).await?, opened(second, lasting()).await?);
        let one = hold(&first, "notes").await?;
        wait_in_queue(&second, "notes").await?;
        first.run("await lease.release()", Value::Null).await?;
        let (two, _) = granted(&second, SOON).await?;
        wait_in_queue(&first, "notes").await?;
        let ended = now_ms();
        second.close().await?;
        let (three, at) = granted(&first, SOON).await?;
        world.tell("take-over from a closed tab of another build", at.saturating_sub(ended));
        ensure!(one < two && two < three, "the tokens are {one}, {two}, {three}");
        first.run("await lease.release(); await leases.close()", Value::Null).await?;
    }
    Ok(())
}

/// What either build writes late does not come through past the other.
pub async fn two_builds_fence_each_other(world: &World) -> anyhow::Result<()> {
    for old_is_slow in [true, false] {
        while_it_hangs(world, async |ms| writes_late(world, old_is_slow, ms).await).await?;
    }
    Ok(())
}

async fn writes_late(world: &World, old_is_slow: bool, ms: u64) -> anyhow::Result<bool> {
    let [new, old] = two_builds(world).await?;
    let [slow, fast] = if old_is_slow { [old, new] } else { [new, old] };
    for tab in [&slow, &fast] {
        fence::open(tab, json!({ "by": "raw", "options": brief() })).await?;
    }
    hold(&slow, "notes").await?;
    wait_in_queue(&fast, "notes").await?;
    let late = fence::write_late(&slow, &fast, &[json!({})], ms, "in time").await?;
    if let Some(late) = &late {
        ensure!(late[0]["written"] == false && late[0]["said"][0] == "LeaseLost", "{late}");
        ensure!(fence::note(&fast).await? == "in time", "the late write came through");
    }
    for tab in [slow, fast] {
        tab.run("await leases.close(); closeNotes()", Value::Null).await?;
        tab.close().await?;
    }
    Ok(late.is_some())
}
