//! `leases.locks` beside the browser's own locks: the rules on both, random programs on both, and a program that was
//! written for the one and runs on the other.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, ensure};
use leasehold_browser_tests::Tab;
use serde_json::{Value, json};

use crate::world::World;

/// For a suite or a thousand programs.
const LIMIT: Duration = Duration::from_secs(280);

/// Runs a script to its end, however long that takes.
async fn outcome(tab: &Tab, script: &str, argument: Value) -> anyhow::Result<Value> {
    tab.start("suite", script, argument).await?;
    tab.outcome("suite", LIMIT).await
}

/// Every rule of one suite, by the browser's own locks and by leases. Each is named by its number in what comes back.
async fn rules(world: &World, suite: &str) -> anyhow::Result<()> {
    let tab = world.tab(json!({})).await?;
    let told = outcome(&tab, "return lockSuite(arg)", json!(suite)).await?;
    let (held, broken) = (told["held"].as_u64().context("a count")?, &told["broken"]);
    ensure!(broken.as_array().is_some_and(Vec::is_empty), "rules that do not hold: {broken:#}");
    ensure!(held > 0, "no rule was looked at");
    world.note(&format!("{held} checks of rules, by both"));
    Ok(())
}

pub async fn the_rules_hold_by_both(world: &World) -> anyhow::Result<()> {
    rules(world, "inOnePlace").await
}

pub async fn the_rules_hold_in_frames_and_workers(world: &World) -> anyhow::Result<()> {
    rules(world, "besideThePage").await
}

/// In an insecure context.
pub async fn installed_where_there_are_none_the_rules_hold(world: &World) -> anyhow::Result<()> {
    let tab = world.tab_at(world.engine.insecure_host(), json!({})).await?;
    let told = outcome(&tab, "return lockSuite('installed')", Value::Null).await?;
    ensure!(told["before"] == "undefined" && told["did"] == json!([true, false]), "not in their place: {told:#}");
    ensure!(told["broken"].as_array().is_some_and(Vec::is_empty), "rules that do not hold: {:#}", told["broken"]);
    ensure!(told["held"].as_u64() >= Some(20), "too few rules: {told}");
    let native = world.tab(json!({})).await?;
    let kept = "const { locks } = navigator; return [install(), navigator.locks === locks]";
    ensure!(native.run(kept, Value::Null).await? == json!([false, true]), "the browser's own locks were replaced");
    Ok(())
}

/// 500 if there is time, and 100 however long they take. A difference names the seed, and a smaller program that differs.
async fn programs(world: &World, first: u32) -> anyhow::Result<()> {
    let tab = world.tab(json!({})).await?;
    let told = outcome(&tab, "return lockSuite('programs', arg)", json!(first)).await?;
    ensure!(told["differs"].is_null(), "they differ: {told:#}");
    let done = told["done"].as_u64().context("a count")?;
    world
        .note(&format!("{done} random programs, alike by both; {} of them to where the browser errs", told["excused"]));
    ensure!(done >= 100, "there was time for {done} programs only");
    Ok(())
}

pub async fn random_programs_run_alike_by_both(world: &World) -> anyhow::Result<()> {
    programs(world, 1).await
}

pub async fn other_random_programs_do_so_too(world: &World) -> anyhow::Result<()> {
    programs(world, 501).await
}

/// The code of `docs/web-locks.md`.
pub async fn the_sample_runs_unchanged_on_both(world: &World) -> anyhow::Result<()> {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/web-locks.md"))?;
    let code = page.split("```js\n").nth(1).and_then(|rest| rest.split("```").next()).context("the page has code")?;
    let tab = world.tab(json!({})).await?;
    let told = outcome(&tab, "return lockSuite('sample', arg)", json!(code)).await?;
    let expected = json!([
        "refreshed it under token, exclusive",
        "found it fresh",
        "found it fresh",
        "leads",
        "follows",
        "[\"exclusive\"]",
        "is the next to lead",
        "[null,null,1,null]",
        "robbed: AbortError",
        "stole it",
    ]);
    ensure!(told["native"] == expected, "the browser's own locks tell otherwise: {told:#}");
    ensure!(told["leases"] == expected, "leases tell otherwise: {told:#}");
    Ok(())
}
