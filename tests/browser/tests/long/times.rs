//! How long the next tab waits after a holder ended, over many of them.

use anyhow::ensure;
use leasehold_browser_tests::{Engine, Tab};
use serde_json::{Value, json};

use crate::{killed, world::World};

const ENDS: usize = 20;
/// What is promised.
const MEDIAN_MS: u64 = 60;
const WORST_MS: u64 = 250;

pub async fn take_over_after_close(world: &World) -> anyhow::Result<()> {
    at_once(world, "close", json!({}), killed::closed).await
}

pub async fn take_over_after_reload(world: &World) -> anyhow::Result<()> {
    at_once(world, "reload", json!({}), killed::reloaded).await
}

pub async fn take_over_after_crash(world: &World) -> anyhow::Result<()> {
    at_once(world, "crash", json!({}), killed::crashed).await
}

pub async fn take_over_after_kill(world: &World) -> anyhow::Result<()> {
    at_once(world, "kill", json!({}), Tab::kill).await
}

/// The deleted session and the message do it alone. Firefox ends about every second tab without `pagehide`: its silence does it.
pub async fn without_beacon(world: &World) -> anyhow::Result<()> {
    let options = json!({ "beacon": false, "leaseMs": 4_000 });
    if world.engine == Engine::Chromium {
        return at_once(world, "close without beacon", options, killed::closed).await;
    }
    let all = killed::times(world, options, killed::closed, ENDS).await?;
    world.note(&format!("take-over after close without beacon: {all:?} ms"));
    // The lease and its margin, a heartbeat, and a second.
    ensure!(all[ENDS - 1] <= 4_400 + 1_000 + 1_000, "take-over after close without beacon: {all:?} ms");
    Ok(())
}

async fn at_once(
    world: &World,
    what: &str,
    options: Value,
    end: impl AsyncFn(Tab) -> anyhow::Result<u64>,
) -> anyhow::Result<()> {
    let all = killed::times(world, options, end, ENDS).await?;
    // Of twenty, the 99th percentile is the worst.
    world.note(&format!("take-over after {what}: {all:?} ms"));
    let (median, worst) = (all[ENDS / 2], all[ENDS - 1]);
    world.tell(&format!("take-over after {what}, p50"), median);
    world.tell(&format!("take-over after {what}, p99"), worst);
    ensure!(median <= MEDIAN_MS && worst <= WORST_MS, "take-over after {what}: {all:?} ms");
    Ok(())
}
