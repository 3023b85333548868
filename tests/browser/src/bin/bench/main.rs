//! What a lease costs in a browser, beside the platform's own transaction and three other locks in the same run. Writes
//! `target/bench/browser.json`. Ends well however slow anything is: it tells, it does not judge.

mod measure;
mod report;

use std::process::ExitCode;

use leasehold_browser_tests::Engine;

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
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut figures = vec![];
    for engine in [Engine::Chromium, Engine::Firefox].into_iter().filter(|engine| engine.is_here()) {
        eprintln!("measuring in {} …", engine.name());
        figures.push((engine, runtime.block_on(measure::measure(engine))?));
    }
    anyhow::ensure!(!figures.is_empty(), "there is neither Chromium nor Firefox with its WebDriver");
    report::print(&figures);
    report::save(&figures)
}
