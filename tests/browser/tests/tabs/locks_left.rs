//! `leases.locks` in pages that are left, frozen, or robbed of their store: who held is told, who waited queues again.

use anyhow::ensure;
use leasehold_browser_tests::{Engine, Tab};
use serde_json::{Value, json};

use crate::{
    left::{restored, until_kept},
    world::{SOON, World},
};

/// Holds the first name, and waits for the second in all modes. The tabs of an earlier round may still seem to hold both for a while: a
/// closed tab without beacon counts as gone only after a lease of silence.
async fn hold_and_wait(tab: &Tab) -> anyhow::Result<()> {
    let begin = "spyOnPage();
        window.told = [];
        const begun = new Promise((begin) => {
            leases.locks.request('held', () => new Promise((resolve) => begin(window.finish = resolve)))
                .catch(({ code, name, reason, key }) => (window.lost = [code, name, reason, key]));
        });
        for (const mode of ['shared', 'exclusive', 'shared']) {
            leases.locks.request('awaited', { mode }, (lock) => void told.push(lock.mode)).catch((error) => told.push(`${error}`));
        }
        await leases.locks.query();
        await begun";
    tab.run(begin, Value::Null).await?;
    Ok(())
}

const LOOK: &str = "const { held, pending } = await leases.locks.query();
    const of = (list, one) => list.filter(({ name }) => name === one).map(({ mode }) => mode[0]).join('');
    const look = ['held', 'awaited'].map((one) => `${of(held, one)}|${of(pending, one)}`).join(' ');";

/// The other one holds the second name, and waits for the first.
async fn take_the_other(tab: &Tab) -> anyhow::Result<()> {
    let take = "await new Promise((begin) => {
            leases.locks.request('awaited', () => new Promise((resolve) => begin(window.finish = resolve)));
        })";
    tab.run(take, Value::Null).await?;
    Ok(())
}

async fn ensure_lost(tab: &Tab, reason: &str) -> anyhow::Result<()> {
    let told = tab.until("return window.lost", Value::Null, SOON).await?;
    ensure!(told == json!(["LeaseLost", "AbortError", reason, "held"]), "the holder is told {told}");
    Ok(())
}

/// What it held is another's by now; its places are behind those who came meanwhile, in their order.
async fn ensure_it_goes_on(page: &Tab, other: &Tab) -> anyhow::Result<()> {
    ensure_lost(page, "Suspended").await?;
    let late = "window.finish('late'); leases.locks.request('awaited', () => void told.push('late'))";
    page.run(late, Value::Null).await?;
    let queued = format!("{LOOK} return look === 'e| e|esese'");
    other.until(&queued, Value::Null, SOON).await?;
    other.run("window.finish()", Value::Null).await?;
    let told = page.until("return told.length === 4 && told", Value::Null, SOON).await?;
    ensure!(told == json!(["shared", "exclusive", "shared", "late"]), "they had their turns so: {told}");
    Ok(())
}

/// While the page is away.
async fn ensure_it_is_free(other: &Tab) -> anyhow::Result<()> {
    let free = "leases.locks.request('held', () => new Promise(() => {}));
        leases.locks.request('awaited', async () => {});";
    other.run(free, Value::Null).await?;
    let freed = format!("{LOOK} return look === 'e| e|e'");
    other.until(&freed, Value::Null, SOON).await?;
    Ok(())
}

pub async fn locks_of_a_page_that_is_left_are_free_and_its_requests_queue_again(world: &World) -> anyhow::Result<()> {
    // A page that holds a Web Lock is not kept by Firefox.
    left(world, json!({}), world.engine != Engine::Firefox).await
}

pub async fn locks_of_a_page_that_is_left_without_beacon_are_free_too(world: &World) -> anyhow::Result<()> {
    left(world, json!({ "beacon": false }), true).await
}

async fn left(world: &World, options: Value, kept: bool) -> anyhow::Result<()> {
    if kept {
        until_kept(world, async || left_once(world, options.clone()).await).await
    } else {
        ensure!(!left_once(world, options).await?, "the page was kept with a lock");
        Ok(())
    }
}

/// Returns whether the page was kept. If it was, its locks must go on.
async fn left_once(world: &World, options: Value) -> anyhow::Result<bool> {
    let [page, other] = [world.tab(options.clone()).await?, world.tab(options).await?];
    take_the_other(&other).await?;
    hold_and_wait(&page).await?;
    page.goto(&world.elsewhere()).await?;
    ensure_it_is_free(&other).await?;
    page.back().await?;
    let was_kept = restored(&page).await?;
    if was_kept {
        ensure_it_goes_on(&page, &other).await?;
    }
    for tab in [page, other] {
        tab.close().await?;
    }
    Ok(was_kept)
}

pub async fn locks_of_a_frozen_page_are_free_and_its_requests_queue_again(world: &World) -> anyhow::Result<()> {
    let [page, other] = [world.tab(json!({})).await?, world.tab(json!({})).await?];
    take_the_other(&other).await?;
    hold_and_wait(&page).await?;
    page.freeze(true).await?;
    ensure_it_is_free(&other).await?;
    page.freeze(false).await?;
    ensure_it_goes_on(&page, &other).await
}

/// Who waits asks the new store.
pub async fn locks_of_a_store_that_was_deleted_are_lost(world: &World) -> anyhow::Result<()> {
    let options = json!({ "leaseMs": 3_000, "heartbeatMs": 500 });
    let [page, other] = [world.tab(options.clone()).await?, world.tab(options).await?];
    take_the_other(&other).await?;
    hold_and_wait(&page).await?;
    let delete = "await new Promise((resolve) => (indexedDB.deleteDatabase('leasehold:tests').onsuccess = resolve))";
    world.bare_tab().await?.run(delete, Value::Null).await?;
    ensure_lost(&page, "StoreCleared").await?;
    let told = page.until("return told.length === 3 && told", Value::Null, SOON).await?;
    ensure!(told == json!(["shared", "exclusive", "shared"]), "they had their turns so: {told}");
    Ok(())
}

/// The platform's own locks are not there to say so first.
pub async fn installed_in_a_sandboxed_frame_locks_say_that_first(world: &World) -> anyhow::Result<()> {
    let tab = world.tab_at(world.engine.insecure_host(), json!({})).await?;
    tab.run("window.other = await context('sandboxed frame')", Value::Null).await?;
    let ask = "return other.run(`
        const did = install();
        const named = (ask) => ask().then(() => 'fulfilled', ({ name }) => name);
        const { locks } = navigator;
        return [did, await named(() => locks.request('-', () => {})), await named(() => locks.request('a', () => {})),
            await named(() => locks.query()), await named(() => locks.request('-'))]`)";
    let told = tab.run(ask, Value::Null).await?;
    let refused = json!([true, "SecurityError", "SecurityError", "SecurityError", "TypeError"]);
    ensure!(told == refused, "what is said: {told}");
    Ok(())
}
