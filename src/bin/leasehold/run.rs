//! `leasehold run`.

use std::ffi::OsString;

use leasehold::{LeaseGuard, Mode};
use tokio::time::Instant;

use super::codes::{Exit, Failure};
use super::hold::Rules;
use super::options::{self, Holding, OnLoss, Place, Run, Waiting};
use super::output::tell;
use super::place::{self, Opened, Patience};
use super::signals::{Call, Signals};
use super::supervise::{Ended, Job};
use super::wait::{self, Released, Waited};
use super::witness::LastError;

/// Runs a command under a lease.
pub(crate) async fn run(mut options: Run) -> Result<Exit, Failure> {
    let words = options::parted_with_command(std::mem::take(&mut options.words))?;
    let job = Job::read(words, &options.holding, &options.place).await?;
    let mut signals = Signals::listen_to_wait()?;
    let (begun, mut patience) = (Instant::now(), options.waiting.wait.into());
    loop {
        match attempt(&job, &options, begun, patience, &mut signals).await {
            Ok(Turn::Ran(ended)) => return Ok(ended.exit()),
            Ok(Turn::Over(exit)) => return Ok(exit),
            Ok(Turn::Interrupted) => {}
            Err(failure) if failure.is_gone => wait::open_another(&failure, options.waiting.quiet).await,
            Err(failure) => return Err(failure),
        }
        patience = patience.after_success(&options.waiting);
    }
}

/// The outcome of a wait for the lease.
pub(crate) enum Turn {
    /// It was granted, and the command ran.
    Ran(Ended),
    /// It was not granted, and leasehold ends.
    Over(Exit),
    /// TSTP came: the waiter leaves the queue and the store, and then this process is stopped and continued.
    Interrupted,
}

async fn attempt(
    job: &Job,
    options: &Run,
    begun: Instant,
    patience: Patience,
    signals: &mut Signals,
) -> Result<Turn, Failure> {
    options.place.make_folder(&job.url)?;
    let opened = place::open_in_time(&job.url, job.rules.lease(), begun, patience, signals).await?;
    let turn = job.take_turn(&opened, options.mode(), &options.waiting, signals).await;
    if matches!(turn, Ok(Turn::Interrupted)) {
        let ended = opened.leave_and_stop(signals).await;
        return Ok(ended.map_or(Turn::Interrupted, |signal| Turn::Over(signal.into())));
    }
    opened.leave().await;
    turn
}

impl Job {
    /// Checks what is to be done as far as that is possible without the store.
    pub(crate) async fn read(
        (key, command): (String, Vec<OsString>),
        holding: &Holding,
        place: &Place,
    ) -> Result<Self, Failure> {
        let rules = Rules::new(holding.on_loss, holding.lease, holding.grace)?;
        let info = wait::info(holding.info.as_deref(), &command);
        place::check(Some(rules.lease()), &key, &info).await?;
        Ok(Self { url: place.url()?, key, info, command, rules, verbose: holding.verbose })
    }

    /// Waits for the lease, and runs the command under it.
    pub(crate) async fn take_turn(
        &self,
        opened: &Opened,
        mode: Mode,
        waiting: &Waiting,
        signals: &mut Signals,
    ) -> Result<Turn, Failure> {
        let request = || opened.leases.lock(&self.key).mode(mode).info(&self.info);
        let asked = waiting.ask(opened, &self.key, mode, request);
        let notice = (!waiting.quiet).then_some(self.key.as_str());
        match wait::wait(opened, asked, signals, notice).await? {
            Waited::Granted(guard) => self.run_and_release(guard, &opened.last_error, signals).await.map(Turn::Ran),
            Waited::Called(Call::End(signal)) => Ok(Turn::Over(signal.into())),
            Waited::Called(Call::Stop) => Ok(Turn::Interrupted),
            Waited::Taken => Ok(Turn::Over(waiting.refused())),
        }
    }

    /// Runs the command, and releases the lease however the command ended.
    pub(crate) async fn run_and_release(
        &self,
        guard: LeaseGuard,
        last_error: &LastError,
        signals: &mut Signals,
    ) -> Result<Ended, Failure> {
        let since = Instant::now();
        if self.verbose {
            tell(&format!("the lease of {:?} is granted, with token {}", self.key, guard.token()));
        }
        let ended = self.run(&guard, last_error, signals).await;
        let released = match ended {
            // The loss has been reported already.
            Ok(Ended::Lost { .. }) => Released::Lost,
            _ => wait::release(&guard, signals).await,
        };
        if self.verbose && released == Released::Held {
            tell(&format!("the lease of {:?} is released, after {:.3} s", self.key, since.elapsed().as_secs_f64()));
        }
        match ended? {
            Ended::Itself { wanted, .. } if released == Released::Lost && self.rules.on_loss == OnLoss::Kill => {
                Ok(Ended::Lost { wanted })
            }
            ended => Ok(ended),
        }
    }
}
