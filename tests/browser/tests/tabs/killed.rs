//! Processes that end without a word, and how long it takes in numbers until the next tab has the lease.

use anyhow::ensure;
use leasehold_browser_tests::{Engine, Tab};
use serde_json::{Value, json};

use crate::world::{LASTING_MS, SOON, World, granted, hold, lasting, now_ms, wait_in_queue};

/// Brief leases, and nothing tells of an end but silence.
fn silent() -> Value {
    json!({ "leaseMs": 3_000, "heartbeatMs": 500, "beacon": false })
}

/// The operating system ends the process, as it does when memory runs out.
pub async fn a_killed_holder_is_replaced(world: &World) -> anyhow::Result<()> {
    let took = take_over(world, lasting(), Tab::kill).await?;
    world.tell("take-over from a killed tab", took);
    Ok(())
}

/// Nothing tells that it is gone but its silence.
pub async fn a_killed_holder_without_beacon_is_replaced(world: &World) -> anyhow::Result<()> {
    let took = take_over(world, silent(), Tab::kill).await?;
    world.tell("take-over of a lease of 3 s from a killed tab without beacon", took);
    Ok(())
}

/// The page says that it goes, as each does that is closed; Firefox ends about every second one without `pagehide`, and
/// then nothing tells but its silence.
pub async fn a_closed_holder_without_beacon_is_replaced(world: &World) -> anyhow::Result<()> {
    let options = match world.engine {
        Engine::Chromium | Engine::WebKit => json!({ "beacon": false, "leaseMs": LASTING_MS }),
        Engine::Firefox => silent(),
    };
    let took = take_over(world, options, closed).await?;
    world.tell("take-over from a closed tab without beacon", took);
    Ok(())
}

pub async fn closed(tab: Tab) -> anyhow::Result<u64> {
    // To be the current one takes time.
    tab.look().await?;
    let ended = now_ms();
    tab.close().await?;
    Ok(ended)
}

#[allow(dead_code, reason = "of the long suite")]
pub async fn reloaded(tab: Tab) -> anyhow::Result<u64> {
    tab.look().await?;
    let ended = now_ms();
    tab.reload().await?;
    tab.close().await?;
    Ok(ended)
}

#[allow(dead_code, reason = "of the long suite")]
pub async fn crashed(tab: Tab) -> anyhow::Result<u64> {
    tab.look().await?;
    let ended = now_ms();
    tab.crash().await?;
    Ok(ended)
}

/// Ends the holder, and brings how long it took until the waiter had the lease.
async fn take_over(
    world: &World,
    options: Value,
    end: impl AsyncFnOnce(Tab) -> anyhow::Result<u64>,
) -> anyhow::Result<u64> {
    let waiter = world.tab(options.clone()).await?;
    let holder = beside(world, &options, &waiter).await?;
    let first = hold(&holder, "notes").await?;
    took(first, holder, &waiter, end).await.map(|(_, took)| took)
}

/// A tab whose process is not that of the other.
async fn beside(world: &World, options: &Value, other: &Tab) -> anyhow::Result<Tab> {
    let busy = other.process().await?;
    for _ in 0..8 {
        let tab = world.tab(options.clone()).await?;
        if tab.process().await? != busy {
            return Ok(tab);
        }
    }
    anyhow::bail!("all tabs have one process")
}

/// The waiter's token, and how long it took.
async fn took(
    first: u64,
    holder: Tab,
    waiter: &Tab,
    end: impl AsyncFnOnce(Tab) -> anyhow::Result<u64>,
) -> anyhow::Result<(u64, u64)> {
    wait_in_queue(waiter, "notes").await?;
    let ended = end(holder).await?;
    let (token, at) = granted(waiter, SOON).await?;
    ensure!(token > first, "the token {token} is not larger than {first}");
    ensure!(at >= ended, "granted {} ms before the holder ended", ended - at);
    Ok((token, at - ended))
}

/// Ends one holder after the other, each replaced by the next. The times, sorted.
#[allow(dead_code, reason = "of the long suite")]
pub async fn times(
    world: &World,
    options: Value,
    end: impl AsyncFn(Tab) -> anyhow::Result<u64>,
    times: usize,
) -> anyhow::Result<Vec<u64>> {
    let mut holder = world.tab(options.clone()).await?;
    let mut token = hold(&holder, "notes").await?;
    let mut all = Vec::with_capacity(times);
    for _ in 0..times {
        let waiter = world.tab(options.clone()).await?;
        let time;
        (token, time) = took(token, holder, &waiter, &end).await?;
        all.push(time);
        holder = waiter;
    }
    all.sort_unstable();
    Ok(all)
}
