//! The signals that reach this process.

use std::{
    fs,
    future::{pending, poll_fn},
    pin::pin,
    task::{Context, Poll, Waker},
};

use futures::future::{Either, select};
use nix::{
    sys::signal::{Signal, kill, raise},
    unistd::{Pid, getpid},
};
use tokio::signal::unix::{self, SignalKind};

use super::codes::Failure;
use super::{job, terminal};

/// They end the wait for a lease, and are passed on to a command.
const ENDING: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];
/// They are for the command alone. By default they would end a process that waits for the lease.
const USER: [Signal; 2] = [Signal::SIGUSR1, Signal::SIGUSR2];
/// The others matter while a command runs. Before, all but TSTP do what they always do.
const WORKING: [Signal; 4] = [Signal::SIGCHLD, Signal::SIGTSTP, Signal::SIGCONT, Signal::SIGWINCH];

/// Receives signals, in place of their default actions.
pub(crate) struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
    ignored: u64,
    /// Whether this process asks for something that cannot be asked for again, so that it stops only afterwards.
    puts_off_stops: bool,
    /// TSTP came, and was put off.
    stop_is_due: bool,
}

/// What a signal asks of who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// To end.
    End(Signal),
    /// To [`stop`].
    Stop,
}

impl Signals {
    /// Listens for those that end the wait.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let mut signals = Self { streams: Vec::new(), ignored: ignored(), puts_off_stops: false, stop_is_due: false };
        signals.add(&ENDING)?;
        Ok(signals)
    }

    /// Listens for TSTP, too. If `^Z` stopped a process that asks for a lease in the midst of a transaction, nobody else could use the
    /// store. If it stopped a process in the queue, the lease would be granted to it, and nobody would use it. USR1 and USR2 are for a
    /// command that is not there yet, and are dropped.
    pub(crate) fn listen_to_wait() -> Result<Self, Failure> {
        let mut signals = Self::listen()?;
        signals.add(&USER)?;
        signals.add(&[Signal::SIGTSTP])?;
        Ok(signals)
    }

    /// From now on TSTP is kept: for the command, or until [`hear_stops`](Self::hear_stops).
    pub(crate) fn put_off_stops(&mut self) {
        self.puts_off_stops = true;
    }

    /// The end of [`put_off_stops`](Self::put_off_stops).
    pub(crate) fn hear_stops(&mut self) {
        self.puts_off_stops = false;
    }

    /// The stop that was called for is due as soon as it is asked again.
    pub(crate) fn put_off_stop(&mut self) {
        self.stop_is_due = true;
    }

    /// Listens for the others, too: the command is about to begin.
    pub(crate) fn listen_to_all(&mut self) -> Result<(), Failure> {
        self.puts_off_stops = false;
        self.drop_those_for_the_command();
        if self.streams.iter().any(|(signal, _)| *signal == Signal::SIGCHLD) {
            return Ok(());
        }
        self.add(&WORKING)
    }

    /// Those that came since the grant would end the command before it can listen to them.
    fn drop_those_for_the_command(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        for (_, stream) in self.streams.iter_mut().filter(|(signal, _)| USER.contains(signal)) {
            while let Poll::Ready(Some(())) = stream.poll_recv(&mut context) {}
        }
    }

    fn add(&mut self, signals: &[Signal]) -> Result<(), Failure> {
        for signal in signals {
            let number = *signal as i32;
            // What was ignored when we were started, as nohup does it, is to stay so, for the command as well.
            let is_ignored = *signal != Signal::SIGCHLD && self.ignored & (1 << (number - 1)) != 0;
            if is_ignored || self.streams.iter().any(|(listened, _)| listened == signal) {
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

    /// The next one that asks something of who waits.
    pub(crate) async fn call(&mut self) -> Call {
        loop {
            match self.next().await {
                Signal::SIGTSTP if job::can_be_continued() => return Call::Stop,
                signal if is_ending(signal) => return Call::End(signal),
                _ => {}
            }
        }
    }

    /// Ends if this process, which is about to [`stop`], is not to do so: with the signal that ends it, or with `None` because CONT came.
    pub(crate) async fn called_off(&mut self) -> Option<Signal> {
        let continued = async {
            match unix::signal(SignalKind::from_raw(Signal::SIGCONT as i32)) {
                Ok(mut stream) => _ = stream.recv().await,
                Err(_) => pending().await,
            }
        };
        match select(pin!(self.end()), pin!(continued)).await {
            Either::Left((signal, _)) => Some(signal),
            Either::Right(_) => None,
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Signal> {
        if !self.puts_off_stops && std::mem::take(&mut self.stop_is_due) {
            return Poll::Ready(Signal::SIGTSTP);
        }
        for (signal, stream) in &mut self.streams {
            while let Poll::Ready(Some(())) = stream.poll_recv(context) {
                if !self.puts_off_stops || *signal != Signal::SIGTSTP {
                    return Poll::Ready(*signal);
                }
                self.stop_is_due = true;
            }
        }
        Poll::Pending
    }
}

/// Lets TTIN stop the command, even if this process was started to ignore TTIN, as bash does in `$(…)`. leasehold gives the terminal to a
/// command that TTIN has stopped. A command that ignores TTIN would get an error instead when it reads from the terminal. The command
/// does not inherit the handler that is set here, so TTIN has its default action there.
pub(crate) fn let_readers_stop() -> Result<(), Failure> {
    let refused = |why| Failure::system(format!("cannot handle SIGTTIN: {why}"));
    unix::signal(SignalKind::from_raw(Signal::SIGTTIN as i32)).map(drop).map_err(refused)
}

/// Stops the asker, as the kernel stops a process that asks for a terminal of another group. Whoever started it gives it the terminal and
/// continues it. The rest of its group goes on: if the asker ignored the signal, nobody would continue the others.
pub(crate) fn ask_for_terminal(asker: Pid) {
    if asker != getpid() {
        // It fails if that one has ended, or is of another user. Then nobody can be asked.
        let _ = kill(asker, Signal::SIGTTIN);
        return;
    }
    // TTIN would not stop a process that [lets readers stop](let_readers_stop).
    terminal::let_it_stop();
    // Neither fails: the arguments are valid, and this process may signal itself.
    let _ = raise(Signal::SIGTTOU);
    let _ = terminal::let_us_write();
}

/// Stops this process, as TSTP does that nobody listens for. It returns when the process is continued.
pub(crate) fn stop() {
    // It cannot fail: the signal is valid, and this process may signal itself.
    let _ = raise(Signal::SIGSTOP);
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
