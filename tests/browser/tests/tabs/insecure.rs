//! Plain http on a name that is not loopback's: no secure context, and so no Web Locks to tell that a tab died.

use anyhow::ensure;
use leasehold_browser_tests::Tab;
use serde_json::{Value, json};

use crate::{
    counting::{count_in_both, read},
    world::{SOON, World, brief, granted, hold, lasting, now_ms, wait_in_queue},
};

const STEPS: usize = 100;

async fn tab(world: &World, options: Value) -> anyhow::Result<Tab> {
    let tab = world.tab_at(world.engine.insecure_host(), options).await?;
    let context = tab.run("return [isSecureContext, typeof navigator.locks]", Value::Null).await?;
    ensure!(context == json!([false, "undefined"]), "not an insecure context: {context}");
    Ok(tab)
}

pub async fn two_tabs_without_web_locks_lose_no_increment(world: &World) -> anyhow::Result<()> {
    let tabs = [tab(world, json!({})).await?, tab(world, json!({})).await?];
    let began = now_ms();
    count_in_both(&tabs, STEPS, "counter".into()).await?;
    world.tell("200 turns of two tabs without Web Locks", now_ms() - began);
    let (actual, expected) = read(&tabs[0]).await?;
    ensure!(expected == 2 * STEPS as u64, "{expected} steps were made");
    ensure!(actual == expected, "of {expected} steps {} were lost", expected - actual);
    Ok(())
}

/// Nothing tells that the holder is gone but its silence, watched for a whole lease.
pub async fn a_silent_holder_without_web_locks_is_replaced(world: &World) -> anyhow::Result<()> {
    let (holder, waiter) = (tab(world, brief()).await?, tab(world, brief()).await?);
    let first = hold(&holder, "notes").await?;
    wait_in_queue(&waiter, "notes").await?;
    let ended = now_ms();
    holder.close().await?;
    let (token, at) = granted(&waiter, SOON).await?;
    world.tell("take-over of a lease of 3 s without Web Locks", at.saturating_sub(ended));
    ensure!(token > first, "the token {token} is not larger than {first}");
    Ok(())
}

/// No beacon shows that the holder is gone, and no heartbeat comes for minutes: only the holder's message tells the waiter.
pub async fn a_manager_that_closes_without_web_locks_tells_the_next_holder(world: &World) -> anyhow::Result<()> {
    let (holder, waiter) = (tab(world, lasting()).await?, tab(world, lasting()).await?);
    let first = hold(&holder, "notes").await?;
    wait_in_queue(&waiter, "notes").await?;
    let ended = now_ms();
    holder.run("await leases.close()", Value::Null).await?;
    let (token, at) = granted(&waiter, SOON).await?;
    world.tell("take-over from a manager that was closed, without Web Locks", at.saturating_sub(ended));
    ensure!(token > first, "the token {token} is not larger than {first}");
    Ok(())
}
