//! Pages that the browser freezes and lets go on. Chromium alone tells them.

use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};

use crate::{
    left::ensure_suspended,
    world::{LASTING_MS, SOON, World, given_back, granted, hold, lasting, now_ms, wait_in_queue},
};

/// Long enough that a timer that still rang would have.
const WHILE: Duration = Duration::from_secs(1);

pub async fn a_frozen_page_gives_its_lease_up(world: &World) -> anyhow::Result<()> {
    for options in [lasting(), json!({ "beacon": false, "leaseMs": LASTING_MS })] {
        let (holder, waiter) = (world.tab(options.clone()).await?, world.tab(options).await?);
        let first = hold(&holder, "notes").await?;
        wait_in_queue(&waiter, "notes").await?;
        let gone = now_ms();
        holder.freeze(true).await?;
        let (token, at) = granted(&waiter, SOON).await?;
        world.tell("take-over from a page that was frozen", at.saturating_sub(gone));
        ensure!(token > first, "the token {token} is not larger than {first}");
        tokio::time::sleep(WHILE).await;
        holder.freeze(false).await?;
        ensure_suspended(&holder).await?;
        holder.start("again", "return (await leases.acquire('notes')).release()", Value::Null).await?;
        waiter.run("await lease.release()", Value::Null).await?;
        let again = holder.outcome("again", SOON).await?;
        ensure!(again == "released", "the page that goes on says {again}");
    }
    Ok(())
}

/// The others take turns meanwhile, past its place; it has its own when it goes on.
pub async fn a_frozen_waiter_is_passed_over_and_queues_again(world: &World) -> anyhow::Result<()> {
    let [holder, frozen, next] =
        [world.tab(lasting()).await?, world.tab(lasting()).await?, world.tab(lasting()).await?];
    hold(&holder, "notes").await?;
    wait_in_queue(&frozen, "notes").await?;
    wait_in_queue(&next, "notes").await?;
    frozen.freeze(true).await?;
    let released = now_ms();
    holder.run("await lease.release()", Value::Null).await?;
    let (passed, at) = granted(&next, SOON).await?;
    world.tell("hand-off past a frozen page", at.saturating_sub(released));
    next.run("await lease.release()", Value::Null).await?;
    for turn in 0..5 {
        let tab = if turn % 2 == 0 { &holder } else { &next };
        let turn = tab.run("return (await leases.acquire('notes')).release()", Value::Null).await?;
        ensure!(turn == "released", "a turn beside a frozen page says {turn}");
    }
    hold(&holder, "notes").await?;
    frozen.freeze(false).await?;
    holder.until("return (await leases.status('notes')).queue.length === 1", Value::Null, SOON).await?;
    holder.run("await lease.release()", Value::Null).await?;
    let (token, _) = granted(&frozen, SOON).await?;
    ensure!(token > passed, "the token {token} is not larger than {passed}");
    let kept = frozen.run(&given_back("lease"), Value::Null).await?;
    ensure!(kept == json!([true, true, "released"]), "the lease of a page that goes on: {kept}");
    Ok(())
}
