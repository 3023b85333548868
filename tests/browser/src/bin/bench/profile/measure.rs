//! One engine, from its start to the figures of its operations.

use std::path::Path;

use leasehold_bench_machine::Machine;
use leasehold_browser_tests::{Browser, Engine, Server, Tab};
use serde_json::{Map, Value, json};

use super::{MODES, crowd};
use crate::page::{Pages, ask};

/// How much of everything.
pub(crate) struct Plan {
    /// How many turns every operation has in every mode, in each round.
    pub(crate) rounds: u32,
    pub(crate) turns: u32,
    pub(crate) hand_offs: u32,
    pub(crate) crowd_tabs: usize,
    /// Measured turns of each tab; the same number runs before them, unmeasured.
    pub(crate) crowd_turns: u32,
}

impl Plan {
    pub(crate) const FULL: Self = Self { rounds: 16, turns: 25, hand_offs: 15, crowd_tabs: 10, crowd_turns: 50 };
    pub(crate) const QUICK: Self = Self { rounds: 3, turns: 8, hand_offs: 5, crowd_tabs: 4, crowd_turns: 10 };
}

/// A tab of one mode, and the names of the operations that it knows.
struct Bench {
    mode: &'static str,
    tab: Tab,
    other: Tab,
    operations: Vec<String>,
}

pub(crate) async fn measure(engine: Engine, plan: &Plan) -> anyhow::Result<Value> {
    let described = Machine::here(Path::new(env!("CARGO_MANIFEST_DIR"))).to_string();
    let pages = Pages { server: Server::start()?, browser: Browser::start(engine).await? };
    let mut benches = vec![];
    for mode in MODES {
        benches.push(open(&pages, mode).await?);
    }
    for _ in 0..plan.rounds {
        alone(&benches, plan).await?;
        for bench in &benches {
            ask(&bench.tab, "await profile.handOffs(arg)", json!(plan.hand_offs)).await?;
        }
    }
    let mut operations = Map::new();
    let (mut calibration, mut commits) = (Value::Null, Value::Null);
    for bench in benches {
        for name in bench.operations.iter().map(String::as_str).chain(["hand-off"]) {
            let digest = ask(&bench.tab, "return profile.digest(arg)", json!(name)).await?;
            operations.entry(name).or_insert_with(|| json!({}))[bench.mode] = digest;
        }
        if bench.mode == "crossings" {
            calibration = bench.tab.run("return profile.calibration", Value::Null).await?;
        }
        if bench.mode == "plain" {
            commits = bench.tab.run("return profile.commits", Value::Null).await?;
        }
        bench.tab.close().await?;
        bench.other.close().await?;
    }
    for mode in MODES {
        operations.entry("crowd's turn").or_insert_with(|| json!({}))[mode] =
            crowd::measure(&pages, mode, plan).await?;
    }
    let browser = format!("{} {}", engine.name(), pages.browser.version());
    Ok(json!({
        "browser": browser,
        "machine": described,
        "calibration": calibration,
        "commits": commits,
        "operations": operations,
    }))
}

pub(crate) async fn open_page(pages: &Pages, mode: &str) -> anyhow::Result<Tab> {
    pages.open_at(&format!("/benches/browser/profile.html?{mode}")).await
}

async fn open(pages: &Pages, mode: &'static str) -> anyhow::Result<Bench> {
    let (tab, other) = (open_page(pages, mode).await?, open_page(pages, mode).await?);
    other.run("profile.serve()", Value::Null).await?;
    let names = ask(&tab, "return profile.prepare()", Value::Null).await?;
    let names = names.as_array().into_iter().flatten().filter_map(Value::as_str);
    Ok(Bench { mode, tab, other, operations: names.map(str::to_owned).collect() })
}

/// One round: each operation in all modes before the next one, so that a slow moment of the machine meets all modes.
async fn alone(benches: &[Bench], plan: &Plan) -> anyhow::Result<()> {
    let mut names: Vec<&String> = vec![];
    for name in benches.iter().flat_map(|bench| &bench.operations) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    for name in names {
        for bench in benches.iter().filter(|bench| bench.operations.contains(name)) {
            let arg = json!({ "name": name, "times": plan.turns });
            ask(&bench.tab, "await profile.measure(arg)", arg).await?;
        }
    }
    Ok(())
}
