//! The signals that reach this process.

use std::{
    fs,
    future::poll_fn,
    task::{Context, Poll},
};

use nix::sys::signal::Signal;
use tokio::signal::unix::{self, SignalKind};

use super::codes::Failure;

/// They end the wait for a lease, and are passed on to a command.
const ENDING: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];
/// They matter while a command runs. Before, they do what they always do: `^Z` stops who waits.
const WORKING: [Signal; 6] =
    [Signal::SIGCHLD, Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGTSTP, Signal::SIGCONT, Signal::SIGWINCH];

/// Signals, in place of what they would do.
pub(crate) struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
    ignored: u64,
}

impl Signals {
    /// Listens for those that end the wait.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let mut signals = Self { streams: Vec::new(), ignored: ignored() };
        signals.add(&ENDING)?;
        Ok(signals)
    }

    /// Listens for the others, too.
    pub(crate) fn listen_to_all(&mut self) -> Result<(), Failure> {
        if self.streams.iter().any(|(signal, _)| *signal == Signal::SIGCHLD) {
            return Ok(());
        }
        self.add(&WORKING)
    }

    fn add(&mut self, signals: &[Signal]) -> Result<(), Failure> {
        for signal in signals {
            let number = *signal as i32;
            // What was ignored when we were started, as nohup does it, is to stay so, for the command as well.
            if *signal != Signal::SIGCHLD && self.ignored & (1 << (number - 1)) != 0 {
                continue;
            }
            let stream = unix::signal(SignalKind::from_raw(number));
            let stream = stream.map_err(|why| Failure::system(format!("cannot listen for {signal}: {why}")))?;
            self.streams.push((*signal, stream));
        }
        Ok(())
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| self.poll(context)).await
    }

    /// The next one that ends the wait.
    pub(crate) async fn end(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if is_ending(signal) {
                return signal;
            }
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Signal> {
        for (signal, stream) in &mut self.streams {
            if let Poll::Ready(Some(())) = stream.poll_recv(context) {
                return Poll::Ready(*signal);
            }
        }
        Poll::Pending
    }
}

pub(crate) fn is_ending(signal: Signal) -> bool {
    ENDING.contains(&signal)
}

/// The signals that this process was started to ignore, as bits. Where the system does not tell, none.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
