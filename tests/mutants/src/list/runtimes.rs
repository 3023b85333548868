//! What a context does in a runtime that has ended, stands still, or lacks timers.

use crate::{Mutant, Suite::Tokio, edit};

const ALARM: &str = "src/driver/alarm.rs";
const EXECUTOR: &str = "src/executor/tokio.rs";
const PLACE: &str = "src/executor/tokio/place.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "liveness",
        "a context waits until the time limit for a transaction that was lost with its runtime",
        Tokio("several_runtimes::a_release_that_was_lost"),
        &[edit("src/driver/flight.rs", "            self.land(Err(StoreError::unknown(RUNTIME_ENDED)));\n", "")],
    ),
    Mutant::new(
        "liveness",
        "an alarm that is set only in the first runtime is kept although the context is used in another one",
        Tokio("several_runtimes::a_lease_is_renewed_elsewhere_although_the_request_there"),
        &[edit(ALARM, "[Some(_), None] => !has_elsewhere(),", "[Some(_), None] => true,")],
    ),
    Mutant::new(
        "liveness",
        "an alarm is kept although the runtime where it was set has ended",
        Tokio("several_runtimes::a_lease_is_renewed_in_a_third_runtime"),
        &[edit(ALARM, "[None, Some(_)] => false,", "[None, Some(_)] => true,")],
    ),
    Mutant::new(
        "liveness",
        "the other runtime in which the manager was used is forgotten when the manager is used in the first one again",
        Tokio("several_runtimes::a_lease_is_renewed_elsewhere_although_the_first_runtime_was_used_last"),
        &[edit(EXECUTOR, "            self.home.away.place()?\n", "            Arc::default()\n")],
    ),
    Mutant::new(
        "liveness",
        "a transaction is spawned in a runtime that has no timers",
        Tokio("a_guard_that_is_dropped_in_a_runtime_without_timers"),
        &[edit(
            EXECUTOR,
            "let runtime = self.here_with_timers().or_else(|| self.remembered());",
            "let runtime = self.runtime();",
        )],
    ),
    Mutant::new(
        "liveness",
        "a task that makes one request after the other keeps its thread from all other tasks",
        Tokio("cooperation::"),
        &[edit(EXECUTOR, "coop::poll_proceed(context).map(|budget| budget.made_progress())", "Poll::Ready(())")],
    ),
    Mutant::new(
        "liveness",
        "a request without an answer counts as work done",
        Tokio("cooperation::a_task_that_waits_for_many"),
        &[edit("src/client/pending.rs", "        ready!(self.answer.poll_there(context));\n", "")],
    ),
    Mutant::new(
        "cost",
        "a runtime that stands still collects a task for each alarm",
        Tokio("several_runtimes::another_runtime_that_stands_still"),
        &[edit(PLACE, "const STANDS_STILL: usize = 64;", "const STANDS_STILL: usize = 1 << 40;")],
    ),
    Mutant::new(
        "cost",
        "a manager that was dropped leaves a task behind in its runtime",
        Tokio("runtimes::a_manager_that_has_gone_leaves_no_task"),
        &[edit(PLACE, "for_each(|(_, tenant)| tenant.abort());", "for_each(drop);")],
    ),
];
