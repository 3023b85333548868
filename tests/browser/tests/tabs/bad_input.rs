//! What a page may get wrong. Each is a rejection, never a throw, with a code and with the value in its words.

use anyhow::{Context as _, ensure};
use leasehold_browser_tests::{Browser, Shape, Tab};
use serde_json::{Value, json};

use crate::world::{SOON, World};

/// Expects `expression` to reject with a `LeaseError` of this code and DOM name, whose message has all of these words.
async fn refused(tab: &Tab, expression: &str, code: &str, name: &str, words: &[&str]) -> anyhow::Result<()> {
    let failure = tab.run(&format!("return attempt(() => {expression})"), Value::Null).await?;
    ensure!(
        failure["typed"] == true && failure["is"] == true,
        "{expression} is not refused by a LeaseError: {failure}"
    );
    ensure!(failure["code"] == code && failure["name"] == name, "{expression} should be refused as {code}: {failure}");
    let message = failure["message"].as_str().context("a message")?;
    let missing: Vec<_> = words.iter().filter(|word| !message.contains(**word)).collect();
    ensure!(missing.is_empty(), "{expression} is refused without {missing:?}: {message}");
    Ok(())
}

pub async fn bad_keys_are_refused(world: &World) -> anyhow::Result<()> {
    let tab = world.tab(json!({})).await?;
    for verb in ["acquire", "tryAcquire", "status"] {
        refused(&tab, &format!("leases.{verb}('')"), "InvalidKey", "LeaseError", &["empty"]).await?;
        refused(&tab, &format!("leases.{verb}('k'.repeat(1025))"), "InvalidKey", "LeaseError", &["1025", "1024"])
            .await?;
        refused(&tab, &format!("leases.{verb}('a\\ud800b')"), "InvalidKey", "LeaseError", &["surrogate"]).await?;
    }
    // The longest that is allowed, counted in UTF-16 units.
    let token = tab.run("return (await leases.acquire('\\u{1f512}'.repeat(512))).token", Value::Null).await?;
    ensure!(token.is_u64(), "a key of 1024 units is refused: {token}");
    Ok(())
}

pub async fn bad_times_are_refused(world: &World) -> anyhow::Result<()> {
    let tab = world.bare_tab().await?;
    let cases: [(&str, &[&str]); 6] = [
        ("{ leaseMs: 0 }", &["0"]),
        ("{ leaseMs: 999 }", &["999", "1000"]),
        ("{ leaseMs: 1e15 }", &["1000000000000000"]),
        ("{ leaseMs: -5 }", &["-5"]),
        ("{ leaseMs: NaN }", &["NaN"]),
        ("{ leaseMs: 20000, heartbeatMs: 15000 }", &["20000", "15000"]),
    ];
    for (options, words) in cases {
        let expression = format!("LeaseManager.open('tests', {options})");
        refused(&tab, &expression, "InvalidOptions", "LeaseError", words).await?;
    }
    Ok(())
}

pub async fn a_second_init_with_other_bytes_is_refused(world: &World) -> anyhow::Result<()> {
    let tab = world.tab(json!({})).await?;
    let same = tab.run("await init(); return init() === init()", Value::Null).await?;
    ensure!(same == true, "a second init() is another promise");
    refused(&tab, "init(new Uint8Array([0, 97, 115, 109]))", "InitConflict", "InvalidStateError", &["init"]).await
}

pub async fn a_closed_manager_refuses(world: &World) -> anyhow::Result<()> {
    let tab = world.tab(json!({})).await?;
    tab.run("await leases.close(); await leases.close()", Value::Null).await?;
    for verb in ["acquire", "tryAcquire", "status"] {
        refused(&tab, &format!("leases.{verb}('notes')"), "Closed", "InvalidStateError", &["closed"]).await?;
    }
    Ok(())
}

pub async fn without_indexed_db_open_is_refused(world: &World) -> anyhow::Result<()> {
    let tab = world.bare_tab().await?;
    tab.run("Object.defineProperty(window, 'indexedDB', { value: undefined, configurable: true })", Value::Null)
        .await?;
    refused(&tab, "LeaseManager.open('tests')", "Unsupported", "NotSupportedError", &["IndexedDB"]).await
}

/// The user blocks all cookies. The browser says so only when the database is opened, and Chromium by an `UnknownError`.
pub async fn where_the_user_blocks_cookies_open_is_refused(world: &World) -> anyhow::Result<()> {
    let browser = Browser::start_without_storage(world.engine).await?;
    let tab = browser.open(&world.server.url("/tests/tab.html"), Shape::Tab).await?;
    tab.until("return window.ready", Value::Null, SOON).await?;
    for ask in ["LeaseManager.open('tests')", "LeaseManager.delete('tests')"] {
        refused(&tab, ask, "Unsupported", "NotSupportedError", &["forbidden here", "memory", "will not help"]).await?;
    }
    Ok(())
}
