//! What becomes of leases where the site has no room left. Firefox can be told before it starts how much a site may keep.

use anyhow::{Context as _, ensure};
use leasehold_browser_tests::{Browser, Shape, Tab};
use serde_json::{Value, json};

use crate::{
    storage::MUCH,
    world::{SOON, World, hold, opened},
};

/// A tab of a browser where a site may keep little, and that browser, which ends when it is dropped.
async fn cramped(world: &World) -> anyhow::Result<(Browser, Tab)> {
    let browser = Browser::start_with_little_room(world.engine).await?;
    let tab = browser.open(&world.server.url("/tests/tab.html"), Shape::Tab).await?;
    tab.until("return window.ready", Value::Null, SOON).await?;
    Ok((browser, tab))
}

/// A request is told that there is no room, and what to do about it. It is granted as soon as there is room again.
pub async fn a_full_site_is_told(world: &World) -> anyhow::Result<()> {
    let (_browser, tab) = cramped(world).await?;
    let tab = opened(tab, json!({ "lingerMs": 0 })).await?;
    tab.run("await fillUp()", Value::Null).await?;
    let failed = tab.run(MUCH, Value::Null).await?;
    ensure!(failed["code"] == "Quota" && failed["name"] == "QuotaExceededError", "a full site says {failed}");
    let message = failed["message"].as_str().unwrap_or_default();
    ensure!(message.contains("delete some of its data, or free disk space"), "a full site says {failed}");
    tab.run("await makeRoom()", Value::Null).await?;
    hold(&tab, "notes").await.context("with room again")?;
    Ok(())
}

/// After such a write, Firefox lets the next transaction of that connection only delete data. A renewal that is asked for right then fails;
/// the error says that trying again may help, and it does.
pub async fn a_write_that_finds_no_room_costs_no_lease(world: &World) -> anyhow::Result<()> {
    let (_browser, tab) = cramped(world).await?;
    let told = tab.run("return exceed()", Value::Null).await?;
    let refused = |name: &str| {
        let text = told[name][1].as_str().unwrap_or_default();
        text.starts_with("Store: ")
            && text.contains("did not allow mutations")
            && text.ends_with("trying again may help)")
    };
    ensure!(refused("verify") && refused("renew"), "a renewal should be refused: {told}");
    let first = told["fence"][1] == "cleanup: InvalidStateError" && told["run"][1] == 1;
    ensure!(first, "only a write should be refused: {told}");
    for (name, second) in
        [("verify", json!(true)), ("fence", json!("committed")), ("renew", json!("committed")), ("run", json!(1))]
    {
        ensure!(told[name][0] == "QuotaExceededError", "much should find no room: {told}");
        ensure!(told[name][2] == second && told[name][3] == true, "the second {name} should succeed: {told}");
    }
    Ok(())
}
