//! The demo page where the platform gives it least, and its inspector; `demo --check` goes through the rest of it.

use std::time::Duration;

use anyhow::ensure;
use leasehold_browser_tests::{Engine, Shape, Tab};
use serde_json::{Value, json};

use crate::world::{SOON, World};

/// For a take-over from a tab that hangs: its lease lasts 10 s.
const LONG: Duration = Duration::from_secs(90);

pub async fn the_demo_page_works_in_an_insecure_context(world: &World) -> anyhow::Result<()> {
    let tab = world.browser.open(&world.server.url_at(world.engine.insecure_host(), "/"), Shape::Window).await?;
    ensure!(tab.run("return !isSecureContext", Value::Null).await? == true, "the context is secure");
    click(&tab, "take").await?;
    sees(&tab, "#holder", "data-state", "mine", SOON).await?;
    click(&tab, "release").await?;
    sees(&tab, "#holder", "data-state", "free", SOON).await
}

pub async fn the_inspector_shows_all_tabs_and_a_take_over(world: &World) -> anyhow::Result<()> {
    let (first, second) = (demo(world, "Amber fox").await?, demo(world, "Jade owl").await?);
    sees(&second, &lane("Amber fox", ""), "data-state", "idle", SOON).await?;
    click(&first, "take").await?;
    let row = "#keys tr[data-key='the demo']";
    reads(&second, &format!("{row} [data-label='Held by']"), "Amber fox").await?;
    sees(&second, &lane("Amber fox", ""), "data-state", "holding", SOON).await?;
    click(&second, "take").await?;
    reads(&first, &format!("{row} [data-label='Waiting']"), "Jade owl").await?;
    sees(&first, &lane("Jade owl", " .span.waiting"), "data-end", "", SOON).await?;
    let lanes = second.run("return document.querySelectorAll('#lanes > .lane').length", Value::Null).await?;
    ensure!(lanes == 2, "a lane for each tab, but there are {lanes}");

    // Crashed, it says nothing more; closed, it may still say farewell.
    let crashes = world.engine == Engine::Chromium;
    if crashes {
        first.crash().await?;
    } else {
        first.close().await?;
    }
    sees(&second, &lane("Jade owl", ""), "data-state", "holding", SOON).await?;
    if crashes {
        sees(&second, &lane("Amber fox", " .span.holding"), "data-end", "replaced", SOON).await?;
        sees(&second, &lane("Amber fox", ""), "data-state", "silent", SOON).await?;
    } else {
        let over = "const lane = document.querySelector(arg);
            return ['closed', 'silent'].includes(lane.dataset.state) && lane.querySelector('.span.holding').dataset.end";
        look(&second, over, json!(lane("Amber fox", "")), SOON).await?;
    }
    reads(&second, &format!("{row} [data-label='Held by']"), "Jade owl").await
}

pub async fn the_timeline_shows_a_freeze_and_the_loss(world: &World) -> anyhow::Result<()> {
    let (first, second) = (demo(world, "Amber fox").await?, demo(world, "Jade owl").await?);
    click(&first, "take").await?;
    sees(&second, &lane("Amber fox", ""), "data-state", "holding", SOON).await?;
    click(&second, "take").await?;
    sees(&second, &lane("Jade owl", ""), "data-state", "waiting", SOON).await?;
    click(&first, "freeze").await?;
    sees(&second, &lane("Amber fox", ""), "data-state", "silent", SOON).await?;
    sees(&second, &lane("Amber fox", " .span.holding"), "data-end", "replaced", LONG).await?;
    sees(&second, &lane("Jade owl", ""), "data-state", "holding", SOON).await?;
    sees(&second, &lane("Amber fox", " .mark.lost"), "data-reason", "Expired", LONG).await?;
    sees(&second, &lane("Amber fox", ""), "data-state", "idle", SOON).await?;
    let silences = "return [...document.querySelectorAll(arg)].map(({ title }) => parseInt(title.split(', ')[1]))";
    let silences = second.run(silences, json!(lane("Amber fox", " .span.silence"))).await?;
    // On a busy machine, the holder may also have been silent for a moment at other times.
    let longest = silences.as_array().into_iter().flatten().filter_map(Value::as_u64).max();
    ensure!(longest >= Some(15), "silent for 20 s, but it says {silences}");
    let said = "return document.querySelector(arg).ariaLabel ?? document.querySelector(arg).getAttribute('aria-label')";
    let said = second.run(said, json!(lane("Amber fox", " .tracks"))).await?;
    ensure!(said.as_str().is_some_and(|said| said.contains("lost “the demo”: Expired")), "the summary says {said}");
    // The tab that hung sees its own silence, and the loss.
    sees(&first, &lane("Amber fox", " .span.silence"), "data-kind", "silence", SOON).await?;
    sees(&first, &lane("Amber fox", " .mark.lost"), "data-reason", "Expired", SOON).await
}

/// Where a tab's lane is, or something in it.
fn lane(tab: &str, inside: &str) -> String {
    format!("#lanes > [data-tab='{tab}']{inside}")
}

/// A window with the page in it, under this name.
async fn demo(world: &World, name: &str) -> anyhow::Result<Tab> {
    let tab = world.browser.open(&world.server.url("/"), Shape::Window).await?;
    tab.run("sessionStorage.setItem('tab-name', arg)", json!(name)).await?;
    tab.reload().await?;
    sees(&tab, &lane(name, ""), "data-own", "true", SOON).await?;
    Ok(tab)
}

async fn click(tab: &Tab, id: &str) -> anyhow::Result<()> {
    let click = "const button = document.getElementById(arg); return !button.disabled && (button.click(), true);";
    look(tab, click, json!(id), SOON).await
}

/// Waits until what a selector finds last has this attribute.
async fn sees(tab: &Tab, selector: &str, attribute: &str, value: &str, within: Duration) -> anyhow::Result<()> {
    let has = "return [...document.querySelectorAll(arg.selector)].at(-1)?.getAttribute(arg.attribute) === arg.value";
    look(tab, has, json!({ "selector": selector, "attribute": attribute, "value": value }), within).await
}

async fn reads(tab: &Tab, selector: &str, words: &str) -> anyhow::Result<()> {
    let has = "return document.querySelector(arg.selector)?.textContent.includes(arg.words)";
    look(tab, has, json!({ "selector": selector, "words": words }), SOON).await
}

/// Waits until a script returns something true; an error that the page shows ends it.
async fn look(tab: &Tab, body: &str, arg: Value, within: Duration) -> anyhow::Result<()> {
    let checked =
        format!("const error = document.getElementById('error'); if (!error.hidden) throw error.textContent; {body}");
    tab.until(&checked, arg, within).await?;
    Ok(())
}
