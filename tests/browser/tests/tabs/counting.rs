//! Two tabs count up one number, each step in two transactions.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use leasehold_browser_tests::Tab;
use serde_json::{Value, json};

use crate::world::World;

const STEPS: usize = 500;

/// If the tabs did not run at the same time for long enough, they count again.
pub async fn two_tabs_lose_no_increment(world: &World) -> anyhow::Result<()> {
    let tabs = [world.tab(json!({})).await?, world.tab(json!({})).await?];
    for round in 1..=3 {
        let tokens = count_in_both(&tabs, STEPS, "counter".into()).await?;
        let (actual, expected) = read(&tabs[0]).await?;
        ensure!(expected == round * 2 * STEPS as u64, "{expected} steps were made");
        ensure!(actual == expected, "of {expected} steps {} were lost", expected - actual);
        let changes = changes_of_100_turns(&tokens)?;
        if changes >= Some(90) {
            return Ok(());
        }
        world.note(&format!("round {round}: of any 99 turns that both tabs wanted, at most {changes:?} changed tabs"));
    }
    anyhow::bail!("turns do not change tabs")
}

/// The same without the lease: shows that the test above can fail.
pub async fn without_the_lease_increments_are_lost(world: &World) -> anyhow::Result<()> {
    let tabs = [world.tab(json!({})).await?, world.tab(json!({})).await?];
    for round in 1..=5 {
        count_in_both(&tabs, STEPS, Value::Null).await?;
        let (actual, expected) = read(&tabs[0]).await?;
        ensure!(expected == round * 2 * STEPS as u64, "{expected} steps were made");
        if actual < expected {
            return Ok(());
        }
    }
    anyhow::bail!("none was lost")
}

/// Starts both at one moment; the tokens that each got, in its order.
pub async fn count_in_both(tabs: &[Tab; 2], steps: usize, key: Value) -> anyhow::Result<[Vec<u64>; 2]> {
    for tab in tabs {
        tab.start("count", "return count(arg)", json!({ "steps": steps, "key": key })).await?;
    }
    tabs[0].run("go()", Value::Null).await?;
    let mut tokens = [vec![], vec![]];
    for (tab, tokens) in tabs.iter().zip(&mut tokens) {
        let told = tab.outcome("count", Duration::from_secs(240)).await?;
        *tokens = told.as_array().context("a list")?.iter().filter_map(Value::as_u64).collect();
    }
    Ok(tokens)
}

/// Where the counter stands, and where it should.
pub async fn read(tab: &Tab) -> anyhow::Result<(u64, u64)> {
    let numbers = tab.run("return (await Counter.open('tests-counter')).read()", Value::Null).await?;
    numbers["actual"].as_u64().zip(numbers["expected"].as_u64()).context("two numbers")
}

/// How often the turn went to the other tab, in those 100 turns in a row that both tabs wanted the most: on a busy machine one of
/// them may stand still for a while, and want none. Tokens tell the order of turns. `None` if both wanted fewer.
fn changes_of_100_turns(tokens: &[Vec<u64>; 2]) -> anyhow::Result<Option<usize>> {
    let mut turns: Vec<(u64, usize)> = Vec::new();
    for (tab, tokens) in tokens.iter().enumerate() {
        ensure!(tokens.is_sorted_by(|a, b| a < b), "a tab's tokens did not grow");
        turns.extend(tokens.iter().map(|&token| (token, tab)));
    }
    turns.sort_unstable();
    // Before its first turn a tab may not have wanted one, and after its last it does not.
    let both_began = tokens.iter().filter_map(|tokens| tokens.first()).max().context("turns")?;
    let one_ended = tokens.iter().filter_map(|tokens| tokens.last()).min().context("turns")?;
    turns.retain(|(token, _)| token >= both_began && token <= one_ended);
    let changes = |turns: &[(u64, usize)]| turns.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
    Ok(turns.windows(100).map(changes).max())
}
