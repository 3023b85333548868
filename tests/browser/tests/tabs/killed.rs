//! Processes that end without a word, and how long it takes in numbers until the next tab has the lease.

use anyhow::{Context as _, ensure};
use leasehold_browser_tests::{Deadline, Engine, Tab};
use serde_json::{Value, json};

use crate::world::{LASTING_MS, SOON, World, granted, hold, lasting, now_ms, token_and_time, wait_in_queue};

/// Brief leases, and nothing tells of an end but silence.
fn silent() -> Value {
    json!({ "leaseMs": 3_000, "heartbeatMs": 500, "beacon": false })
}

/// The operating system ends the process, as it does when memory runs out.
pub async fn a_killed_holder_is_replaced(world: &World) -> anyhow::Result<()> {
    let world = &world.with_a_browser_of_its_own().await?;
    let took = take_over(world, lasting(), Tab::kill).await?;
    world.tell("take-over from a killed tab", took);
    Ok(())
}

/// Nothing tells that it is gone but its silence.
pub async fn a_killed_holder_without_beacon_is_replaced(world: &World) -> anyhow::Result<()> {
    let world = &world.with_a_browser_of_its_own().await?;
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
    end: impl AsyncFn(Tab) -> anyhow::Result<u64>,
) -> anyhow::Result<u64> {
    for _ in 0..3 {
        let waiter = world.tab(options.clone()).await?;
        let holder = beside(world, &options, &waiter).await?;
        let first = hold(&holder, "notes").await?;
        if let Some((_, took)) = took(first, holder, &waiter, &end).await? {
            return Ok(took);
        }
        world.note("the browser loaded the waiter's page anew, or closed it, before it had the lease");
        drop(waiter.close().await);
    }
    anyhow::bail!("the browser loads the waiter's page anew each time")
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

/// The waiter's token, and how long it took; none if its page was loaded anew before.
async fn took(
    first: u64,
    holder: Tab,
    waiter: &Tab,
    end: impl AsyncFnOnce(Tab) -> anyhow::Result<u64>,
) -> anyhow::Result<Option<(u64, u64)>> {
    wait_in_queue(waiter, "notes").await?;
    let ended = end(holder).await?;
    let Some((token, at)) = granted_to(waiter).await? else { return Ok(None) };
    ensure!(token > first, "the token {token} is not larger than {first}");
    ensure!(at >= ended, "granted {} ms before the holder ended", ended - at);
    Ok(Some((token, at - ended)))
}

/// Its token and the time, also when the page was loaded anew since, as Firefox does when a process has died; none if it was so
/// before it was granted anything.
async fn granted_to(waiter: &Tab) -> anyhow::Result<Option<(u64, u64)>> {
    let failed = match granted(waiter, SOON).await {
        Ok(grant) => return Ok(Some(grant)),
        Err(error) => error,
    };
    let deadline = Deadline::after(SOON);
    let anew = "return window.jobs ? 'the same page' : (JSON.parse(localStorage.granted ?? 'null') ?? 'nothing')";
    loop {
        match waiter.run(anew, Value::Null).await {
            // Firefox may have answered nothing at all in the moment of the death.
            Ok(page) if page == "the same page" => return granted(waiter, SOON).await.map(Some),
            Ok(page) if page == "nothing" => return Ok(None),
            Ok(grant) if grant.is_object() => return token_and_time(&grant).map(Some),
            // It is being loaded.
            Ok(_) | Err(_) if deadline.glance().await => {}
            // Firefox has closed the waiter's tab along with the process of the other one. That says nothing of leases.
            Err(gone) if format!("{gone:#}").contains("no such window") => return Ok(None),
            _ => return Err(failed),
        }
    }
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
        let taken = took(token, holder, &waiter, &end).await?;
        (token, time) = taken.context("the waiter's page was loaded anew")?;
        all.push(time);
        holder = waiter;
    }
    all.sort_unstable();
    Ok(all)
}
