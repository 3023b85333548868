//! What a lease costs in a browser, beside the platform's own transaction and other locks in the same run. Writes
//! `target/bench/browser.json`. Ends well however slow anything is: it tells, it does not judge.
//!
//! `bench [ENGINE …] [quick]`: all engines that are here, or the named ones; `quick` takes a tenth of the samples and
//! shows that it works, not how fast.

mod alone;
mod contestants;
mod crowd;
mod figures;
mod goals;
mod idle;
mod measure;
mod page;
mod pair;
mod report;
mod take_over;

use std::process::ExitCode;

use leasehold_browser_tests::Engine;

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
    let (mut named, mut plan) = (vec![], Plan::FULL);
    for word in std::env::args().skip(1) {
        match ENGINES.iter().find(|engine| engine.name() == word) {
            Some(engine) => named.push(*engine),
            None if word == "quick" => plan = Plan::QUICK,
            None => anyhow::bail!("{word} is neither an engine nor `quick`"),
        }
    }
    let wanted = if named.is_empty() { ENGINES } else { &named };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut all = vec![];
    for engine in wanted.iter().copied().filter(|engine| engine.is_here()) {
        eprintln!("measuring in {} …", engine.name());
        all.push((engine, runtime.block_on(measure::measure(engine, &plan))?));
    }
    anyhow::ensure!(!all.is_empty(), "none of these browsers is here with its WebDriver");
    report::print(&all);
    report::save(&all)
}
