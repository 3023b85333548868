//! Pages that Chromium renders before anybody goes to them, because the page that links to them says that people will.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::world::{SOON, World};

const PRERENDER: &str = "
    const rules = document.createElement('script');
    rules.type = 'speculationrules';
    rules.textContent = JSON.stringify({ prerender: [{ urls: [arg], eagerness: 'immediate' }] });
    document.head.append(rules)";

/// Nobody sees such a page, and perhaps nobody ever will. The browser gives it no Web Lock, either.
pub async fn a_prerendered_page_is_granted_nothing_before_somebody_goes_to_it(world: &World) -> anyhow::Result<()> {
    let (other, tab) = (world.window(json!({})).await?, world.bare_tab().await?);
    tab.look().await?;
    let page = "/tests/prerendered.html";
    tab.run(PRERENDER, json!(page)).await?;
    let asks = other.until("return localStorage.getItem('asks')", Value::Null, SOON).await;
    ensure!(asks.context("no page is prerendered")? == "true", "the page was not prerendered");
    let looked = other.run("return JSON.parse(localStorage.getItem('looked'))", Value::Null).await?;
    let names_the_cause = looked["message"].as_str().is_some_and(|message| message.contains("prerendered page"));
    ensure!(looked["code"] == "Store" && names_the_cause, "a look at the key says {looked}");
    // Longer than the page would wait for a Web Lock before it asks without one.
    let turns = "for (let turn = 0; turn < 40; turn++) {
            const lease = await leases.tryAcquire('notes');
            if (lease === null) return turn;
            await lease.release();
            await new Promise((resolve) => setTimeout(resolve, 100));
        }
        return 'free'";
    let free = other.run(turns, Value::Null).await?;
    ensure!(free == "free", "the lease is not free in turn {free}");
    tab.run("location.href = arg", json!(page)).await?;
    let early = tab.until("return window.lease?.valid && [grantedEarly]", Value::Null, SOON).await;
    ensure!(early.context("the page that is shown is granted nothing")? == json!([false]), "it was granted early");
    ensure!(other.run("return await leases.tryAcquire('notes')", Value::Null).await?.is_null(), "it has the lease");
    Ok(())
}
