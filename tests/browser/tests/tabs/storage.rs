//! What becomes of leases when something happens to the database that they lie in.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use leasehold_browser_tests::Tab;
use serde_json::{Value, json};

use crate::world::{LASTING_MS, SOON, World, given_back, hold, lasting, now_ms};

/// A beat often enough that a loss is noticed soon, by a lease that does not run out meanwhile.
fn quick() -> Value {
    json!({ "leaseMs": LASTING_MS, "heartbeatMs": 250 })
}

/// The browser clears the data for a user, or for a site that asks for it. Chromium then fails the next connection.
pub async fn cleared_site_data_is_told_and_tokens_grow(world: &World) -> anyhow::Result<()> {
    let (holder, other) = (world.tab(quick()).await?, world.tab(quick()).await?);
    let first = hold(&holder, "notes").await?;
    let behind = "window.behind = attempt(async () => (window.next = await leases.acquire('notes')).token)";
    holder.run(&format!("{behind}; return true"), Value::Null).await?;
    let cleared = world.server.url("/tests/cleared.html");
    other.goto(&cleared).await?;
    ensure_lost(&holder, "StoreCleared").await?;
    let told = holder.run("const told = await behind; await window.next?.release(); return told", Value::Null).await?;
    let token = told["did"].as_str().and_then(|token| token.parse::<u64>().ok());
    let token = token.with_context(|| format!("the request behind its own lease is told {told}"))?;
    ensure!(token > first, "the token {token} is not larger than {first}");
    larger_token(&holder, token).await.map(drop)
}

/// From then on, Chromium gives new pages Web Locks of their own: neither new pages nor open ones see the beacons of the others.
pub async fn old_and_new_pages_take_turns_after_site_data_is_cleared(world: &World) -> anyhow::Result<()> {
    let (old, other) = (world.tab(lasting()).await?, world.bare_tab().await?);
    hold(&old, "notes").await?;
    other.goto(&world.server.url("/tests/cleared.html")).await?;
    ensure_lost(&old, "StoreCleared").await?;
    let new = world.tab(lasting()).await?;
    for (holder, rival) in [(&old, &new), (&new, &old)] {
        hold(holder, "notes").await?;
        for ask in ["acquire('notes', { timeoutMs: 2_000 })", "acquire('notes', { timeoutMs: 0 })"] {
            let asked = rival.run(&format!("return attempt(() => leases.{ask})"), Value::Null).await?;
            ensure!(asked["code"] == "Timeout", "{ask} of what another page holds says {asked}");
        }
        let kept = holder.run(&given_back("lease"), Value::Null).await?;
        ensure!(kept == json!([true, true, "released"]), "the lease that the other page asked for: {kept}");
    }
    Ok(())
}

/// Another page of the site deletes the database: the connections give way.
pub async fn a_deleted_database_is_told_and_tokens_grow(world: &World) -> anyhow::Result<()> {
    let (holder, other) = (world.tab(quick()).await?, world.tab(quick()).await?);
    let first = hold(&holder, "notes").await?;
    let delete = "const request = indexedDB.deleteDatabase('leasehold:tests');
        return new Promise((resolve, reject) => {
            request.onsuccess = () => resolve(true);
            request.onerror = () => reject(request.error);
        });";
    other.run(delete, Value::Null).await?;
    ensure_lost(&holder, "StoreCleared").await?;
    let token = larger_token(&holder, first).await?;
    // The other one had a connection as well, and needs another.
    holder.run("await lease.release()", Value::Null).await?;
    larger_token(&other, token).await.map(drop)
}

/// Whoever releases while the library finds out that the database was deleted is told `StoreCleared`, like a holder that does not release.
pub async fn who_releases_just_after_the_database_was_deleted_is_told(world: &World) -> anyhow::Result<()> {
    let tab = world.tab(lasting()).await?;
    let release = "const told = [];
        for (let ms = 0; ms < 12; ms++) {
            const lease = await leases.acquire('notes');
            await new Promise((resolve, reject) => {
                const request = indexedDB.deleteDatabase('leasehold:tests');
                Object.assign(request, { onsuccess: resolve, onerror: () => reject(request.error) });
            });
            if (ms > 0) await new Promise((resolve) => setTimeout(resolve, ms));
            const outcome = await lease.release();
            told.push(outcome === 'lost' ? await lease.lost : outcome);
        }
        return told";
    let told = tab.run(release, Value::Null).await?;
    ensure!(told == json!(vec!["StoreCleared"; 12]), "who releases after a deletion is told {told}");
    Ok(())
}

/// A connection that the browser closed is none of the user's business.
pub async fn a_closed_connection_is_opened_again_unseen(world: &World) -> anyhow::Result<()> {
    let (tab, other) = (world.tab(json!({ "lingerMs": 0 })).await?, world.bare_tab().await?);
    let first = hold(&tab, "notes").await?;
    tab.run("await lease.release()", Value::Null).await?;
    other.goto(&world.server.url("/tests/cleared.html")).await?;
    let second = tab.run("window.lease = await leases.tryAcquire('notes'); return lease.token", Value::Null).await?;
    ensure!(second.as_u64() > Some(first), "the token {second} is not larger than {first}");
    let kept = tab.run(&given_back("lease"), Value::Null).await?;
    ensure!(kept == json!([true, true, "released"]), "the lease of the new connection: {kept}");
    Ok(())
}

async fn larger_token(tab: &Tab, than: u64) -> anyhow::Result<u64> {
    let token = hold(tab, "notes").await?;
    ensure!(token > than, "the token {token} is not larger than {than}");
    let good = tab.run("return lease.verify()", Value::Null).await?;
    ensure!(good == true, "the new lease is not good");
    Ok(token)
}

async fn ensure_lost(tab: &Tab, reason: &str) -> anyhow::Result<()> {
    let lost = "const late = new Promise((resolve) => setTimeout(resolve, 60_000, 'not told'));
        return [await Promise.race([lease.lost, late]), lease.valid, await lease.release()]";
    let lost = tab.run(lost, Value::Null).await?;
    ensure!(lost == json!([reason, false, "lost"]), "what the holder is told: {lost}");
    Ok(())
}

/// A later version of a program makes a newer database: this one gives way, and says what to do.
pub async fn a_newer_database_is_made_way_for(world: &World) -> anyhow::Result<()> {
    let (holder, newer) = (world.tab(quick()).await?, world.bare_tab().await?);
    hold(&holder, "notes").await?;
    let version = newer.run("return (await upgrade(2)).version", Value::Null).await?;
    ensure!(version == 2, "the database has the version {version}");
    ensure_lost(&holder, "StoreFailed").await?;
    for ask in ["() => leases.acquire('notes')", "() => LeaseManager.open('tests')"] {
        let failed = holder.run(&format!("return attempt({ask})"), Value::Null).await?;
        let message = failed["message"].as_str().unwrap_or_default();
        ensure!(failed["code"] == "Store", "{ask} says {failed}");
        ensure!(message.contains("newer version of this program") && message.contains("reload"), "{ask} says {failed}");
    }
    Ok(())
}

/// Somebody keeps the database and does not give way to somebody else, who wants a newer one: who comes last is told.
pub async fn a_blocked_database_does_not_open_for_ever(world: &World) -> anyhow::Result<()> {
    let (stubborn, newer, tab) = (world.tab(json!({})).await?, world.bare_tab().await?, world.bare_tab().await?);
    let keep = "await leases.close();
        window.kept = await upgrade(1);
        window.asked = new Promise((resolve) => (kept.onversionchange = resolve));";
    stubborn.run(keep, Value::Null).await?;
    newer.start("blocked", "return (await upgrade(2)).version", Value::Null).await?;
    // The upgrade waits before the open does.
    stubborn.run("await asked", Value::Null).await?;
    let began = now_ms();
    let failed = tab.run("return attempt(() => LeaseManager.open('tests'))", Value::Null).await?;
    let took = now_ms() - began;
    ensure!(failed["code"] == "Store", "it says {failed}");
    ensure!(took >= 4_000, "it took {took} ms only");
    stubborn.run("kept.close()", Value::Null).await?;
    let version = newer.outcome("blocked", SOON).await?;
    ensure!(version == 2, "the upgrade that was blocked made version {version}");
    Ok(())
}

/// More than a quarter of a megabyte at once: Chromium grants some space beyond its quota.
pub const MUCH: &str = "const much = Array.from({ length: 64 }, (_, n) => ({ key: `much ${n}` }));
    return attempt(() => leases.acquireAll(much, { info: 'n'.repeat(4_000) }))";

/// Chromium can be told that there is no room left.
pub async fn a_full_disk_is_told(world: &World) -> anyhow::Result<()> {
    let tab = world.tab(json!({ "lingerMs": 0 })).await?;
    let origin = world.server.url("");
    tab.devtools("Storage.overrideQuotaForOrigin", json!({ "origin": origin, "quotaSize": 1 })).await?;
    let failed = tab.run(MUCH, Value::Null).await?;
    tab.devtools("Storage.overrideQuotaForOrigin", json!({ "origin": origin })).await?;
    ensure!(failed["code"] == "Quota" && failed["name"] == "QuotaExceededError", "a full disk says {failed}");
    let message = failed["message"].as_str().unwrap_or_default();
    ensure!(message.contains("delete some of its data, or free disk space"), "a full disk says {failed}");
    hold(&tab, "notes").await.context("with room again")?;
    Ok(())
}

const NEWER: &str = r#"{"format":2,"leases":"as a later version keeps them"}"#;

/// A newer version took over the record while this one held. Its heartbeats do not read the record; whatever does, tells it,
/// and leaves the record as it is.
pub async fn a_newer_format_is_told_to_the_holder(world: &World) -> anyhow::Result<()> {
    let tab = world.tab(quick()).await?;
    hold(&tab, "notes").await?;
    tab.run("await overwrite('notes', arg); await lease.verify().catch(() => {})", json!(NEWER)).await?;
    ensure_lost(&tab, "FormatTooNew").await?;
    refused_by_format(&tab).await
}

/// It was there first.
pub async fn a_newer_format_is_refused(world: &World) -> anyhow::Result<()> {
    let tab = world.tab(json!({})).await?;
    tab.run("await overwrite('notes', arg)", json!(NEWER)).await?;
    refused_by_format(&tab).await?;
    // Other keys are not concerned.
    let other = tab.run("return (await leases.acquire('other')).release()", Value::Null).await?;
    ensure!(other == "released", "another key says {other}");
    Ok(())
}

async fn refused_by_format(tab: &Tab) -> anyhow::Result<()> {
    for ask in ["acquire", "tryAcquire", "status"] {
        let failed = tab.run("return attempt(() => leases[arg]('notes'))", json!(ask)).await?;
        ensure!(failed["code"] == "FormatTooNew", "{ask}() says {failed}");
        let message = failed["message"].as_str().unwrap_or_default();
        ensure!(message.contains("format 2") && message.contains("knows 1"), "{ask}() says {failed}");
    }
    // What was still under way would have touched it by now.
    tokio::time::sleep(Duration::from_millis(600)).await;
    let record = tab.run("return stored('notes')", Value::Null).await?;
    ensure!(record == NEWER, "the newer record became {record}");
    Ok(())
}
