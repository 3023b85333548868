//! The figures, what they should be, and the file that they end in.

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use leasehold_bench_machine::{Bound, Machine, Watch, judgement, rounded};
use serde_json::{Map, Value, json};

/// What was measured so far, and on what.
pub(crate) struct Figures {
    machine: Machine,
    rows: Vec<Row>,
    servers: Map<String, Value>,
    parts: Map<String, Value>,
}

struct Row {
    name: String,
    value: f64,
    target: Target,
}

/// What a figure should be.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    None,
    AtMost(f64),
    AtLeast(f64),
}

impl Figures {
    /// Looks at the machine, and prints the head of the figures.
    pub(crate) fn begin() -> Self {
        let machine = Machine::here(Path::new(env!("CARGO_MANIFEST_DIR")));
        println!("{machine}\n\n{:<48} {:>12}   goal", "native", "measured");
        Self { machine, rows: Vec::new(), servers: Map::new(), parts: Map::new() }
    }

    /// Measures a part and judges it, unless other programs took too much of the processors meanwhile.
    pub(crate) fn part(self, name: &str, measure: impl FnOnce(Self) -> Self) -> Self {
        println!("-- {name}");
        let (watch, first) = (Watch::begin(), self.rows.len());
        let mut measured = measure(self);
        let others = watch.and_then(|watch| watch.others());
        println!("-- {}\n", measured.judged(name, first, others));
        measured.parts.insert(name.into(), json!({ "processors_taken_by_others": others.map(rounded) }));
        measured
    }

    /// Notes a figure, whose name ends in its unit, and prints it with its goal.
    pub(crate) fn add(&mut self, name: impl Into<String>, value: f64, target: Target) {
        let (name, goal) = (name.into(), target.bound().map(|bound| bound.to_string()).unwrap_or_default());
        println!("{}", format!("{name:<48} {value:>12.3}   {goal}").trim_end());
        self.rows.push(Row { name, value, target });
    }

    /// Notes the version of a store's engine, and prints it.
    pub(crate) fn server(&mut self, name: &str, version: String) {
        println!("   {name} {version}");
        self.servers.insert(name.into(), version.into());
    }

    /// The verdict on the rows from this one on.
    fn judged(&self, part: &str, first: usize, others: Option<f64>) -> String {
        let rows = self.rows[first..].iter();
        let goals: Vec<_> = rows.filter_map(|row| Some((&*row.name, row.value, row.target.bound()?))).collect();
        judgement(part, others, &goals)
    }

    /// Writes all figures into a file, in order, and under `run` what they were measured on.
    pub(crate) fn write(&self) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench");
        let written = fs::create_dir_all(&folder).and_then(|()| fs::write(folder.join("native.json"), self.json()));
        written.expect("target/bench can be written");
    }

    fn json(&self) -> String {
        let Self { machine, rows, servers, parts } = self;
        let mut json = String::from("{");
        for Row { name, value, .. } in rows {
            let _ = write!(json, "\n  \"{name}\": {value:.3},");
        }
        let run = json!({ "machine": machine.facts(), "servers": servers, "parts": parts });
        let _ = write!(json, "\n  \"run\": {}\n}}\n", format!("{run:#}").replace('\n', "\n  "));
        json
    }
}

impl Target {
    const fn bound(self) -> Option<Bound> {
        match self {
            Self::None => None,
            Self::AtMost(limit) => Some(Bound::AtMost(limit)),
            Self::AtLeast(limit) => Some(Bound::AtLeast(limit)),
        }
    }
}

pub(crate) fn now() -> Instant {
    Instant::now()
}

pub(crate) fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// A count as a figure.
pub(crate) fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).expect("nothing here is counted beyond four thousand million"))
}

pub(crate) fn percentile(samples: &mut [f64], percent: usize) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[(samples.len() - 1) * percent / 100]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Figures {
        let measure = |mut figures: Figures| {
            figures.server("redis", "7.0".into());
            figures.add("turn_us", 1.25, Target::AtMost(1.0));
            figures.add("rival_us", 2.0, Target::None);
            figures.add("jain", 1.0, Target::AtLeast(0.99));
            figures
        };
        Figures::begin().part("turns", measure)
    }

    #[test]
    fn only_a_part_that_ran_undisturbed_is_judged() {
        let figures = measured();
        let met = figures.judged("turns", 0, Some(0.02));
        assert_eq!(
            met,
            "turns: 1 of 2 goals met; others used 2 % of the processors\n  MISSED: turn_us is 1.250, goal <= 1"
        );
        assert_eq!(figures.judged("turns", 1, None), "turns: 1 of 1 goals met");
        let busy = figures.judged("turns", 0, Some(0.5));
        assert_eq!(busy, "not judged: others used 50 % of the processors during turns; measure again without them");
    }

    #[test]
    fn the_file_has_the_figures_and_what_they_were_measured_on() {
        let json: Value = serde_json::from_str(&measured().json()).unwrap();
        assert_eq!((&json["turn_us"], &json["run"]["servers"]["redis"]), (&json!(1.25), &json!("7.0")));
        assert!(json["run"]["machine"]["commit"].is_string());
        assert!(
            json["run"]["parts"]["turns"]["processors_taken_by_others"].is_number() || cfg!(not(target_os = "linux"))
        );
    }
}
