//! Searches every configuration in full, and prints a Markdown table.
//!
//! `cargo run --release -p leasehold-model -- [test] [a name, or part of names]`: in the size of the test, only those lines.

use std::{process::ExitCode, thread, time::SystemTime};

use leasehold_model::{Configuration, Size, check, configurations};

/// More threads would only make the way to a counter-example longer.
const THREADS: usize = 2;

fn main() -> ExitCode {
    let mut arguments: Vec<_> = std::env::args().skip(1).collect();
    let size = if arguments.first().is_some_and(|first| first == "test") { Size::Test } else { Size::Full };
    if size == Size::Test {
        arguments.remove(0);
    }
    let part = arguments.join(" ");
    let threads = thread::available_parallelism().map_or(1, |cores| cores.get().min(THREADS));
    let all = configurations(size);
    let is_whole = all.iter().any(|configuration| configuration.name == part);
    let is_meant = |name: &str| if is_whole { name == part } else { name.contains(&part) };
    let chosen: Vec<_> = all.iter().filter(|configuration| is_meant(configuration.name)).collect();
    println!("| configuration | contexts | steps of time | faults | depth | distinct states | seconds | result |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    let (mut states, mut found) = (0, false);
    for configuration in &chosen {
        let (distinct, bad) = row(configuration, threads);
        (states, found) = (states + distinct, found | bad);
    }
    println!("\n{} configurations, {states} distinct states.", chosen.len());
    if found { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Searches one configuration; how many states it has, and whether something is wrong.
fn row(configuration: &Configuration, threads: usize) -> (usize, bool) {
    let start = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let report = check(configuration, threads);
    let spent = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().saturating_sub(start);
    let result = match &report.finding {
        Some(finding) => finding.rules.iter().map(|rule| format!("**broken: {rule}**")).collect::<Vec<_>>().join(", "),
        None if report.to_the_end => "holds".into(),
        None => "holds as far as searched".into(),
    };
    println!(
        "| {} | {} | {} | {} | {} | {} | {:.1} | {result} |",
        configuration.name,
        configuration.users.len(),
        configuration.budget.ticks,
        configuration.budget.describe(),
        report.depth,
        report.states,
        spent.as_secs_f64(),
    );
    if report.finding.is_some() {
        eprintln!("{report}");
    }
    (report.states, report.finding.is_some())
}
