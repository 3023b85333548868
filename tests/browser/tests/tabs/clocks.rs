//! The wall clock of one page is set, as a person or the network does it.

use anyhow::{Context as _, ensure};
use leasehold_browser_tests::Tab;
use serde_json::{Value, json};

use crate::world::{LASTING_MS, SOON, World, granted, hold, wait_in_queue};

const HOUR_MS: i64 = 3_600_000;

/// By its own measure, a lease is over in none of the scenarios; and holder and waiter look often.
fn watched() -> Value {
    json!({ "leaseMs": LASTING_MS, "heartbeatMs": 250 })
}

/// Waits until both the holder and the waiter have looked at the store again and again.
async fn after_some_beats(holder: &Tab) -> anyhow::Result<()> {
    let beats = "const seen = await beats('notes');
        window.since ??= seen;
        if (seen.length !== 2 || !seen.every((beat, at) => beat >= since[at] + 6)) return false;
        window.since = undefined;
        return true";
    holder.until(beats, Value::Null, SOON).await?;
    Ok(())
}

/// The lease of the page is in doubt at once, and good as soon as the store has answered. Nobody takes it over.
pub async fn a_clock_that_is_set_brings_doubt_and_nothing_else(world: &World) -> anyhow::Result<()> {
    let (holder, waiter) = (world.window(watched()).await?, world.tab(watched()).await?);
    let token = hold(&holder, "notes").await?;
    wait_in_queue(&waiter, "notes").await?;
    for (ahead_ms, what) in [(HOUR_MS, "an hour ahead"), (-HOUR_MS, "an hour behind"), (0, "right again")] {
        let seen = holder.run("setClock(arg); return spyOnValidity()", json!(ahead_ms)).await?;
        ensure!(seen["atOnce"] == false, "{what}: the lease is valid at once");
        let again = seen["again"].as_u64().with_context(|| format!("{what}: the lease stays in doubt"))?;
        world.tell(&format!("in doubt, the clock {what}"), again);
        after_some_beats(&holder).await?;
        let kept = holder.run("return [lease.token, lease.valid, lease.signal.aborted]", Value::Null).await?;
        ensure!(kept == json!([token, true, false]), "{what}: the lease is {kept}");
    }
    let granted = waiter.run("return Boolean(window.lease)", Value::Null).await?;
    ensure!(granted == false, "the waiter was granted what is held");
    Ok(())
}

/// The clock of a waiter says nothing of the holder's lease.
pub async fn a_waiter_whose_clock_is_set_takes_nothing(world: &World) -> anyhow::Result<()> {
    let (holder, waiter) = (world.tab(watched()).await?, world.window(watched()).await?);
    let token = hold(&holder, "notes").await?;
    wait_in_queue(&waiter, "notes").await?;
    for ahead_ms in [HOUR_MS, -HOUR_MS] {
        waiter.run("setClock(arg)", json!(ahead_ms)).await?;
        after_some_beats(&holder).await?;
        let granted = waiter.run("return Boolean(window.lease)", Value::Null).await?;
        ensure!(granted == false, "the waiter was granted what is held");
        let kept = holder.run("return [lease.token, lease.signal.aborted, await lease.verify()]", Value::Null).await?;
        ensure!(kept == json!([token, false, true]), "the holder's lease is {kept}");
    }
    // Its own turn is a real one, and grows past whatever a clock that was ahead has left.
    holder.run("await lease.release()", Value::Null).await?;
    let (later, _) = granted(&waiter, SOON).await?;
    ensure!(later > token, "the token {later} is not larger than {token}");
    Ok(())
}
