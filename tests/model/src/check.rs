//! Searches one configuration to the end, or to the first state that breaks a rule.

use std::fmt;

use stateright::{Checker, HasDiscoveries, Model};

use crate::{action::Action, configuration::Configuration, fair, model::World, rules::Rule, state::State, trace};

/// What a search found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The configuration's name.
    pub name: &'static str,
    /// Distinct states.
    pub states: usize,
    /// Whether that is all of them, unless something was found.
    pub to_the_end: bool,
    /// The longest way to one.
    pub depth: usize,
    /// The first thing that is wrong.
    pub finding: Option<Finding>,
}

/// A counter-example.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The rules that are broken at its end.
    pub rules: Vec<Rule>,
    /// The way there.
    pub trace: String,
}

/// Steps after which a search gives up: the table is to be searched to its end, within 8 GB of memory.
const STEP_LIMIT: usize = 60_000_000;

/// Searches a configuration.
pub fn check(configuration: &Configuration, threads: usize) -> Report {
    let world = World { configuration: configuration.clone() };
    let builder = world.clone().checker().threads(threads).finish_when(HasDiscoveries::Any);
    let checker = builder.target_state_count(STEP_LIMIT).spawn_bfs().join();
    let paths = checker.discoveries().into_values().map(stateright::Path::into_vec);
    let shortest = paths.min_by_key(Vec::len);
    Report {
        name: configuration.name,
        states: checker.unique_state_count(),
        to_the_end: checker.state_count() < STEP_LIMIT,
        depth: checker.max_depth(),
        finding: shortest.map(|path| explain(&world, &path)),
    }
}

fn explain(world: &World, path: &[(State, Option<Action>)]) -> Finding {
    let mut out = String::new();
    for (step, pair) in path.windows(2).enumerate() {
        if let [(before, Some(action)), (after, _)] = pair {
            trace::line(&mut out, step + 1, *action, before, after);
        }
    }
    let Some((last, _)) = path.last() else { return Finding { rules: Vec::new(), trace: out } };
    if last.broken.any() {
        return Finding { rules: last.broken.rules().collect(), trace: out };
    }
    let end = fair::run(world, last);
    out.push_str("     — from here on, run to rest —\n");
    let mut state = last.clone();
    state.signals.clear();
    state.writes.clear();
    for (step, action) in end.actions.iter().enumerate().take(80) {
        let before = state.clone();
        world.step(&mut state, *action);
        state.signals.clear();
        trace::line(&mut out, path.len() + step, *action, &before, &state);
    }
    Finding { rules: end.broken(), trace: out }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {} states, depth {}", self.name, self.states, self.depth)?;
        let Some(finding) = &self.finding else { return Ok(()) };
        for rule in &finding.rules {
            write!(out, "\nbroken: {rule}")?;
        }
        write!(out, "\n{}", finding.trace)
    }
}
