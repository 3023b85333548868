//! What the figures should be, each by others of the same run.

use leasehold_bench_machine::{Bound, not_judged};
use leasehold_browser_tests::Engine;

use crate::{figures::Figures, report::Run};

/// One of them. None of its numbers is there where something was not measured.
struct Goal {
    what: &'static str,
    value: Option<f64>,
    bound: fn(f64) -> Bound,
    limit: Option<f64>,
    words: &'static str,
}

pub(crate) fn print(run: &Run) {
    println!("\ngoals in {}:", run.browser());
    let busiest = run.others.iter().max_by(|one, other| one.1.total_cmp(&other.1));
    if let Some(reason) = busiest.and_then(|(part, others)| not_judged(part, *others)) {
        return println!("  {reason}");
    }
    let Run { engine, figures, .. } = run;
    for Goal { what, value, bound, limit, words } in costs(*engine, figures).into_iter().chain(manners(figures)) {
        let Some((value, limit)) = value.zip(limit) else {
            println!("  {what:42}        –     {words}: not measured");
            continue;
        };
        let (sign, verdict) = (bound(limit).sign(), bound(limit).verdict(value));
        println!("  {what:42}{value:9.3} {sign} {limit:9.3} ({words}): {verdict}");
    }
}

/// What it costs.
fn costs(engine: Engine, figures: &Figures) -> Vec<Goal> {
    let figure = |name| figures.find(name);
    let ratio = |over, under| Some(figure(over)? / figure(under)?);
    let times = |factor: f64, name| Some(factor * figure(name)?);
    let below = |what, name, words, factor, other| Goal {
        what,
        value: figure(name),
        bound: Bound::AtMost,
        limit: times(factor, other),
        words,
    };
    let step = figure("raw_transaction_among_handoffs_p50_ms").zip(figure("hop_p50_ms"));
    let hit = if engine == Engine::Firefox { 10.0 } else { 20.0 };
    let cold = "cold_acquire_release_p50_ms";
    vec![
        at_least("linger hit, p50", ratio("weblocks_hit_p50_us", "linger_hit_p50_us"), hit, "× a Web Lock's speed"),
        at_least("linger hits per second", ratio("linger_hits_per_s", "weblocks_hits_per_s"), hit, "× a Web Lock's"),
        below("cold acquire + release, p50", cold, "ms: 1.15 × two transactions", 2.3, "raw_transaction_p50_ms"),
        below("cold acquire + release, p50", cold, "ms: idb-mutex's", 1.0, "idb_mutex_lock_unlock_p50_ms"),
        below("locks.request, p50", "locks_request_p50_ms", "ms: 1.1 × run", 1.1, "run_p50_ms"),
        Goal {
            what: "hand-off, p50",
            value: figure("handoff_p50_ms"),
            bound: Bound::AtMost,
            limit: step.map(|(transaction, hop)| 1.35 * (transaction + hop)),
            words: "ms: 1.35 × (one transaction + one hop)",
        },
        at_most("first lease, minus an empty page", figure("first_lease_beyond_page_ms"), 25.0, "ms"),
        at_most("fenced write, p50", ratio("fenced_write_p50_ms", "plain_write_p50_ms"), 1.25, "× the plain write"),
        at_most("crowd: a turn", ratio("crowd_turn_mean_ms", "weblocks_crowd_turn_mean_ms"), 2.0, "× Web Locks'"),
        at_most("crowd: a turn", ratio("crowd_turn_mean_ms", "idb_mutex_crowd_turn_mean_ms"), 1.0, "× idb-mutex's"),
        at_most("crowd: transactions a turn", figure("crowd_transactions_per_turn"), 2.0, "transactions"),
        at_most("large crowd: a turn", ratio("large_crowd_turn_mean_ms", "crowd_turn_mean_ms"), 1.5, "× the crowd's"),
        at_most("1,000 keys held: longest task", figure("thousand_keys_longest_task_ms"), 10.0, "ms a heartbeat"),
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
        at_least("crowd: fairness", figure("crowd_fairness_index"), 0.99, "Jain's index"),
        at_most("crowd: lost updates", figure("crowd_lost_updates"), 0.0, "updates"),
    ]
}

fn at_most(what: &'static str, value: Option<f64>, limit: f64, words: &'static str) -> Goal {
    Goal { what, value, bound: Bound::AtMost, limit: Some(limit), words }
}

fn at_least(what: &'static str, value: Option<f64>, limit: f64, words: &'static str) -> Goal {
    Goal { what, value, bound: Bound::AtLeast, limit: Some(limit), words }
}
