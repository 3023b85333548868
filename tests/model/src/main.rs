//! Searches every configuration in full, and prints a Markdown table.
//!
//! `cargo run --release -p leasehold-model -- [test] [within MINUTES] [a name, or part of names]`: `test` searches in the size of the test;
//! `within` searches the smallest first, as many as fit into that time; names search only those configurations.

use std::{process::ExitCode, thread, time::SystemTime};

use leasehold_model::{Configuration, Size, check, configurations};

/// More threads would only make the way to a counter-example longer.
const THREADS: usize = 2;
/// The table that says how many states each configuration had when it was searched last.
const LAST_RUN: &str = include_str!("../README.md");
/// The assumed time for one state, in seconds, until the first configuration has been searched.
const FIRST_GUESS: f64 = 20e-6;

fn main() -> ExitCode {
    let mut arguments: Vec<_> = std::env::args().skip(1).collect();
    let size = if arguments.first().is_some_and(|first| first == "test") { Size::Test } else { Size::Full };
    if size == Size::Test {
        arguments.remove(0);
    }
    let within = within(&mut arguments);
    let part = arguments.join(" ");
    let threads = thread::available_parallelism().map_or(1, |cores| cores.get().min(THREADS));
    let all = configurations(size);
    let is_whole = all.iter().any(|configuration| configuration.name == part);
    let is_meant = |name: &str| if is_whole { name == part } else { name.contains(&part) };
    let mut chosen: Vec<_> = all.iter().filter(|configuration| is_meant(configuration.name)).collect();
    if within.is_some() {
        chosen.sort_by_key(|configuration| last_states(configuration.name).unwrap_or(0));
    }
    println!("| configuration | contexts | steps of time | faults | depth | distinct states | seconds | result |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    let (mut states, mut found, mut spent, mut left_out) = (0, false, 0.0, Vec::new());
    for configuration in &chosen {
        let each = if states == 0 { FIRST_GUESS } else { spent / states as f64 };
        let expected = last_states(configuration.name).unwrap_or(0) as f64 * each;
        if within.is_some_and(|within| spent + expected > within) {
            left_out.push(configuration.name);
            continue;
        }
        let (distinct, bad, seconds) = row(configuration, threads);
        (states, found, spent) = (states + distinct, found | bad, spent + seconds);
    }
    println!("\n{} configurations, {states} distinct states, {spent:.0} seconds.", chosen.len() - left_out.len());
    if !left_out.is_empty() {
        println!("Not searched, for want of time: {}.", left_out.join("; "));
    }
    if found { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The time limit of the search in seconds, if one is given.
fn within(arguments: &mut Vec<String>) -> Option<f64> {
    let minutes = arguments.get(1).filter(|_| arguments[0] == "within")?.parse::<f64>().ok()?;
    arguments.drain(..2);
    Some(minutes * 60.0)
}

/// How many states a configuration had when it was searched in full last.
fn last_states(name: &str) -> Option<usize> {
    let cells = LAST_RUN.lines().map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    cells.into_iter().find(|cells| cells.get(1) == Some(&name))?.get(6)?.parse().ok()
}

/// Searches one configuration. Returns how many states it has, whether something is wrong, and how long it took, in seconds.
fn row(configuration: &Configuration, threads: usize) -> (usize, bool, f64) {
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
    (report.states, report.finding.is_some(), spent.as_secs_f64())
}
