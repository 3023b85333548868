//! Where the time of an operation goes. Writes `target/bench/profile.json`, and prints a table for each engine.
//!
//! The pages hook the browser and the wasm from outside, in modes that are measured side by side, since what is finer costs more: see
//! `benches/browser/profile.mjs`.

mod crowd;
mod guide;
mod measure;
mod summary;
mod table;

use std::{fs, path::Path};

use leasehold_browser_tests::Engine;
use serde_json::{Map, Value};

pub(crate) use measure::Plan;

/// The modes of the pages, as their addresses have them. The first one is what the others are compared with.
const MODES: [&str; 5] = ["plain", "marks", "crossings", "parts", "flipped"];

/// Profiles these engines; with `docs`, the tables also take the place of those in the guide.
pub(crate) fn run(engines: &[Engine], plan: &Plan, docs: bool) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let marked = root.join("target/marked-pkg/index.mjs");
    anyhow::ensure!(marked.is_file(), "{} is missing; run `.ci/with .ci/pkg marked`", marked.display());
    let (mut all, mut tables, mut rows) = (Map::new(), vec![], vec![]);
    for engine in engines {
        eprintln!("profiling in {} …", engine.name());
        let profile = runtime.block_on(measure::measure(*engine, plan))?;
        let table = table::of(&profile)?;
        println!("\n{table}");
        tables.push((*engine, table));
        rows.extend(summary::rows(*engine, &profile)?);
        all.insert(engine.name().into(), profile);
    }
    println!("{}", rows.join("\n"));
    let folder = root.join("target/bench");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("profile.json"), format!("{:#}\n", Value::Object(all)))?;
    println!("written to target/bench/profile.json");
    if docs {
        guide::replace(&root.join("docs/profile.md"), &tables, &rows)?;
    }
    Ok(())
}
