//! Pages that nobody looks at, for now.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use leasehold_browser_tests::{Deadline, Engine, Tab};
use serde_json::{Value, json};

use crate::world::{SOON, World, given_back, hold};

/// Chromium makes a hidden page's timers slow from the fifth on of those that set one another.
const DEEPEST: u64 = 4;
/// In other browsers it does not matter. On a busy machine an alarm or two may ring before their store answers. If alarms set one
/// another, there are twenty after ten beats.
const DEEPEST_ELSEWHERE: u64 = 8;

/// Nobody knows how long a page sleeps that is hidden, nor how long one slept that is shown: the lease is in doubt until
/// the store has answered, and good from then on.
pub async fn a_lease_is_in_doubt_when_its_page_is_hidden_or_shown(world: &World) -> anyhow::Result<()> {
    let tab = world.tab(json!({})).await?;
    let token = hold(&tab, "notes").await?;
    tab.run("spyOnVisibility()", Value::Null).await?;
    // A page that is hidden for too short a time hears nothing of it.
    let deadline = Deadline::after(SOON);
    while tab.run("return seen.length < 2", Value::Null).await? == true && deadline.glance().await {
        tab.look_away().await?;
        tab.look().await?;
    }
    let seen =
        tab.until("return seen.length > 1 && seen.every(({ again }) => again !== null) && seen", Value::Null, SOON);
    let seen = seen.await.context("the lease does not get beyond doubt")?;
    for change in seen.as_array().context("a list")? {
        ensure!(change["valid"] == false, "the lease was valid all through: {seen}");
        let again = change["again"].as_u64().context("a time")?;
        world.tell(if change["hidden"] == true { "in doubt, hidden" } else { "in doubt, shown" }, again);
    }
    let same = tab.run("return lease.token", Value::Null).await?;
    ensure!(same == token, "the token {token} became {same}");
    let kept = tab.run(&given_back("lease"), Value::Null).await?;
    ensure!(kept == json!([true, true, "released"]), "the lease after all that: {kept}");
    Ok(())
}

/// What a page keeps only for its own next request, it gives back.
pub async fn a_hidden_page_keeps_nothing_that_it_does_not_use(world: &World) -> anyhow::Result<()> {
    let (tab, other) = (world.tab(json!({ "lingerMs": 600_000 })).await?, world.tab(json!({})).await?);
    // The browser may tell the page that it is shown only after the driver has come to look at it.
    tab.until("return !document.hidden", Value::Null, SOON).await?;
    hold(&tab, "notes").await?;
    tab.run("await lease.release()", Value::Null).await?;
    let grants = "return JSON.parse(await stored('notes')).grants.length";
    let kept = tab.run(grants, Value::Null).await?;
    ensure!(kept == 1, "the page kept {kept} leases for its next request");
    other.look().await?;
    other.until(&format!("{grants} === 0"), Value::Null, SOON).await.context("a hidden page keeps it")?;
    Ok(())
}

/// Each alarm is set anew by an answer of the store. Were it set by the alarm before, a hidden page would beat once a
/// minute; what that takes six minutes to show, this does in four seconds. With a time limit of the store that ends
/// before the next beat, each beat would add two alarms to the row.
pub async fn alarms_do_not_set_one_another(world: &World) -> anyhow::Result<()> {
    let tab = world.bare_tab().await?;
    let hold = "spyOnTimers();
        await openLeases({ leaseMs: 20_000, heartbeatMs: 400, storeTimeoutMs: 350 });
        window.lease = await leases.acquire('notes')";
    tab.run(hold, Value::Null).await?;
    let most = if world.engine == Engine::Chromium { DEEPEST } else { DEEPEST_ELSEWHERE };
    let deepest = in_a_quick_store(world, &tab).await?;
    world.note(&format!("{deepest} alarms set one another at most"));
    ensure!((1..=most).contains(&deepest), "{deepest} alarms set one another");
    let valid = tab.run("return lease.valid", Value::Null).await?;
    ensure!(valid == true, "the lease was lost");
    Ok(())
}

/// How many alarms set one another at most, during ten beats in which the store always answered within its time limit. When it answers
/// later, an alarm rings before the answer, and sets the next one.
async fn in_a_quick_store(world: &World, tab: &Tab) -> anyhow::Result<u64> {
    for _ in 0..10 {
        let since = tab.run("[deepest, slowest] = [0, 0]; return (await beats('notes'))[0]", Value::Null).await?;
        tab.until("return (await beats('notes'))[0] >= arg + 10", since, SOON).await?;
        let seen = tab.run("return [deepest, Math.round(slowest)]", Value::Null).await?;
        let (deepest, slowest) = seen[0].as_u64().zip(seen[1].as_u64()).context("numbers")?;
        if slowest < 300 {
            return Ok(deepest);
        }
        world.note(&format!("the store took {slowest} ms: {deepest} alarms set one another"));
    }
    anyhow::bail!("the store is too slow for this")
}

/// Hidden for six minutes, with timers as slow as the browser makes them: nothing is lost, and others see it beat.
#[allow(dead_code, reason = "of the long suite")]
pub async fn a_page_that_is_hidden_for_six_minutes_keeps_its_lease(world: &World) -> anyhow::Result<()> {
    const HIDDEN: Duration = Duration::from_secs(6 * 60 + 20);
    let watcher = world.window(json!({})).await?;
    // The second one has an alarm between two beats.
    let hidden = [("notes", json!({})), ("other", json!({ "storeTimeoutMs": 2_000 }))];
    let mut tabs = Vec::new();
    for (key, options) in hidden {
        let tab = world.tab(options).await?;
        let token = hold(&tab, key).await?;
        let tell = "addEventListener('visibilitychange', () => (localStorage[arg] = document.visibilityState))";
        tab.run(tell, json!(key)).await?;
        tab.look_away().await?;
        tabs.push((key, tab, token));
    }
    let looks = "return localStorage.notes === 'hidden' && localStorage.other === 'hidden'";
    watcher.until(looks, Value::Null, SOON).await.context("the tabs are not hidden")?;
    for (key, ..) in &tabs {
        let arg = json!({ "key": key, "ms": u64::try_from(HIDDEN.as_millis())? });
        watcher.start(key, "return watchBeats(arg)", arg).await?;
    }
    tokio::time::sleep(HIDDEN).await;
    let mut gaps = Vec::new();
    for (key, ..) in &tabs {
        gaps.push(watcher.outcome(key, SOON).await?["largest"].as_u64().context("a gap")?);
    }
    world.note(&format!("the largest gaps between two beats, hidden for 6 minutes: {gaps:?} ms"));
    let still = watcher.run(looks, Value::Null).await?;
    ensure!(still == true, "the tabs were not hidden all the time");
    for (key, tab, token) in &tabs {
        let kept = tab.run("return [lease.token, lease.signal.aborted, await lease.release()]", Value::Null).await?;
        ensure!(kept == json!([token, false, "released"]), "{key} after six minutes: {kept}");
    }
    ensure!(gaps.iter().all(|gap| *gap <= 10_000), "a beat took {gaps:?} ms");
    Ok(())
}
