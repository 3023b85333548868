//! `leasehold run`.

use leasehold::LeaseGuard;

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
    let url = options.place.url_to_write()?;
    let mut signals = Signals::listen()?;
    let opened = place::open_in_time(&url, rules.lease(), options.waiting.wait.into(), &mut signals).await?;
    let mode = options.mode();
    let info = wait::info(holding.info.as_deref(), &command);
    let request = || opened.leases.lock(&key).mode(mode).info(&info);
    let job = Job { key: &key, url: &url, command: &command, rules };
    let asked = options.waiting.ask(&opened, &key, mode, request);
    let notice = (!options.waiting.quiet).then_some(&*key);
    let exit = match wait::wait(&opened, asked, &mut signals, notice).await {
        Ok(Waited::Granted(guard)) => job.run_and_release(guard, &mut signals).await.map(|ended| ended.exit()),
        Ok(Waited::Taken) => Ok(options.waiting.refused()),
        Ok(Waited::Signalled(signal)) => Ok(signal.into()),
        Err(failure) => Err(failure),
    };
    wait::close(&opened.leases).await;
    exit
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
