//! The figures for people, and for programs.

use std::{fs, path::PathBuf};

use leasehold_browser_tests::Engine;
use serde_json::{Map, Value, json};

use crate::measure::Figures;

pub(crate) fn print(all: &[(Engine, Figures)]) {
    println!("\nbrowser: milliseconds, in one run{:21}", "");
    println!(
        "  Hand-off: from the start of release() in one tab to the grant in the other; the difference of their clocks is"
    );
    println!(
        "  taken from the quickest of 20 round trips before each. Take-over: from the dead holder's last sign of life"
    );
    println!("  (one every 1 to 4 ms) to the grant, both as the waiter saw them.\n");
    let (first, figures) = &all[0];
    print!("{:48}{:>10}", "", first.name());
    all[1..].iter().for_each(|(engine, _)| print!("{:>10}", engine.name()));
    println!();
    for (name, value) in figures {
        print!("{name:48}{value:10.3}");
        for (_, others) in &all[1..] {
            find(others, name).map_or_else(|| print!("{:>10}", "–"), |value| print!("{value:10.3}"));
        }
        println!();
    }
    for (engine, figures) in all.iter().filter(|(engine, _)| *engine == Engine::Chromium) {
        println!("\ntargets in {}:", engine.name());
        print_targets(figures);
    }
}

fn print_targets(figures: &Figures) {
    let figure = |name| find(figures, name).unwrap_or(f64::NAN);
    let (transaction, hop) = (figure("raw_transaction_p50_ms"), figure("hop_p50_ms"));
    let targets = [
        ("cold_acquire_release_p50_ms", "1.4 × two transactions", 1.4 * 2.0 * transaction),
        ("handoff_p50_ms", "2 × (one transaction + one hop)", 2.0 * (transaction + hop)),
        ("crash_takeover_p50_ms", "150 ms", 150.0),
    ];
    for (name, words, limit) in targets {
        let value = figure(name);
        let verdict = if value <= limit { "met" } else { "MISSED" };
        println!("  {name:32}{value:9.3} <= {limit:7.3} ({words}): {verdict}");
    }
}

fn find(figures: &Figures, name: &str) -> Option<f64> {
    figures.iter().find(|(known, _)| known == name).map(|&(_, value)| value)
}

pub(crate) fn save(all: &[(Engine, Figures)]) -> anyhow::Result<()> {
    let mut object = Map::new();
    for (engine, figures) in all {
        for (name, value) in figures {
            // Microseconds are as fine as any of these clocks.
            object.insert(format!("{}_{name}", engine.name()), json!((value * 1e3).round() / 1e3));
        }
    }
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/bench");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("browser.json"), format!("{:#}\n", Value::Object(object)))?;
    println!("\nwritten to target/bench/browser.json");
    Ok(())
}
