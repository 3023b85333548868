//! `MUTANTS='rule q,rule r' cargo test -p leasehold-mutants` for some of them: by rule, or by what their names contain.

use std::{collections::BTreeSet, env, thread};

use leasehold_mutants::{Mutant, Suite, Workshop, all};

#[test]
fn every_mutant_is_caught() {
    let chosen = env::var("MUTANTS").unwrap_or_default();
    let is_chosen =
        |mutant: &Mutant| chosen.split(',').any(|chosen| mutant.rule == chosen || mutant.name.contains(chosen));
    let mutants: Vec<_> = all().into_iter().filter(is_chosen).collect();
    assert!(!mutants.is_empty(), "no mutant is called {chosen:?}");
    let workshops: BTreeSet<_> = mutants.iter().map(|mutant| mutant.caught_by.workshop()).collect();
    let (mut table, mut wrong) = (String::new(), Vec::new());
    thread::scope(|scope| {
        let work = |name| {
            let own = mutants.iter().filter(move |mutant| mutant.caught_by.workshop() == name);
            scope.spawn(move || catch(name, &own.collect::<Vec<_>>()))
        };
        let at_work: Vec<_> = workshops.into_iter().map(work).collect();
        for caught in at_work {
            let caught = caught.join().expect("it reports what goes wrong");
            table += &caught.table;
            wrong.extend(caught.wrong);
        }
    });
    println!("\n| rule | mutant | caught by | took | complaint | note |\n|---|---|---|---|---|---|\n{table}");
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), mutants.len(), wrong.join("\n"));
}

#[derive(Default)]
struct Caught {
    /// A row for each mutant.
    table: String,
    wrong: Vec<String>,
}

/// Tests mutants in a workshop of their own.
fn catch(name: &str, mutants: &[&Mutant]) -> Caught {
    let (workshop, mut caught) = (Workshop::new(name).expect("the crate can be copied"), Caught::default());
    let suites: BTreeSet<Suite> = mutants.iter().map(|mutant| mutant.caught_by).collect();
    for suite in suites {
        match workshop.run_unspoilt(suite) {
            Ok(run) => println!("{suite} passes without a mutant ({} s)", run.took.as_secs()),
            Err(error) => caught.wrong.push(format!("{error:#}")),
        }
    }
    for mutant in mutants {
        let row = match workshop.run_spoilt(mutant) {
            Ok(run) => format!("{} | {} s | {}", mutant.caught_by, run.took.as_secs(), run.complaint),
            Err(error) => {
                caught.wrong.push(format!("{}, {}: {error:#}", mutant.rule, mutant.name));
                format!("NOTHING | | {}", error.to_string().lines().next().unwrap_or_default())
            }
        };
        let row = format!("| {} | {} | {row} | {} |\n", mutant.rule, mutant.name, mutant.note);
        print!("{row}");
        caught.table += &row;
    }
    caught
}
