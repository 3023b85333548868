//! What browsers do to pages that live: they keep them for the way back, freeze them and let them go on.

use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};

use crate::world::{SOON, World, granted, hold, now_ms, wait_in_queue};

/// A page that is left gives its lease up at once, and knows when it comes back.
pub async fn a_page_that_is_left_gives_its_lease_up(world: &World) -> anyhow::Result<()> {
    left(world, json!({})).await
}

/// The same where nobody sees the other die: the tombstone and the message do it.
pub async fn a_page_that_is_left_without_beacon_gives_its_lease_up(world: &World) -> anyhow::Result<()> {
    left(world, json!({ "beacon": false })).await
}

async fn left(world: &World, options: Value) -> anyhow::Result<()> {
    let (holder, waiter) = (world.tab(options.clone()).await?, world.tab(options).await?);
    let first = hold(&holder, "notes").await?;
    wait_in_queue(&waiter, "notes").await?;
    holder.run("addEventListener('pageshow', (event) => { window.persisted = event.persisted })", Value::Null).await?;
    let gone = now_ms();
    holder.goto(&world.server.url_at("localhost", "/tests/blank.html")).await?;
    let (token, at) = granted(&waiter, SOON).await?;
    world.tell("take-over from a page that was left", at.saturating_sub(gone));
    ensure!(token > first, "the token {token} is not larger than {first}");
    holder.back().await?;
    let restored = holder.run("return window.persisted ?? null", Value::Null).await?;
    if restored == json!(true) {
        let known =
            holder.run("return [lease.valid, lease.signal.reason.reason, await lease.release()]", Value::Null).await?;
        ensure!(known == json!([false, "Suspended", "lost"]), "what the page knows: {known}");
    }
    let left = waiter.run(
        "const { promise, resolve } = Promise.withResolvers();
         const open = indexedDB.open('leasehold:tests');
         open.onsuccess = () => { const all = open.result.transaction('leases').objectStore('leases').getAllKeys(); all.onsuccess = () => { open.result.close(); resolve(all.result) } };
         return promise", Value::Null).await?;
    ensure!(left.as_array().is_some_and(|left| left.len() == 2), "a tombstone is left: {left}");
    Ok(())
}

pub async fn a_frozen_page_gives_its_lease_up(world: &World) -> anyhow::Result<()> {
    let (holder, waiter) = (world.tab(json!({})).await?, world.tab(json!({})).await?);
    hold(&holder, "notes").await?;
    wait_in_queue(&waiter, "notes").await?;
    let gone = now_ms();
    holder.freeze(true).await?;
    let (_, at) = granted(&waiter, SOON).await?;
    world.tell("take-over from a page that was frozen", at.saturating_sub(gone));
    tokio::time::sleep(Duration::from_secs(1)).await;
    holder.freeze(false).await?;
    let known =
        holder.run("return [lease.valid, lease.signal.reason.reason, await lease.release()]", Value::Null).await?;
    ensure!(known == json!([false, "Suspended", "lost"]), "what the page knows: {known}");
    Ok(())
}
