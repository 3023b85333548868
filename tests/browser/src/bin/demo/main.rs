//! `demo` serves the page and prints its address. `demo --check` drives two real tabs through it, and ends.

mod check;

use std::{env, process::ExitCode};

use anyhow::Context as _;
use leasehold_browser_tests::Server;

/// The first port that is tried, and how many after it.
const PORTS: std::ops::Range<u16> = 8080..8100;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => serve(),
        ["--check"] => check::run(),
        _ => Err(anyhow::anyhow!("usage: demo [--check]")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> anyhow::Result<()> {
    let server = PORTS.map(Server::listen).find_map(Result::ok);
    let server = server.with_context(|| format!("all ports from {} to {} are taken", PORTS.start, PORTS.end - 1))?;
    println!("Open {} in two tabs. Ctrl-C ends this.", server.url("/"));
    server.run();
    Ok(())
}
