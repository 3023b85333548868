//! The command line: runs commands under leases, and shows who holds what.
//!
//! It is a room above the library and uses only its public API. `leasehold --help` is its manual.

mod bench;
mod child;
mod codes;
mod completions;
mod elect;
mod hold;
mod job;
mod json;
mod life;
mod manual;
mod mask;
mod options;
mod output;
mod place;
mod run;
mod show;
mod signals;
mod stage;
mod steal;
mod supervise;
mod table;
mod terminal;
mod wait;
mod watch;
mod witness;

use std::{os::unix::net::UnixStream, process::ExitCode};

use clap::Parser;

use codes::{Exit, Failure};
use options::{Cli, Order};
use output::{finish, tell};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    let outcome = match stage::wanted(&arguments) {
        Some(wanted) => wanted.enter(),
        None => start(),
    };
    let exit = outcome.unwrap_or_else(|failure| {
        tell(&failure.sentence);
        failure.exit
    });
    finish();
    stage::end_by_signal(exit);
    ExitCode::from(exit.code())
}

fn start() -> Result<Exit, Failure> {
    terminal::let_us_write()?;
    mask::let_us_hear()?;
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return options::told(&error),
    };
    let runtime = spare_descriptors().and_then(|()| tokio::runtime::Builder::new_current_thread().enable_all().build());
    let runtime = runtime.map_err(|why| {
        Failure::system(format!("the runtime cannot start: {why}; allow this process more open files, by ulimit -n"))
    })?;
    let outcome = runtime.block_on(obey(cli.order));
    // A name that is still being looked up must not keep this process from ending.
    runtime.shutdown_background();
    outcome
}

/// Fails if the runtime could not open all that it needs. For some of that, tokio panics.
fn spare_descriptors() -> std::io::Result<()> {
    const PAIRS: usize = 4;
    let pairs: std::io::Result<Vec<_>> = (0..PAIRS).map(|_| UnixStream::pair()).collect();
    pairs.map(drop)
}

async fn obey(order: Order) -> Result<Exit, Failure> {
    match order {
        Order::Run(options) => run::run(options).await,
        Order::List(options) => show::list(&options).await,
        Order::Status(options) => show::status(&options).await,
        Order::Watch(options) => watch::watch(&options).await,
        Order::Steal(options) => steal::steal(options).await,
        Order::Elect(options) => elect::elect(options).await,
        Order::Bench(options) => bench::bench(&options).await,
        Order::Completions { shell } => completions::completions(shell),
        Order::Man => manual::man(),
    }
}
