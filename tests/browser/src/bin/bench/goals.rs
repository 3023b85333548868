//! What the figures should be, each by others of the same run.

use crate::figures::Figures;

/// One of them. None of its numbers is there where something was not measured.
struct Goal {
    what: &'static str,
    value: Option<f64>,
    bound: Bound,
    limit: Option<f64>,
    words: &'static str,
}

#[derive(Clone, Copy)]
enum Bound {
    AtMost,
    AtLeast,
}

pub(crate) fn print(engine: &str, figures: &Figures) {
    println!("\ngoals in {engine}:");
    for Goal { what, value, bound, limit, words } in costs(figures).into_iter().chain(manners(figures)) {
        let Some((value, limit)) = value.zip(limit) else {
            println!("  {what:42}        –     {words}: not measured");
            continue;
        };
        let (sign, met) = match bound {
            Bound::AtMost => ("<=", value <= limit),
            Bound::AtLeast => (">=", value >= limit),
        };
        let verdict = if met { "ok" } else { "MISSED" };
        println!("  {what:42}{value:9.3} {sign} {limit:9.3} ({words}): {verdict}");
    }
}

/// What it costs.
fn costs(figures: &Figures) -> Vec<Goal> {
    let figure = |name| figures.find(name);
    let ratio = |over, under| Some(figure(over)? / figure(under)?);
    let times = |factor: f64, name| Some(factor * figure(name)?);
    let step = figure("raw_transaction_among_handoffs_p50_ms").zip(figure("hop_p50_ms"));
    vec![
        at_least("linger hit, p50", ratio("weblocks_hit_p50_us", "linger_hit_p50_us"), 20.0, "× a Web Lock's speed"),
        at_least("linger hits per second", ratio("linger_hits_per_s", "weblocks_hits_per_s"), 20.0, "× a Web Lock's"),
        Goal {
            what: "cold acquire + release, p50",
            value: figure("cold_acquire_release_p50_ms"),
            bound: Bound::AtMost,
            limit: times(2.5, "raw_transaction_p50_ms"),
            words: "ms: 1.25 × two transactions",
        },
        Goal {
            what: "hand-off, p50",
            value: figure("handoff_p50_ms"),
            bound: Bound::AtMost,
            limit: step.map(|(transaction, hop)| 1.5 * (transaction + hop)),
            words: "ms: 1.5 × (one transaction + one hop)",
        },
        at_most("first lease, minus an empty page", figure("first_lease_beyond_page_ms"), 25.0, "ms"),
        at_most("fenced write, p50", ratio("fenced_write_p50_ms", "plain_write_p50_ms"), 1.3, "× the plain write"),
    ]
}

/// How it behaves.
fn manners(figures: &Figures) -> Vec<Goal> {
    let figure = |name| figures.find(name);
    vec![
        at_most("take-over from a closed tab, p50", figure("close_takeover_p50_ms"), 60.0, "ms"),
        at_most("take-over from a closed tab, p99", figure("close_takeover_p99_ms"), 250.0, "ms"),
        at_most("take-over from a reloaded tab, p50", figure("reload_takeover_p50_ms"), 60.0, "ms"),
        at_most("take-over from a reloaded tab, p99", figure("reload_takeover_p99_ms"), 250.0, "ms"),
        at_most("take-over from a crashed tab, p50", figure("crash_takeover_p50_ms"), 60.0, "ms"),
        at_most("take-over from a crashed tab, p99", figure("crash_takeover_p99_ms"), 250.0, "ms"),
        at_most("take-over from an ended worker, p50", figure("worker_end_takeover_p50_ms"), 60.0, "ms"),
        at_most("take-over from an ended worker, p99", figure("worker_end_takeover_p99_ms"), 250.0, "ms"),
        at_most("100 keys held", figure("hundred_keys_transactions_per_heartbeat"), 1.0, "transactions per heartbeat"),
        at_most("100 keys held: lost", figure("hundred_keys_lost"), 0.0, "keys"),
        at_most("nothing held for 10 s: transactions", figure("unused_transactions"), 0.0, "in 2 s"),
        at_most("nothing held for 10 s: timers", figure("unused_timers"), 0.0, "standing or set"),
        at_most("nothing held for 10 s: channels", figure("unused_channels"), 0.0, "open"),
        at_least("crowd: fairness", figure("crowd_fairness_index"), 0.95, "Jain's index"),
        at_most("crowd: lost updates", figure("crowd_lost_updates"), 0.0, "updates"),
    ]
}

fn at_most(what: &'static str, value: Option<f64>, limit: f64, words: &'static str) -> Goal {
    Goal { what, value, bound: Bound::AtMost, limit: Some(limit), words }
}

fn at_least(what: &'static str, value: Option<f64>, limit: f64, words: &'static str) -> Goal {
    Goal { what, value, bound: Bound::AtLeast, limit: Some(limit), words }
}
