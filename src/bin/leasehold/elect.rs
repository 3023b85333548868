//! `leasehold elect`.

use super::codes::{Exit, Failure, tell};
use super::hold::Rules;
use super::options::{self, Elect, OnLoss};
use super::place;
use super::signals::Signals;
use super::supervise::{Ended, Job};
use super::wait::{self, Waited};

/// Runs a command whenever this process is elected.
pub(crate) async fn elect(mut options: Elect) -> Result<Exit, Failure> {
    let (key, command) = options::parted_with_command(std::mem::take(&mut options.words))?;
    let rules = Rules::new(OnLoss::Kill, options.lease, options.grace)?;
    let url = options.place.url()?;
    let mut signals = Signals::listen()?;
    let job = Job { key: &key, url: &url, command: &command, rules };
    loop {
        match term(&job, &options, &mut signals).await? {
            Term::Lost => tell(&format!("the lead of {key:?} was lost; campaigning again")),
            Term::Over(exit) => return Ok(exit),
        }
    }
}

enum Term {
    Lost,
    Over(Exit),
}

/// One campaign, and what follows. Each opens the store anew: it may have been replaced.
async fn term(job: &Job<'_>, options: &Elect, signals: &mut Signals) -> Result<Term, Failure> {
    let leases = place::open(job.url, Some(job.rules.lease())).await?;
    let request = leases.lock(job.key).info(wait::info(options.info.as_deref(), job.command));
    let asked = async { request.acquire().await.map(Some) };
    let notice = (!options.quiet).then_some(job.key);
    let code = match wait::wait(&leases, asked, signals, notice).await {
        Ok(Waited::Granted(guard)) => match job.run_and_release(guard, signals).await {
            Ok(Ended::Lost { signalled: None }) => Ok(Term::Lost),
            Ok(Ended::Lost { signalled: Some(signal) }) => Ok(Term::Over(signal.into())),
            Ok(Ended::Itself(exit)) => Ok(Term::Over(exit)),
            Err(failure) => Err(failure),
        },
        Ok(Waited::Signalled(signal)) => Ok(Term::Over(signal.into())),
        Ok(Waited::Taken) => Ok(Term::Over(Exit::NOT_ACQUIRED)),
        Err(failure) => Err(failure),
    };
    wait::close(&leases).await;
    code
}
