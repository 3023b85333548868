//! Named numbers, and how samples become some.

use anyhow::Context as _;
use serde_json::Value;

use crate::contestants::OLD_PREFIX;

/// Names with the unit last, and values, in the order of the table.
#[derive(Debug, Default)]
pub(crate) struct Figures(Vec<(String, f64)>);

impl Figures {
    pub(crate) fn add(&mut self, name: impl Into<String>, value: f64) {
        self.0.push((name.into(), value));
    }

    pub(crate) fn append(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Adds the ratio of the new build's figure to the old build's, for each figure of the old build.
    pub(crate) fn compare_with_old(&mut self) {
        let old = self.iter().filter_map(|(name, old)| Some((name.strip_prefix(OLD_PREFIX)?, old)));
        let ratios: Vec<_> =
            old.filter_map(|(name, old)| Some((format!("{name}_new_by_old"), self.find(name)? / old))).collect();
        self.0.extend(ratios.into_iter().filter(|(_, ratio)| ratio.is_finite()));
    }

    /// Nothing of no samples: who failed has no figure.
    pub(crate) fn percentiles(&mut self, name: &str, unit: Unit, samples: &[f64], percents: &[usize]) {
        for percent in percents {
            if let Some(value) = percentile(samples, *percent) {
                self.add(format!("{name}_p{percent}_{}", unit.name()), value * unit.per_ms());
            }
        }
    }

    /// Over the whole run, where a coarse clock matters least.
    pub(crate) fn mean(&mut self, name: &str, unit: Unit, samples: &[f64]) {
        if let Some(mean) = mean(samples) {
            self.add(format!("{name}_mean_{}", unit.name()), mean * unit.per_ms());
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<f64> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

/// What a figure is told in; samples are milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    Ms,
    Us,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Ms => "ms",
            Self::Us => "us",
        }
    }

    fn per_ms(self) -> f64 {
        match self {
            Self::Ms => 1.0,
            Self::Us => 1e3,
        }
    }
}

/// The smallest sample that this many percent of them do not exceed.
pub(crate) fn percentile(samples: &[f64], percent: usize) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

pub(crate) fn mean(samples: &[f64]) -> Option<f64> {
    (!samples.is_empty()).then(|| samples.iter().sum::<f64>() / samples.len() as f64)
}

pub(crate) fn numbers(list: &Value) -> anyhow::Result<Vec<f64>> {
    list.as_array().context("a list of samples")?.iter().map(number).collect()
}

pub(crate) fn number(value: &Value) -> anyhow::Result<f64> {
    value.as_f64().with_context(|| format!("{value} is no number"))
}
