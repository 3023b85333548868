//! `leasehold steal`.

use leasehold::LeaseStatus;
use tokio::time::Instant;

use super::codes::{Exit, Failure};
use super::json;
use super::life::Eyes;
use super::options::{self, Steal};
use super::output::{print_until_signal, tell};
use super::place::{self, Patience};
use super::show;
use super::signals::{Call, Signals};
use super::supervise::Job;
use super::wait::{self, Waited, named};

/// Takes a key from whoever holds it.
pub(crate) async fn steal(mut options: Steal) -> Result<Exit, Failure> {
    let words = options::parted(std::mem::take(&mut options.words))?;
    if options.json && !words.1.is_empty() {
        return Err(Failure::usage(
            "steal takes --json only without a command, because both would write to the same output; leave one of them out",
        ));
    }
    let job = Job::read(words, &options.holding, &options.place).await?;
    options.place.make_folder(&job.url)?;
    let mut signals = Signals::listen_to_wait()?;
    // Whom it robs is known only once.
    signals.put_off_stops();
    let opened = place::open_in_time(&job.url, job.rules.lease(), Instant::now(), Patience::Once, &mut signals).await?;
    let leases = &opened.leases;
    let request = leases.lock(&job.key).info(&job.info);
    let mut previous = String::new();
    let asked = async {
        // Afterwards nothing is known of a victim.
        let before = leases.status(&job.key).await?;
        previous = if options.json { as_json(&before, &opened.eyes) } else { sentence(&job.key, &before) };
        request.steal().await.map(Some)
    };
    let waited = wait::wait(&opened, asked, &mut signals, None).await;
    let exit = match waited {
        Ok(Waited::Granted(guard)) if job.command.is_empty() => {
            wait::release(&guard, &mut signals).await;
            print_until_signal(previous + "\n", &mut signals).await
        }
        Ok(Waited::Granted(guard)) => {
            tell(&previous);
            job.run_and_release(guard, &opened.last_error, &mut signals).await.map(|ended| ended.exit())
        }
        Ok(Waited::Called(Call::End(signal))) => Ok(signal.into()),
        // Neither comes of a theft that puts off stops.
        Ok(Waited::Taken | Waited::Called(Call::Stop)) => Ok(Exit::NOT_ACQUIRED),
        Err(failure) => Err(failure),
    };
    wait::close(leases).await;
    exit
}

fn as_json(before: &LeaseStatus, eyes: &Eyes) -> String {
    json::object(&[
        ("key", json::string(before.key.as_str())),
        ("previous_holders", show::holders_as_json(before, eyes)),
    ])
}

fn sentence(key: &str, before: &LeaseStatus) -> String {
    let victims: Vec<_> = before
        .holders
        .iter()
        .map(|holder| {
            format!(
                "{} ({}, token {})",
                named(holder.holder, &holder.instance, &holder.info),
                holder.mode.name(),
                holder.token.as_u64()
            )
        })
        .collect();
    if victims.is_empty() {
        return format!("nobody held {key:?}");
    }
    format!("took {key:?} from {}", victims.join(", and from "))
}
