//! Opens pages in one browser, one after the other, and prints what each brought to pass: `visit ENGINE URL…`.
//!
//! A page says so by the promise `window.outcome`. Each line of the output is JSON: `{ "value": … }`, `{ "error": "…" }`.
//! Nothing is printed where the browser is missing.

use std::{env, time::Duration};

use anyhow::Context as _;
use leasehold_browser_tests::{Browser, Engine, Shape};
use serde_json::{Value, json};

/// A page that has not even begun to say something by then is broken.
const LIMIT: Duration = Duration::from_secs(120);

/// Also waits for what is there after the page has loaded.
const OUTCOME: &str = "if (!window.outcome) return null;
    const late = new Promise((_, reject) => setTimeout(() => reject(Error('no outcome')), arg));
    return Promise.race([window.outcome, late]).then((value) => ({ value: value ?? null }))";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut words = env::args().skip(1);
    let engine = engine(&words.next().context("visit ENGINE URL…")?)?;
    if !engine.is_here() {
        return Ok(());
    }
    let browser = Browser::start(engine).await?;
    for url in words {
        println!("{}", visit(&browser, &url).await.unwrap_or_else(|error| json!({ "error": format!("{error:#}") })));
    }
    Ok(())
}

fn engine(name: &str) -> anyhow::Result<Engine> {
    let engines = [Engine::Chromium, Engine::Firefox, Engine::WebKit];
    engines.into_iter().find(|engine| engine.name() == name).with_context(|| format!("there is no engine {name:?}"))
}

async fn visit(browser: &Browser, url: &str) -> anyhow::Result<Value> {
    let tab = browser.open(url, Shape::Tab).await?;
    let outcome = tab.until(OUTCOME, json!(LIMIT.as_millis()), LIMIT).await?;
    tab.close().await?;
    Ok(outcome)
}
