//! Pages that are left, and kept by the browser for the way back: its back/forward cache.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use leasehold_browser_tests::{Engine, Tab};
use serde_json::{Value, json};

use crate::world::{LASTING_MS, SOON, World, granted, hold, lasting, now_ms, wait_in_queue};

/// It gives its lease up at once, and knows when it comes back.
pub async fn a_page_that_is_left_gives_its_lease_up(world: &World) -> anyhow::Result<()> {
    // A page that held a Web Lock is not kept by Firefox, even if it let go of it in time.
    left_while_holding(world, lasting(), world.engine != Engine::Firefox).await
}

/// The same where nobody sees the other die: the deleted session and the message do it.
pub async fn a_page_that_is_left_without_beacon_gives_its_lease_up(world: &World) -> anyhow::Result<()> {
    left_while_holding(world, without_beacon(), true).await
}

fn without_beacon() -> Value {
    json!({ "beacon": false, "leaseMs": LASTING_MS })
}

async fn left_while_holding(world: &World, options: Value, kept: bool) -> anyhow::Result<()> {
    if kept {
        until_kept(world, async || left_once(world, options.clone(), true).await).await
    } else {
        let was_kept = left_once(world, options, false).await?;
        ensure!(!was_kept, "the page was kept with a lock");
        Ok(())
    }
}

/// A browser may decline to keep a page for reasons of its own. Then the scenario runs again with other pages, this often at most.
const ROUNDS: usize = 3;

/// Plays a scenario again until it says that its page was kept.
pub async fn until_kept(world: &World, play: impl AsyncFn() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    for round in 1..=ROUNDS {
        if play().await? {
            return Ok(());
        }
        world.note(&format!("a page was not kept, in round {round}"));
    }
    bail!("no page was kept in {ROUNDS} rounds")
}

/// Returns whether the page was kept. It checks what should follow only if the page was expected to be kept, and was.
async fn left_once(world: &World, options: Value, kept: bool) -> anyhow::Result<bool> {
    let (holder, waiter) = (world.tab(options.clone()).await?, world.tab(options).await?);
    let first = hold(&holder, "notes").await?;
    let left = session_of(&holder).await?;
    wait_in_queue(&waiter, "notes").await?;
    holder.run("spyOnPage()", Value::Null).await?;
    let gone = now_ms();
    holder.goto(&world.elsewhere()).await?;
    let (token, at) = granted(&waiter, SOON).await?;
    world.tell("take-over from a page that was left", at.saturating_sub(gone));
    ensure!(token > first, "the token {token} is not larger than {first}");
    holder.back().await?;
    let was_kept = restored(&holder).await?;
    let goes_on = kept && was_kept;
    if goes_on {
        ensure_suspended(&holder).await?;
        let busy = holder.run("return leases.tryAcquire('notes')", Value::Null).await?;
        ensure!(busy.is_null(), "the page that came back got what another one holds");
        holder.start("again", "return (await leases.acquire('notes')).token", Value::Null).await?;
    }
    let outcome = waiter.run("return lease.release()", Value::Null).await?;
    ensure!(outcome == "released", "the release says {outcome}");
    if goes_on {
        let again = holder.outcome("again", SOON).await?.as_u64().context("a token")?;
        ensure!(again > token, "the token {again} is not larger than {token}");
    }
    ensure_no_row_of(&left, &waiter).await?;
    for tab in [holder, waiter] {
        tab.close().await?;
    }
    Ok(was_kept)
}

/// Whether a page is the one that was left, with its spies. A fresh page has nothing that was set in the old one. The old page learns that
/// it was restored only some time after it has come back, so this waits.
pub async fn restored(tab: &Tab) -> anyhow::Result<bool> {
    let told = "return window.restored === undefined ? 'fresh' : restored && 'kept'";
    Ok(tab.until(told, Value::Null, SOON).await? == "kept")
}

/// The page knows that its lease is gone, and why.
pub async fn ensure_suspended(tab: &Tab) -> anyhow::Result<()> {
    let late = "new Promise((resolve) => setTimeout(resolve, 60_000, 'not told'))";
    let known = format!(
        "return [lease.valid, await Promise.race([lease.lost, {late}]), lease.signal.aborted, lease.signal.reason?.reason,
            await lease.release()]"
    );
    let known = tab.run(&known, Value::Null).await?;
    ensure!(known == json!([false, "Suspended", true, "Suspended", "lost"]), "what the page knows: {known}");
    Ok(())
}

/// The session that a tab has now.
async fn session_of(tab: &Tab) -> anyhow::Result<Value> {
    tab.run("return leases.holder", Value::Null).await
}

/// The store has rows of keys, of sessions that may be alive, and its own; none of a session that has ended.
async fn ensure_no_row_of(ended: &Value, tab: &Tab) -> anyhow::Result<()> {
    let names = tab.run("return names()", Value::Null).await?;
    let of_others = names.as_array().context("a list")?.iter().filter(|name| name[0] != "session");
    ensure!(of_others.eq([&json!("notes"), &json!(["store"])]), "the store has {names}");
    ensure!(!names.to_string().contains(ended.as_str().context("a name")?), "{ended} ended, and the store has {names}");
    Ok(())
}

/// Its place is free at once; it queues again when it comes back.
pub async fn a_waiting_page_that_is_left_queues_again(world: &World) -> anyhow::Result<()> {
    until_kept(world, async || left_while_waiting(world).await).await
}

async fn left_while_waiting(world: &World) -> anyhow::Result<bool> {
    // With a beacon, Firefox would not keep the page.
    let options = json!({ "beacon": false });
    let (holder, waiter) = (world.tab(options.clone()).await?, world.tab(options).await?);
    let first = hold(&holder, "notes").await?;
    wait_in_queue(&waiter, "notes").await?;
    waiter.run("spyOnPage()", Value::Null).await?;
    let queue = "return (await leases.status('notes')).queue.map(({ holder }) => holder)";
    let before = holder.run(queue, Value::Null).await?;
    waiter.goto(&world.elsewhere()).await?;
    holder.until("return (await leases.status('notes')).queue.length === 0", Value::Null, SOON).await?;
    waiter.back().await?;
    if !restored(&waiter).await? {
        holder.run("await lease.release()", Value::Null).await?;
        return Ok(false);
    }
    holder.until("return (await leases.status('notes')).queue.length === 1", Value::Null, SOON).await?;
    let after = holder.run(queue, Value::Null).await?;
    ensure!(before != after, "it queues again under its old name");
    holder.run("await lease.release()", Value::Null).await?;
    let (token, _) = granted(&waiter, SOON).await?;
    ensure!(token > first, "the token {token} is not larger than {first}");
    ensure_no_row_of(&before[0], &waiter).await?;
    Ok(true)
}

const PATIENCE: Duration = Duration::from_secs(5);

/// Time passes for it while it is away.
pub async fn a_wait_ends_in_time_although_its_page_is_away(world: &World) -> anyhow::Result<()> {
    until_kept(world, async || away_until_late(world).await).await
}

async fn away_until_late(world: &World) -> anyhow::Result<bool> {
    let (holder, waiter) = (world.tab(without_beacon()).await?, world.tab(without_beacon()).await?);
    hold(&holder, "notes").await?;
    let wait = "spyOnPage(); return attempt(() => leases.acquire('notes', { timeoutMs: arg }))";
    waiter.start("wait", wait, json!(PATIENCE.as_millis())).await?;
    let began = Instant::now();
    waiter.until("return (await leases.status('notes')).queue.some(({ own }) => own)", Value::Null, SOON).await?;
    waiter.goto(&world.elsewhere()).await?;
    // It began a moment before we knew.
    tokio::time::sleep_until((began + PATIENCE).into()).await;
    waiter.back().await?;
    if !restored(&waiter).await? {
        holder.run("await lease.release()", Value::Null).await?;
        return Ok(false);
    }
    let late = now_ms();
    let failed = waiter.outcome("wait", SOON).await?;
    ensure!(failed["code"] == "Timeout", "the wait ends with {failed}");
    let took = now_ms() - late;
    world.tell("a wait whose time passed while its page was away ends after its return", took);
    ensure!(u128::from(took) < PATIENCE.as_millis(), "it took its whole time again: {took} ms");
    let queue = holder.run("return (await leases.status('notes')).queue", Value::Null).await?;
    ensure!(queue == json!([]), "it left a place in the queue: {queue}");
    Ok(true)
}

/// `document.open()` removes all listeners of a page. Ours are back with the next session, or at the next heartbeat.
pub async fn a_page_that_was_written_anew_gives_its_lease_up(world: &World) -> anyhow::Result<()> {
    let write = "document.open(); document.write('<p>written anew'); document.close()";
    for first in ["written", "held"] {
        let quick = json!({ "leaseMs": LASTING_MS, "heartbeatMs": 250 });
        let (holder, waiter) = (world.tab(quick.clone()).await?, world.tab(quick).await?);
        if first == "written" {
            holder.run(write, Value::Null).await?;
        }
        hold(&holder, "notes").await?;
        if first == "held" {
            holder.run(write, Value::Null).await?;
        }
        wait_in_queue(&waiter, "notes").await?;
        let beat = waiter.run("return (await beats('notes'))[0]", Value::Null).await?;
        waiter.until("return (await beats('notes'))[0] > arg + 1", beat, SOON).await?;
        // This listener runs after our own.
        let leave = "delete localStorage.left; addEventListener('pagehide', () => (localStorage.left = lease.valid))";
        holder.run(leave, Value::Null).await?;
        holder.goto(&world.elsewhere()).await?;
        granted(&waiter, SOON).await?;
        // The waiter may run in another process, which may see this entry only after the lease was granted.
        let left = waiter.until("return localStorage.left", Value::Null, SOON).await?;
        ensure!(left == "false", "first {first}, and a page that is left believes in its lease: {left}");
        for tab in [holder, waiter] {
            tab.close().await?;
        }
    }
    Ok(())
}

/// A component may fire events with the names of the page's lifecycle events. They bubble up to the targets of the page's own.
pub async fn an_event_of_an_element_does_not_suspend_the_page(world: &World) -> anyhow::Result<()> {
    let tab = world.window(lasting()).await?;
    hold(&tab, "notes").await?;
    let fire = "const event = new CustomEvent(arg, { bubbles: true, composed: true });
        document.body.appendChild(document.createElement('div')).dispatchEvent(event);
        return [lease.valid, (await (await leases.acquire('more')).release())]";
    for name in ["freeze", "pagehide"] {
        let kept = tab.run(fire, json!(name)).await?;
        ensure!(kept == json!([true, "released"]), "after the event {name} of an element: {kept}");
    }
    Ok(())
}

/// With nobody waiting yet, nobody sees it go: whoever comes later finds its session ended.
pub async fn a_page_that_nobody_waits_behind_leaves_its_key_free(world: &World) -> anyhow::Result<()> {
    for options in [lasting(), without_beacon()] {
        let (holder, other) = (world.tab(options.clone()).await?, world.tab(options).await?);
        let first = hold(&holder, "notes").await?;
        let left = session_of(&holder).await?;
        holder.goto(&world.elsewhere()).await?;
        let began = now_ms();
        // The browser may show the next page before it tells the page that is left.
        let tries = "window.lease = await leases.tryAcquire('notes'); return lease?.token";
        let token = other.until(tries, Value::Null, SOON).await?;
        world.tell("a try after a page was left", now_ms() - began);
        ensure!(token.as_u64() > Some(first), "a try brings {token} after {first}");
        other.run("await lease.release()", Value::Null).await?;
        ensure_no_row_of(&left, &other).await?;
    }
    Ok(())
}

/// The holder's library does not lower its beacon when its page is left. Chromium keeps the page with its lock held, and
/// lets those starve that queued for it before.
pub async fn a_waiter_behind_a_page_without_cure_gets_its_turn(world: &World) -> anyhow::Result<()> {
    let options = json!({ "leaseMs": LASTING_MS, "heartbeatMs": 5_000 });
    let (holder, waiter) = (world.tab(options.clone()).await?, world.tab(options).await?);
    let arg = json!({ "key": "notes", "leaseMs": LASTING_MS });
    let first = holder.run("return holdWithoutCure(arg)", arg).await?.as_u64().context("a token")?;
    wait_in_queue(&waiter, "notes").await?;
    // It has a watch on the other's beacon.
    let watches = "return (await navigator.locks.query()).pending.some(({ name }) => name.includes('ffffffff'))";
    waiter.until(watches, Value::Null, SOON).await?;
    let gone = now_ms();
    holder.goto(&world.elsewhere()).await?;
    let (token, at) = granted(&waiter, SOON).await?;
    world.tell("take-over from a page that keeps its beacon in the cache", at.saturating_sub(gone));
    ensure!(token > first, "the token {token} is not larger than {first}");
    Ok(())
}

/// After 10 s a page that used leases is as if it had not: no timer, no transaction, no channel, no lock, no session. So it
/// is kept by every browser, and goes on when it comes back.
pub async fn an_idle_page_is_kept_for_the_way_back(world: &World) -> anyhow::Result<()> {
    until_kept(world, async || left_while_idle(world).await).await
}

async fn left_while_idle(world: &World) -> anyhow::Result<bool> {
    let (tab, other) = (world.bare_tab().await?, world.tab(json!({})).await?);
    let use_it = "spyOnPage(); spyOnChannels(); spyOnTimers();
        await openLeases();
        await (await leases.acquire('notes')).release();
        return openChannels";
    let open = tab.run(use_it, Value::Null).await?;
    ensure!(open == 2, "of the common channel and its own, {open} are in use");
    let rests = "return openChannels === 0 && timers.size === 0";
    tab.until(rests, Value::Null, SOON).await.context("an idle page does not rest")?;
    let transactions = tab.run("return transactions", Value::Null).await?;
    let locks = tab.run("return navigator.locks.query()", Value::Null).await?;
    ensure!(locks == json!({ "held": [], "pending": [] }), "locks of an idle page: {locks}");
    let names = other.run("return names()", Value::Null).await?;
    ensure!(names == json!(["notes", ["store"]]), "an idle page leaves {names}");
    let more = tab.run("return transactions", Value::Null).await?;
    ensure!(more == transactions, "an idle page went on from {transactions} transactions to {more}");
    tab.goto(&world.elsewhere()).await?;
    // Messages would drive a page out that listens.
    hold(&other, "notes").await?;
    other.run("await lease.release()", Value::Null).await?;
    tab.back().await?;
    if !restored(&tab).await? {
        for tab in [tab, other] {
            tab.close().await?;
        }
        return Ok(false);
    }
    let again = tab.run("return (await (await leases.acquire('notes')).release())", Value::Null).await?;
    ensure!(again == "released", "the page that came back says {again}");
    Ok(true)
}
