//! The figures, what they should be, and the file that they end in.

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    time::{Duration, Instant},
};

/// What was measured so far.
#[derive(Default)]
pub(crate) struct Figures(Vec<(String, f64)>);

/// What a figure should be.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    None,
    AtMost(f64),
    AtLeast(f64),
}

impl Figures {
    /// Notes a figure, its unit last in its name, and prints it.
    pub(crate) fn add(&mut self, name: impl Into<String>, value: f64, target: Target) {
        if self.0.is_empty() {
            println!("{:<48} {:>12}   target", "native", "measured");
        }
        let name = name.into();
        println!("{name:<48} {value:>12.3}   {}", target.verdict(value));
        self.0.push((name, value));
    }

    /// Writes all figures down.
    pub(crate) fn write(&self) {
        let mut json = String::from("{");
        for (index, (name, value)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let _ = write!(json, "{comma}\n  \"{name}\": {value:.3}");
        }
        json.push_str("\n}\n");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench");
        let written = fs::create_dir_all(&folder).and_then(|()| fs::write(folder.join("native.json"), json));
        written.expect("target/bench can be written");
    }
}

impl Target {
    fn verdict(self, value: f64) -> String {
        match self {
            Self::None => String::new(),
            Self::AtMost(limit) => format!("≤ {limit:<6} {}", said(value <= limit)),
            Self::AtLeast(limit) => format!("≥ {limit:<6} {}", said(value >= limit)),
        }
    }
}

const fn said(is_met: bool) -> &'static str {
    if is_met { "ok" } else { "MISSED" }
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
