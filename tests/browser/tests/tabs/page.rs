//! The demo page where the platform gives it least; `demo --check` goes through all of it.

use std::time::Duration;

use leasehold_browser_tests::Shape;
use serde_json::json;

use crate::world::World;

const SOON: Duration = Duration::from_secs(10);

pub async fn the_demo_page_works_in_an_insecure_context(world: &World) -> anyhow::Result<()> {
    let tab = world.browser.open(&world.server.url_at(world.engine.insecure_host(), "/"), Shape::Window).await?;
    let click = "const error = document.getElementById('error');
        if (!error.hidden) throw error.textContent;
        const button = document.getElementById(arg);
        return !isSecureContext && !button.disabled && (button.click(), true);";
    tab.until(click, json!("take"), SOON).await?;
    tab.until("return document.getElementById('holder').dataset.state === arg", json!("mine"), SOON).await?;
    tab.until(click, json!("release"), SOON).await?;
    tab.until("return document.getElementById('holder').dataset.state === arg", json!("free"), SOON).await?;
    Ok(())
}
