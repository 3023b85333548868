//! How safe a lease is, and how long a command may take to end.

use std::{pin::pin, time::Duration};

use futures::future::{Either, select};
use leasehold::{LeaseGuard, LostReason};
use tokio::time::{sleep, timeout};

use super::codes::Failure;
use super::options::OnLoss;

/// What happens to a command whose lease is lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) on_loss: OnLoss,
    /// The time from TERM to KILL.
    pub(crate) grace: Duration,
    /// How long the store has to confirm a lease that nears its end.
    probe: Duration,
    lease: Duration,
}

/// The defaults of a lease, as docs/choose-times.md has them.
const LONGEST_STORE_TIMEOUT: Duration = Duration::from_secs(5);
const LEAST_MARGIN: Duration = Duration::from_millis(100);
const LONGEST_GRACE: Duration = Duration::from_secs(5);
const LONGEST_PROBE: Duration = Duration::from_secs(1);

impl Rules {
    /// Checks that the grace fits: a lease whose heartbeats arrive never has less left than grace and probe, even if
    /// one takes as long as it may.
    pub(crate) fn new(on_loss: OnLoss, lease: Duration, grace: Option<Duration>) -> Result<Self, Failure> {
        let probe = (lease / 8).min(LONGEST_PROBE);
        let margin = (lease / 10).max(LEAST_MARGIN);
        let spent = margin + lease / 4 + (lease / 4).min(LONGEST_STORE_TIMEOUT) + probe;
        let longest = lease.saturating_sub(spent);
        // The default fits every lease.
        if let Some(grace) = grace.filter(|grace| on_loss == OnLoss::Kill && *grace > longest) {
            return Err(Failure::usage(format!(
                "a grace of {} s does not fit a lease of {} s, within which it may be {} s at most; \
                 shorten it, or lengthen the lease",
                grace.as_secs_f64(),
                lease.as_secs_f64(),
                longest.as_secs_f64(),
            )));
        }
        let grace = grace.unwrap_or_else(|| (lease / 4).min(LONGEST_GRACE));
        Ok(Self { on_loss, grace, probe, lease })
    }

    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    /// A lease with no more than this left counts as late. A command that is not ended needs no time to end, but the warning comes only after
    /// the store had one more chance to answer.
    fn enough(&self) -> Duration {
        match self.on_loss {
            OnLoss::Kill => self.grace + self.probe,
            OnLoss::Warn => self.probe * 2,
        }
    }
}

/// What has become of a lease.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LeaseChange {
    /// It is lost.
    Lost(LostReason),
    /// It cannot be renewed, and runs out after this span.
    Late(Duration),
    /// It was late, and the store has confirmed it.
    Confirmed,
}

/// Waits for the next change of a lease, given the last one. With `--on-loss kill`, `Late` comes early enough for KILL to precede the
/// lease's end.
pub(crate) async fn next_change(guard: &LeaseGuard, rules: &Rules, last: Option<LeaseChange>) -> LeaseChange {
    let change = async {
        match last {
            Some(LeaseChange::Late(_)) => confirmed(guard, rules).await,
            _ => LeaseChange::Late(late(guard, rules).await),
        }
    };
    match select(pin!(guard.lost()), pin!(change)).await {
        Either::Left((reason, _)) => LeaseChange::Lost(reason),
        Either::Right((change, _)) => change,
    }
}

async fn confirmed(guard: &LeaseGuard, rules: &Rules) -> LeaseChange {
    while guard.remaining() <= rules.enough() {
        sleep(rules.probe).await;
    }
    LeaseChange::Confirmed
}

/// Waits until the lease can neither be renewed nor confirmed; how long it has left then.
async fn late(guard: &LeaseGuard, rules: &Rules) -> Duration {
    loop {
        let left = guard.remaining();
        if left > rules.enough() {
            sleep(left - rules.enough()).await;
            continue;
        }
        // After a pause of this process a heartbeat is only overdue. A lease in doubt, of which nothing is left, has
        // the grace to be confirmed.
        let limit = if left.is_zero() { rules.grace.max(rules.probe) } else { rules.probe };
        // The answer does not matter: what is left of the lease tells whether it was confirmed.
        let _ = timeout(limit, guard.verify()).await;
        if guard.remaining() <= rules.enough() {
            return guard.remaining();
        }
    }
}

/// What the loss is, for people.
pub(crate) const fn meaning(reason: LostReason) -> &'static str {
    match reason {
        LostReason::Expired => "it could not be renewed in time",
        LostReason::Stolen => "another process stole it",
        LostReason::Evicted => {
            "another process considered this one dead and ended its session, or somebody deleted the session's row"
        }
        LostReason::StoreCleared => "its store was cleared",
        LostReason::StoreFailed => "its store failed or was deleted",
        LostReason::StoreFull => "its store is full",
        LostReason::FormatTooNew => "a newer version of leasehold rewrote its record",
        _ => "it was given up",
    }
}
