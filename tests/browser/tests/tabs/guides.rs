//! Every JavaScript example of the README and of `docs/`: it prints what the text says.

use anyhow::{Context as _, ensure};
use leasehold_browser_tests::{Shape, Tab};
use serde_json::json;

use crate::{
    examples::{Example, bundled},
    world::{SOON, World},
};

/// Each is run in a page of its own, where nothing is stored yet. All that went wrong is told, not only the first.
pub async fn every_example_prints_what_its_text_says(world: &World) -> anyhow::Result<()> {
    let mut wrong = Vec::new();
    let tab = world.browser.open(&world.elsewhere(), Shape::Window).await?;
    for example in bundled()? {
        let printed = printed(world, &tab, example).await.with_context(|| example.place.clone());
        let printed = printed.unwrap_or_else(|error| format!("{error:#}"));
        if printed != example.prints {
            wrong.push(format!("{} says:\n{}\nbut it prints:\n{printed}", example.place, example.prints));
        }
    }
    ensure!(wrong.is_empty(), "{} examples are wrong\n\n{}", wrong.len(), wrong.join("\n\n"));
    Ok(())
}

async fn printed(world: &World, tab: &Tab, example: &Example) -> anyhow::Result<String> {
    tab.goto(&world.server.url("/tests/example.html")).await?;
    tab.until("return typeof window.run === 'function'", json!(null), SOON).await?;
    tab.start("example", "return run(arg)", json!(example.url)).await?;
    let printed = tab.outcome("example", SOON).await?;
    Ok(printed.as_str().context("a text")?.trim_end().to_owned())
}
