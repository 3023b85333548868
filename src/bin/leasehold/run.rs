//! `leasehold run`.

use leasehold::LeaseGuard;
use tokio::time::Instant;

use super::codes::{Exit, Failure};
use super::hold::Rules;
use super::options::{self, OnLoss, Run};
use super::place::{self, Patience};
use super::signals::{Call, Signals};
use super::supervise::{Ended, Job};
use super::wait::{self, Waited};
use super::witness::LastError;

/// Runs a command under a lease.
pub(crate) async fn run(mut options: Run) -> Result<Exit, Failure> {
    let (key, command) = options::parted_with_command(std::mem::take(&mut options.words))?;
    let holding = &options.holding;
    let rules = Rules::new(holding.on_loss, holding.lease, holding.grace)?;
    let info = wait::info(holding.info.as_deref(), &command);
    place::check(Some(rules.lease()), &key, &info).await?;
    let url = options.place.url()?;
    let mut signals = Signals::listen_to_wait()?;
    let job = Job { key: &key, url: &url, info: &info, command: &command, rules };
    let (begun, mut patience) = (Instant::now(), options.waiting.wait.into());
    loop {
        match attempt(&job, &options, begun, patience, &mut signals).await {
            Ok(Attempt::Over(exit)) => return Ok(exit),
            Ok(Attempt::Interrupted) => {}
            Err(failure) if failure.is_gone => wait::open_another(&failure, options.waiting.quiet).await,
            Err(failure) => return Err(failure),
        }
        patience = patience.after_success(&options.waiting);
    }
}

enum Attempt {
    Over(Exit),
    /// TSTP came: the waiter left the queue and the store, and then this process was stopped and continued.
    Interrupted,
}

async fn attempt(
    job: &Job<'_>,
    options: &Run,
    begun: Instant,
    patience: Patience,
    signals: &mut Signals,
) -> Result<Attempt, Failure> {
    options.place.make_folder(job.url)?;
    let opened = place::open_in_time(job.url, job.rules.lease(), begun, patience, signals).await?;
    let mode = options.mode();
    let request = || opened.leases.lock(job.key).mode(mode).info(job.info);
    let asked = options.waiting.ask(&opened, job.key, mode, request);
    let notice = (!options.waiting.quiet).then_some(job.key);
    let ended = match wait::wait(&opened, asked, signals, notice).await {
        Ok(Waited::Granted(guard)) => {
            job.run_and_release(guard, &opened.last_error, signals).await.map(|ended| Attempt::Over(ended.exit()))
        }
        Ok(Waited::Taken) => Ok(Attempt::Over(options.waiting.refused())),
        Ok(Waited::Called(Call::End(signal))) => Ok(Attempt::Over(signal.into())),
        Ok(Waited::Called(Call::Stop)) => {
            let ended = opened.leave_and_stop(signals).await;
            return Ok(ended.map_or(Attempt::Interrupted, |signal| Attempt::Over(signal.into())));
        }
        Err(failure) => Err(failure),
    };
    opened.leave().await;
    ended
}

impl Job<'_> {
    /// Runs the command, and gives the lease back however it ended.
    pub(crate) async fn run_and_release(
        &self,
        guard: LeaseGuard,
        last_error: &LastError,
        signals: &mut Signals,
    ) -> Result<Ended, Failure> {
        let ended = self.run(&guard, last_error, signals).await;
        let held = match ended {
            // It has been told already.
            Ok(Ended::Lost { .. }) => false,
            _ => wait::release(&guard, signals).await,
        };
        match ended? {
            Ended::Itself { wanted, .. } if !held && self.rules.on_loss == OnLoss::Kill => Ok(Ended::Lost { wanted }),
            ended => Ok(ended),
        }
    }
}
