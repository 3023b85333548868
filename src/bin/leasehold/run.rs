//! `leasehold run`.

use leasehold::{AcquireError, LeaseGuard, LeaseRequest};

use super::codes::{Exit, Failure};
use super::hold::Rules;
use super::options::{self, OnLoss, Run};
use super::place;
use super::signals::Signals;
use super::supervise::{Ended, Job};
use super::wait::{self, Waited};

/// Runs a command under a lease.
pub(crate) async fn run(mut options: Run) -> Result<Exit, Failure> {
    let (key, command) = options::parted_with_command(std::mem::take(&mut options.words))?;
    let holding = &options.holding;
    let rules = Rules::new(holding.on_loss, holding.lease, holding.grace)?;
    let url = options.place.url()?;
    let mut signals = Signals::listen()?;
    let leases = place::open(&url, Some(rules.lease())).await?;
    let request = leases.lock(&key).mode(options.mode()).info(wait::info(holding.info.as_deref(), &command));
    let notice = (!options.quiet).then_some(&*key);
    let job = Job { key: &key, url: &url, command: &command, rules };
    let waited = wait::wait(&leases, asked(request, &options), &mut signals, notice).await;
    let code = match waited {
        Ok(Waited::Granted(guard)) => job.run_and_release(guard, &mut signals).await.map(|ended| ended.exit()),
        Ok(Waited::Taken) => Ok(Exit::Code(options.conflict_exit_code)),
        Ok(Waited::Signalled(signal)) => Ok(signal.into()),
        Err(failure) => Err(failure),
    };
    wait::close(&leases).await;
    code
}

async fn asked(request: LeaseRequest, options: &Run) -> Result<Option<LeaseGuard>, AcquireError> {
    match options.wait {
        _ if options.nonblock => request.try_acquire().await,
        Some(limit) => request.timeout(limit).acquire().await.map(Some),
        None => request.acquire().await.map(Some),
    }
}

impl Job<'_> {
    /// Runs the command, and gives the lease back however it ended.
    pub(crate) async fn run_and_release(&self, guard: LeaseGuard, signals: &mut Signals) -> Result<Ended, Failure> {
        let ended = self.run(&guard, signals).await;
        let held = match ended {
            // It has been told already.
            Ok(Ended::Lost { .. }) => false,
            _ => wait::release(&guard, signals).await,
        };
        match ended? {
            Ended::Itself(_) if !held && self.rules.on_loss == OnLoss::Kill => Ok(Ended::Lost { signalled: None }),
            ended => Ok(ended),
        }
    }
}
