//! The manners of the demo page: it can be read and worked by everybody, on a phone, in the dark, without a mouse, and
//! without a network.

use std::path::Path;

use anyhow::{Context as _, ensure};
use leasehold_browser_tests::{Engine, Server, Shape, Tab};
use serde_json::{Value, json};

use crate::world::{SOON, World};

/// A phone, and a desk; in CSS pixels.
const WIDTHS: [u64; 2] = [360, 1240];
const ENTER: &str = "\u{e007}";
const TAB: &str = "\u{e004}";

/// Puts the page into a frame of `arg.width`, and waits for it: a window cannot be made as small in every browser.
const SHOW: &str = "
    const frame = Object.assign(document.createElement('iframe'), { src: '/', width: arg.width, height: 1700 });
    frame.style.cssText = `border: 0; color-scheme: ${arg.scheme}`;
    document.documentElement.style.colorScheme = arg.scheme;
    document.body.style.margin = 0;
    document.body.replaceChildren(frame);
    await new Promise((resolve) => (frame.onload = resolve));
    const { document: page } = frame.contentWindow;
    const axe = page.head.appendChild(page.createElement('script'));
    axe.src = '/modules/axe-core/axe.min.js';
    const absent = () => Error('axe-core is missing: .ci/setup pages installs it');
    await new Promise((resolve, reject) => Object.assign(axe, { onload: resolve, onerror: () => reject(absent()) }));
    window.shown = frame.contentWindow;
    return shown.matchMedia('(prefers-color-scheme: dark)').matches";

/// What axe finds, a line each.
const FINDINGS: &str = "
    const { violations } = await shown.axe.run(shown.document, { resultTypes: ['violations'] });
    return violations.flatMap(({ id, help, nodes }) => nodes.map(({ target }) => `${id}: ${help}: ${target}`))";

pub async fn everybody_can_read_the_page(world: &World) -> anyhow::Result<()> {
    let other = world.browser.open(&world.server.url("/"), Shape::Window).await?;
    let tab = world.browser.open(&world.elsewhere(), Shape::Window).await?;
    for scheme in ["light", "dark"] {
        for width in WIDTHS {
            let dark = tab.run(SHOW, json!({ "width": width, "scheme": scheme })).await?;
            if dark != (scheme == "dark") {
                world.note("a frame does not take over the colours around it: looked at in light ones only");
                continue;
            }
            for (button, state) in [(None, "free"), (Some("take"), "mine"), (Some("release"), "free")] {
                if let Some(id) = button {
                    tab.run("shown.document.getElementById(arg).click()", json!(id)).await?;
                }
                let stands = "return shown.document.getElementById('holder').dataset.state === arg
                    && !shown.document.getElementById('count').disabled";
                tab.until(stands, json!(state), SOON).await?;
                hinders_nobody(&tab, &format!("{scheme}, {width} px, {state}")).await?;
            }
            let file = format!("../../target/screenshots/{}-{width}-{scheme}.png", world.engine.name());
            tab.screenshot(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).await?;
        }
    }
    other.close().await
}

async fn hinders_nobody(tab: &Tab, when: &str) -> anyhow::Result<()> {
    let findings = tab.run(FINDINGS, Value::Null).await?;
    ensure!(findings == json!([]), "{when}: {findings:#}");
    let wide = "const { scrollWidth, clientWidth } = shown.document.documentElement; return scrollWidth - clientWidth";
    let too_wide = tab.run(wide, Value::Null).await?;
    ensure!(too_wide == 0, "{when}: the page is {too_wide} px too wide");
    Ok(())
}

pub async fn the_page_is_worked_by_keyboard(world: &World) -> anyhow::Result<()> {
    let tab = world.browser.open(&world.server.url("/"), Shape::Window).await?;
    tab.until("return !document.getElementById('take').disabled", Value::Null, SOON).await?;
    press_on(&tab, "take").await?;
    stands(&tab, "mine").await?;
    // The button just pressed is of no use now: the focus went on to one that is.
    let focused = tab.run("return document.activeElement.id", Value::Null).await?;
    ensure!(focused == "release", "the focus is on {focused}");
    press_on(&tab, "release").await?;
    stands(&tab, "free").await
}

/// Goes on with the tabulator until the focus is there, and visible; then presses Enter.
async fn press_on(tab: &Tab, id: &str) -> anyhow::Result<()> {
    for _ in 0..20 {
        let focus = "const { id, matches } = document.activeElement;
            const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
            return [id, outlineStyle !== 'none' && parseFloat(outlineWidth) >= 2]";
        let focus = tab.run(focus, Value::Null).await?;
        if focus[0] == id {
            ensure!(focus[1] == true, "the focus on {id} cannot be seen");
            return tab.press(ENTER).await;
        }
        tab.press(TAB).await?;
    }
    anyhow::bail!("the tabulator does not lead to {id}")
}

async fn stands(tab: &Tab, state: &str) -> anyhow::Result<()> {
    let stands = "return document.getElementById('holder').dataset.state === arg";
    tab.until(stands, json!(state), SOON).await?;
    Ok(())
}

pub async fn the_page_works_without_a_network(world: &World) -> anyhow::Result<()> {
    let server = Server::start()?;
    let page = server.url("/");
    let tab = world.browser.open(&page, Shape::Window).await?;
    tab.until("return navigator.serviceWorker.controller?.state === 'activated'", Value::Null, SOON).await?;
    drop(server);
    let gone = "return fetch('style.css?past-the-cache').then(() => false, () => true)";
    tab.until(gone, Value::Null, SOON).await?;
    // As a person comes back; what WebDriver calls a refresh asks no service worker in Firefox.
    tab.goto(&page).await?;
    press_on_click(&tab, "take").await?;
    stands(&tab, "mine").await
}

async fn press_on_click(tab: &Tab, id: &str) -> anyhow::Result<()> {
    let click = "const button = document.getElementById(arg); return !button.disabled && (button.click(), true)";
    tab.until(click, json!(id), SOON).await?;
    Ok(())
}

pub async fn the_page_is_silent_in_the_console(world: &World) -> anyhow::Result<()> {
    ensure!(world.engine == Engine::Chromium, "there is no other way to listen from the beginning");
    let tab = world.browser.open(&world.elsewhere(), Shape::Window).await?;
    let listen = "window.complaints = [];
        for (const level of ['error', 'warn', 'log', 'info', 'debug', 'trace', 'assert'])
            console[level] = (...words) => complaints.push(`${level}: ${words.join(' ')}`);
        addEventListener('error', ({ message, target }) => complaints.push(message ?? `${target.src ?? target.href} did not load`), true);
        addEventListener('unhandledrejection', ({ reason }) => complaints.push(`unhandled: ${reason}`));";
    tab.devtools("Page.addScriptToEvaluateOnNewDocument", json!({ "source": listen })).await?;
    tab.goto(&world.server.url("/")).await?;
    for (id, state) in [("take", "mine"), ("release", "free"), ("try", "mine"), ("release", "free")] {
        press_on_click(&tab, id).await?;
        stands(&tab, state).await?;
    }
    press_on_click(&tab, "count-here").await?;
    tab.until("return document.getElementById('done').textContent === '1,000 of 1,000'", Value::Null, SOON).await?;
    let complaints = tab.run("return window.complaints", Value::Null).await?;
    let complaints = complaints.as_array().context("it listened from the beginning")?;
    ensure!(complaints.is_empty(), "the console says {complaints:?}");
    Ok(())
}
