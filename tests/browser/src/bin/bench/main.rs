//! What a lease costs in a browser, beside the platform's own transaction and other locks in the same run. Writes
//! `target/bench/browser.json`. Ends well however slow anything is, and whichever rival hangs: it tells, it does not judge.
//!
//! `bench [ENGINE …] [quick]`: all engines that are here, or the named ones; `quick` takes a tenth of the samples and
//! shows that it works, not how fast. `bench first …` measures only the first lease of fresh tabs, which is printed and not
//! written. `bench profile [ENGINE …] [quick] [docs]` tells where the time goes instead. `LEASEHOLD_OLD_PKG` names the `pkg/` of
//! an old build, which is measured in the same pages, in turn with the new one.

mod alone;
mod contestants;
mod crowd;
mod figures;
mod first;
mod goals;
mod idle;
mod measure;
mod page;
mod pair;
mod profile;
mod report;
mod take_over;

use std::{path::Path, process::ExitCode};

use leasehold_bench_machine::Machine;
use leasehold_browser_tests::{Engine, Server};

use crate::measure::Plan;

const ENGINES: &[Engine] = &[Engine::Chromium, Engine::Firefox, Engine::WebKit];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let says = |word: &str| words.iter().any(|said| said == word);
    let mut wanted = vec![];
    for word in &words {
        match ENGINES.iter().find(|engine| engine.name() == word) {
            Some(engine) => wanted.push(*engine),
            None if ["quick", "first", "profile", "docs"].contains(&word.as_str()) => {}
            None => {
                anyhow::bail!("unknown word {word:?}; use chromium, firefox, webkit, quick, first, profile or docs")
            }
        }
    }
    if wanted.is_empty() {
        wanted = ENGINES.to_vec();
    }
    wanted.retain(|engine| engine.is_here());
    anyhow::ensure!(
        !wanted.is_empty(),
        "no browser to measure: chromium, firefox or webkit must be installed with its WebDriver; run `make setup`"
    );
    if let Some(old) = Server::old_package() {
        let entry = old.join("index.mjs");
        anyhow::ensure!(
            entry.is_file(),
            "LEASEHOLD_OLD_PKG names the pkg/ of an old build; {} is missing",
            entry.display()
        );
    }
    if says("profile") {
        let plan = if says("quick") { profile::Plan::QUICK } else { profile::Plan::FULL };
        return profile::run(&wanted, &plan, says("docs"));
    }
    let plan = if says("quick") { Plan::QUICK } else { Plan::FULL };
    measure_all(&wanted, &plan, says("first"))
}

fn measure_all(engines: &[Engine], plan: &Plan, only_first: bool) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let (mut all, mut failed) = (vec![], vec![]);
    let machine = Machine::here(Path::new(env!("CARGO_MANIFEST_DIR")));
    println!("{machine}");
    for engine in engines {
        eprintln!("measuring in {} …", engine.name());
        let mut run = report::Run::new(*engine);
        let outcome = runtime.block_on(async {
            if only_first {
                measure::measure_first(plan, &mut run).await
            } else {
                measure::measure(plan, &mut run).await
            }
        });
        if let Err(error) = outcome {
            eprintln!("  {} failed: {error:#}", engine.name());
            failed.push(engine.name());
        }
        all.push(run);
    }
    report::print(&all);
    if !only_first {
        report::save(&all, machine.facts())?;
    }
    anyhow::ensure!(failed.is_empty(), "figures are missing of {}", failed.join(" and "));
    Ok(())
}
