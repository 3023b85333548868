//! `MUTANTS='rule q,rule r' cargo test -p leasehold-mutants` for some of them: by rule, or by what their names contain.

use std::{collections::BTreeSet, env, fmt::Write as _};

use leasehold_mutants::{Mutant, Suite, Workshop, all};

#[test]
fn every_mutant_is_caught() {
    let chosen = env::var("MUTANTS").unwrap_or_default();
    let is_chosen =
        |mutant: &Mutant| chosen.split(',').any(|chosen| mutant.rule == chosen || mutant.name.contains(chosen));
    let mutants: Vec<_> = all().into_iter().filter(is_chosen).collect();
    assert!(!mutants.is_empty(), "no mutant is called {chosen:?}");
    let workshop = Workshop::new().expect("the crate can be copied");
    let suites: BTreeSet<Suite> = mutants.iter().map(|mutant| mutant.caught_by).collect();
    let (mut table, mut wrong) = (String::new(), Vec::new());
    for suite in suites {
        match workshop.run_unspoilt(suite) {
            Ok(run) => println!("{suite} passes without a mutant ({} s)", run.took.as_secs()),
            Err(error) => wrong.push(format!("{error:#}")),
        }
    }
    for mutant in &mutants {
        let row = match workshop.run_spoilt(mutant) {
            Ok(run) => format!("{} | {} s | {}", mutant.caught_by, run.took.as_secs(), run.complaint),
            Err(error) => {
                wrong.push(format!("{}, {}: {error:#}", mutant.rule, mutant.name));
                format!("NOTHING | | {}", error.to_string().lines().next().unwrap_or_default())
            }
        };
        let row = format!("| {} | {} | {row} | {} |", mutant.rule, mutant.name, mutant.note);
        println!("{row}");
        writeln!(table, "{row}").unwrap();
    }
    println!("\n| rule | mutant | caught by | took | complaint | note |\n|---|---|---|---|---|---|\n{table}");
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), mutants.len(), wrong.join("\n"));
}
