//! What a figure should be, and when that is judged.

use std::fmt;

use crate::percent;

/// If other programs take more than this share of the processors' time, they slow down what is measured, and the figures are not judged.
const MOST_BUSY: f64 = 0.1;

/// What a figure should be at most, or at least.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// The figure is a cost.
    AtMost(f64),
    /// The figure is a merit.
    AtLeast(f64),
}

impl Bound {
    /// The verdict on a figure.
    #[must_use]
    pub fn verdict(self, value: f64) -> &'static str {
        if self.is_met(value) { "ok" } else { "MISSED" }
    }

    /// The sign to print between a figure and its limit.
    #[must_use]
    pub const fn sign(self) -> &'static str {
        match self {
            Self::AtMost(_) => "<=",
            Self::AtLeast(_) => ">=",
        }
    }

    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::AtMost(limit) | Self::AtLeast(limit)) = self;
        // At most three decimals, without trailing zeros.
        write!(text, "{} {}", self.sign(), crate::rounded(*limit))
    }
}

/// Why the figures of a part are not judged; `None` if they are. `others` is the share of the processors' time that other programs took,
/// from 0 to 1.
#[must_use]
pub fn not_judged(part: &str, others: f64) -> Option<String> {
    let words = || {
        format!(
            "not judged: others used {} of the processors during {part}; measure again without them",
            percent(others)
        )
    };
    (others > MOST_BUSY).then(words)
}

/// The verdict on those figures of a part that have a goal: how many meet it, and the names of those that miss it. `others` is `None` if
/// the system does not tell it; the figures are judged then, too.
#[must_use]
pub fn judgement(part: &str, others: Option<f64>, goals: &[(&str, f64, Bound)]) -> String {
    if let Some(reason) = others.and_then(|others| not_judged(part, others)) {
        return reason;
    }
    let missed: Vec<_> = goals.iter().filter(|(_, value, bound)| !bound.is_met(*value)).collect();
    let used = others.map_or_else(String::new, |others| format!("; others used {} of the processors", percent(others)));
    let mut said = format!("{part}: {} of {} goals met{used}", goals.len() - missed.len(), goals.len());
    for (name, value, bound) in missed {
        said += &format!("\n  MISSED: {name} is {value:.3}, goal {bound}");
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOALS: [(&str, f64, Bound); 3] = [
        ("turn_us", 1.2, Bound::AtMost(1.3)),
        ("handoff_us", 2.0, Bound::AtMost(1.5)),
        ("jain", 0.9, Bound::AtLeast(0.99)),
    ];

    #[test]
    fn a_figure_at_its_limit_meets_it() {
        for bound in [Bound::AtMost(1.3), Bound::AtLeast(1.3)] {
            assert_eq!(bound.verdict(1.3), "ok");
        }
        assert_eq!((Bound::AtMost(1.3).verdict(1.301), Bound::AtLeast(1.3).verdict(1.299)), ("MISSED", "MISSED"));
    }

    #[test]
    fn a_figure_that_is_not_a_number_meets_no_goal() {
        for bound in [Bound::AtMost(1.0), Bound::AtLeast(0.0)] {
            assert_eq!(bound.verdict(f64::NAN), "MISSED");
        }
    }

    #[test]
    fn missed_goals_are_named_with_their_limits() {
        let said = judgement("costs", Some(0.1), &GOALS);
        let head = "costs: 1 of 3 goals met; others used 10 % of the processors";
        let missed = "  MISSED: handoff_us is 2.000, goal <= 1.5\n  MISSED: jain is 0.900, goal >= 0.99";
        assert_eq!(said, format!("{head}\n{missed}"));
    }

    #[test]
    fn figures_of_a_busy_machine_are_neither_met_nor_missed() {
        let said = judgement("costs", Some(0.34), &GOALS);
        assert_eq!(said, "not judged: others used 34 % of the processors during costs; measure again without them");
        assert_eq!(not_judged("costs", 0.1), None);
    }

    #[test]
    fn figures_of_a_system_that_does_not_tell_are_judged() {
        assert_eq!(judgement("costs", None, &GOALS[..1]), "costs: 1 of 1 goals met");
    }
}
