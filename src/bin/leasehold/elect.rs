//! `leasehold elect`.

use leasehold::Mode;
use tokio::time::Instant;

use super::codes::{Exit, Failure};
use super::options::{self, Elect};
use super::output::tell;
use super::place::{self, Opened, Patience};
use super::run::Turn;
use super::signals::Signals;
use super::supervise::{Ended, Job};
use super::wait;

/// Runs a command whenever this process is elected.
pub(crate) async fn elect(mut options: Elect) -> Result<Exit, Failure> {
    let words = options::parted_with_command(std::mem::take(&mut options.words))?;
    let job = Job::read(words, &options.holding, &options.place).await?;
    let mut signals = Signals::listen_to_wait()?;
    let mut patience = Patience::from(options.waiting.wait);
    let (mut begun, mut store) = (Instant::now(), None);
    loop {
        match term(&job, &options, begun, &mut patience, &mut store, &mut signals).await {
            Ok(Turn::Ran(Ended::Lost { wanted: None })) => {
                tell(&format!("the leadership of {:?} was lost; campaigning again", job.key));
            }
            Ok(Turn::Ran(Ended::Lost { wanted: Some(exit) } | Ended::Itself { exit, .. }) | Turn::Over(exit)) => {
                return Ok(exit);
            }
            // The same campaign goes on.
            Ok(Turn::Interrupted) => continue,
            // The same campaign goes on in the store that is there now.
            Err(failure) if failure.is_gone => {
                wait::open_another(&failure, options.waiting.quiet).await;
                continue;
            }
            // A store that has been open before is waited for.
            Err(failure) if failure.may_pass && matches!(patience, Patience::Forever) => {
                tell(&format!("{}; campaigning again", failure.sentence));
            }
            Err(failure) => return Err(failure),
        }
        begun = Instant::now();
    }
}

/// One campaign, and what follows. After a loss the store stays open for the next one: the same manager knows of the lease that it had, and
/// ends it as soon as the store answers. Another manager would wait until that lease has expired.
async fn term(
    job: &Job,
    options: &Elect,
    begun: Instant,
    patience: &mut Patience,
    store: &mut Option<Opened>,
    signals: &mut Signals,
) -> Result<Turn, Failure> {
    let opened = match store.take() {
        Some(opened) => Opened { took: begun.elapsed(), ..opened },
        None => {
            options.place.make_folder(&job.url)?;
            place::open_in_time(&job.url, job.rules.lease(), begun, *patience, signals).await?
        }
    };
    *patience = patience.after_success(&options.waiting);
    let turn = job.take_turn(&opened, Mode::Exclusive, &options.waiting, signals).await;
    match turn {
        Ok(Turn::Ran(Ended::Lost { wanted: None })) => *store = Some(opened),
        Ok(Turn::Interrupted) => {
            let ended = opened.leave_and_stop(signals).await;
            return Ok(ended.map_or(Turn::Interrupted, |signal| Turn::Over(signal.into())));
        }
        _ => opened.leave().await,
    }
    turn
}
