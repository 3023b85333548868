//! `leasehold elect`.

use leasehold::Mode;

use super::codes::{Exit, Failure, tell};
use super::hold::Rules;
use super::options::{self, Elect};
use super::place::{self, Patience};
use super::signals::Signals;
use super::supervise::{Ended, Job};
use super::wait::{self, Waited};

/// Runs a command whenever this process is elected.
pub(crate) async fn elect(mut options: Elect) -> Result<Exit, Failure> {
    let (key, command) = options::parted_with_command(std::mem::take(&mut options.words))?;
    let holding = &options.holding;
    let rules = Rules::new(holding.on_loss, holding.lease, holding.grace)?;
    let url = options.place.url()?;
    let mut signals = Signals::listen()?;
    let job = Job { key: &key, url: &url, command: &command, rules };
    let mut patience = Patience::from(options.waiting.wait);
    loop {
        match term(&job, &options, &mut patience, &mut signals).await {
            Ok(Term::Lost) => tell(&format!("the lead of {key:?} was lost; campaigning again")),
            Ok(Term::Over(exit)) => return Ok(exit),
            // A store that has been open before is waited for.
            Err(failure) if failure.may_pass && matches!(patience, Patience::Forever) => {
                tell(&format!("{}; campaigning again", failure.sentence));
            }
            Err(failure) => return Err(failure),
        }
    }
}

enum Term {
    Lost,
    Over(Exit),
}

/// One campaign, and what follows. Each opens the store anew: it may have been replaced.
async fn term(job: &Job<'_>, options: &Elect, patience: &mut Patience, signals: &mut Signals) -> Result<Term, Failure> {
    options.place.make_folder(job.url)?;
    let opened = place::open_in_time(job.url, job.rules.lease(), *patience, signals).await?;
    if matches!(patience, Patience::Once) && !options.waiting.nonblock {
        *patience = Patience::Forever;
    }
    let info = wait::info(options.holding.info.as_deref(), job.command);
    let request = || opened.leases.lock(job.key).info(&info);
    let asked = options.waiting.ask(&opened, job.key, Mode::Exclusive, request);
    let notice = (!options.waiting.quiet).then_some(job.key);
    let term = match wait::wait(&opened, asked, signals, notice).await {
        Ok(Waited::Granted(guard)) => match job.run_and_release(guard, signals).await {
            Ok(Ended::Lost { signalled: None }) => Ok(Term::Lost),
            Ok(Ended::Lost { signalled: Some(signal) }) => Ok(Term::Over(signal.into())),
            Ok(Ended::Itself(exit)) => Ok(Term::Over(exit)),
            Err(failure) => Err(failure),
        },
        Ok(Waited::Signalled(signal)) => Ok(Term::Over(signal.into())),
        Ok(Waited::Taken) => Ok(Term::Over(options.waiting.refused())),
        Err(failure) => Err(failure),
    };
    wait::close(&opened.leases).await;
    term
}
