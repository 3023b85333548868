//! Every JavaScript example of the README and of `docs/` prints what the text says, and those of the types' comments run.

use anyhow::{Context as _, ensure};
use leasehold_browser_tests::{Shape, Tab};
use serde_json::{Value, json};

use crate::{
    examples::{Example, of_guides, of_types},
    world::{SOON, World},
};

/// Each is run in a page of its own, where nothing is stored yet. All that went wrong is told, not only the first.
pub async fn every_example_prints_what_its_text_says(world: &World) -> anyhow::Result<()> {
    let mut wrong = Vec::new();
    let tab = world.browser.open(&world.elsewhere(), Shape::Window).await?;
    for example in of_guides()? {
        let told = run(world, &tab, &example).await;
        let printed = told.map(|told| [lines(&told["printed"]), lines(&told["complaints"])].concat());
        let printed = printed.unwrap_or_else(|error| format!("{error:#}"));
        if printed.trim_end() != example.prints {
            wrong.push(format!("{} says:\n{}\nbut it prints:\n{printed}", example.place, example.prints));
        }
    }
    ensure!(wrong.is_empty(), "{} examples are wrong\n\n{}", wrong.len(), wrong.join("\n\n"));
    Ok(())
}

/// What they print is not compared. They show a call, not a program: what they hold need not be given back.
pub async fn every_example_in_the_types_runs(world: &World) -> anyhow::Result<()> {
    let mut wrong = Vec::new();
    let tab = world.browser.open(&world.elsewhere(), Shape::Window).await?;
    for example in of_types()? {
        let told = run(world, &tab, &example).await;
        let complaints = told.map_or_else(|error| format!("{error:#}"), |told| lines(&told["complaints"]));
        let grave = complaints.lines().filter(|line| !line.contains("was forgotten without release"));
        wrong.extend(grave.map(|line| format!("{}: {line}", example.place)));
    }
    ensure!(wrong.is_empty(), "{} examples are wrong\n\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

async fn run(world: &World, tab: &Tab, example: &Example) -> anyhow::Result<Value> {
    tab.goto(&world.server.url("/tests/example.html")).await?;
    tab.until("return typeof window.run === 'function'", Value::Null, SOON).await?;
    tab.start("example", "return run(arg)", json!({ "url": example.url, "prelude": example.needs_prelude })).await?;
    tab.outcome("example", SOON).await.with_context(|| example.place.clone())
}

fn lines(told: &Value) -> String {
    told.as_array().into_iter().flatten().filter_map(Value::as_str).map(|line| format!("{line}\n")).collect()
}
