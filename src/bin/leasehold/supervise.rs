//! A command that runs under a lease, from its start to its end.

use std::{
    ffi::OsString,
    future::pending,
    pin::{Pin, pin},
    time::Duration,
};

use futures::{
    FutureExt as _,
    future::{Either, select},
};
use leasehold::{LeaseGuard, LostReason};
use nix::sys::signal::Signal;
use tokio::time::{Instant, sleep_until};

use super::child::{Change, Child};
use super::codes::{Exit, Failure, LOST};
use super::hold::{self, LeaseChange, Rules};
use super::job;
use super::options::OnLoss;
use super::output::tell;
use super::signals::{self, Signals};
use super::stage::Gifts;
use super::terminal::Terminal;
use super::witness::LastError;

/// The variable that tells the command its token.
const TOKEN: &str = "LEASEHOLD_TOKEN";

/// How often it is looked whether the rest of a group has ended, which nobody tells.
const LOOK: Duration = Duration::from_millis(10);

/// How often to look whether the shell brought leasehold to the foreground.
const FOREGROUND: Duration = Duration::from_millis(100);

/// How often to look whether the shell of a command that is stopped is still there.
const SHELL: Duration = Duration::from_secs(1);

/// A command under a lease.
pub(crate) struct Job {
    pub(crate) key: String,
    pub(crate) url: String,
    /// What others see of the holder.
    pub(crate) info: String,
    pub(crate) command: Vec<OsString>,
    pub(crate) rules: Rules,
    /// Whether a grant and a release are told.
    pub(crate) verbose: bool,
}

/// How it ended.
pub(crate) enum Ended {
    /// By itself, or by a signal.
    Itself {
        exit: Exit,
        /// How leasehold has to end if somebody wanted it to end.
        wanted: Option<Exit>,
    },
    /// The lease was lost, and so the command was ended.
    Lost { wanted: Option<Exit> },
}

/// What wakes the supervisor up.
enum Event {
    Signal(Signal),
    Lease(LeaseChange),
    Time,
}

enum Phase {
    Works,
    /// It was told to end.
    Ends {
        kill_at: Instant,
    },
    Killed,
}

struct Supervisor<'a> {
    job: &'a Job,
    last_error: &'a LastError,
    child: Child,
    terminal: Option<Terminal>,
    phase: Phase,
    stopped: bool,
    /// When it was stopped, there was a shell that could continue it.
    has_shell: bool,
    /// It was stopped because it asked for the terminal, which another job has.
    wants_terminal: bool,
    /// An outer leasehold was asked for it since then.
    has_asked: bool,
    /// The user was told that nobody can give it the terminal.
    was_refused_terminal: bool,
    /// The signal that came last of those that ask us to end.
    signalled: Option<Signal>,
    /// How the command has ended.
    exit: Option<Exit>,
}

impl Job {
    /// Runs the command until it ends.
    pub(crate) async fn run(
        &self,
        guard: &LeaseGuard,
        last_error: &LastError,
        signals: &mut Signals,
    ) -> Result<Ended, Failure> {
        // Before the start, so that no end is missed.
        signals.listen_to_all()?;
        let mut supervisor = Supervisor::start(self, guard, last_error)?;
        let mut change = pin!(hold::next_change(guard, &self.rules, None).fuse());
        loop {
            if let Some(ended) = supervisor.look() {
                return Ok(ended);
            }
            match supervisor.next(signals, change.as_mut()).await {
                Event::Signal(Signal::SIGCHLD) => {}
                Event::Signal(signal) => supervisor.pass_on(signal),
                Event::Lease(what) => {
                    supervisor.respond_to(what);
                    if self.rules.on_loss == OnLoss::Warn && !matches!(what, LeaseChange::Lost(_)) {
                        change.set(hold::next_change(guard, &self.rules, Some(what)).fuse());
                    }
                }
                Event::Time => {
                    supervisor.kill_if_due();
                    supervisor.go_on_in_foreground();
                    supervisor.hang_up_without_shell();
                }
            }
        }
    }
}

impl<'a> Supervisor<'a> {
    fn start(job: &'a Job, guard: &LeaseGuard, last_error: &'a LastError) -> Result<Self, Failure> {
        let token = guard.token().as_u64().to_string();
        let mut terminal = Terminal::open(format!("{TOKEN}={token}"));
        let wanted = terminal.as_ref().is_some_and(Terminal::is_wanted);
        if terminal.as_ref().is_some_and(Terminal::is_ours) {
            signals::let_readers_stop()?;
        }
        let variables = [("LEASEHOLD_KEY", job.key.clone()), (TOKEN, token), ("LEASEHOLD_STORE", job.url.clone())];
        let gifts = Gifts { terminal: wanted, dies: job.rules.on_loss == OnLoss::Kill };
        let child = Child::spawn(&job.command, gifts, &variables)?;
        if let Some(terminal) = terminal.as_mut().filter(|_| wanted) {
            terminal.was_given(child.group);
        }
        Ok(Self {
            job,
            last_error,
            child,
            terminal,
            phase: Phase::Works,
            stopped: false,
            has_shell: false,
            wants_terminal: false,
            has_asked: false,
            was_refused_terminal: false,
            signalled: None,
            exit: None,
        })
    }

    /// Waits for whatever comes first.
    async fn next(&self, signals: &mut Signals, change: Pin<&mut impl Future<Output = LeaseChange>>) -> Event {
        let time = pin!(async {
            match self.wake_at() {
                Some(moment) => sleep_until(moment).await,
                None => pending().await,
            }
        });
        match select(pin!(signals.next()), select(change, time)).await {
            Either::Left((signal, _)) => Event::Signal(signal),
            Either::Right((Either::Left((change, _)), _)) => Event::Lease(change),
            Either::Right((Either::Right(_), _)) => Event::Time,
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        match self.phase {
            // The rest of the group is looked at until it is gone.
            Phase::Ends { kill_at } if self.exit.is_some() => Some(kill_at.min(Instant::now() + LOOK)),
            Phase::Ends { kill_at } => Some(kill_at),
            // A shell sends no signal when it brings a running job to the foreground, and leasehold is running.
            Phase::Works if self.wants_terminal && self.has_shell => Some(Instant::now() + FOREGROUND),
            Phase::Works if self.waits_for_shell() => Some(Instant::now() + SHELL),
            Phase::Works | Phase::Killed => None,
        }
    }

    /// Looks at what became of the command. Its end is told once the terminal is ours again.
    fn look(&mut self) -> Option<Ended> {
        while self.exit.is_none() {
            match self.child.poll()? {
                Change::Ended(exit) => self.exit = Some(exit),
                Change::Stopped(signal) => self.note_stop(signal),
                // By us, or by somebody who did not tell us.
                Change::Continued => (self.stopped, self.wants_terminal) = (false, false),
            }
        }
        let exit = self.exit?;
        let wanted = self.signalled.map(Exit::from);
        let ended = match self.phase {
            Phase::Works if self.was_interrupted(exit) => {
                Ended::Itself { exit: Exit::Interrupted, wanted: Some(Exit::Interrupted) }
            }
            Phase::Works => Ended::Itself { exit, wanted },
            Phase::Ends { .. } if self.child.group_is_left() => return None,
            Phase::Ends { .. } | Phase::Killed => Ended::Lost { wanted },
        };
        if let Some(terminal) = &mut self.terminal {
            terminal.take();
            // Who ended in another way may have set it for itself, and had no time to set it back.
            if !matches!(ended, Ended::Itself { exit: Exit::SUCCESS, .. }) {
                terminal.restore();
            }
        }
        Some(ended)
    }

    /// Whether `^C` ended the command alone: INT came from the terminal, which it had, and not through leasehold.
    fn was_interrupted(&self, exit: Exit) -> bool {
        let had_terminal = self.terminal.as_ref().is_some_and(Terminal::is_elsewhere);
        had_terminal && self.signalled.is_none() && exit == Signal::SIGINT.into()
    }

    /// The command was stopped. If it only wants the terminal, and we have it, it gets it.
    fn note_stop(&mut self, signal: Signal) {
        (self.stopped, self.has_asked) = (true, false);
        self.has_shell = job::can_be_continued();
        self.wants_terminal = self.terminal.is_some() && matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        if self.wants_terminal && self.gets_terminal() {
            return;
        }
        let ours = self.terminal.as_mut().is_some_and(Terminal::take);
        if self.wants_terminal && !ours && !self.has_shell {
            // A command that ignores HUP asks again and again. The user is told once.
            if !std::mem::replace(&mut self.was_refused_terminal, true) {
                tell("the command asks for the terminal, but there is no shell; leasehold sends it HUP and CONT");
            }
            return;
        }
        let remedy = match (ours, self.wants_terminal) {
            (true, _) => "^Z continues it, ^C ends it",
            (false, true) => "fg in its shell, or SIGCONT to leasehold, continues it",
            (false, false) => "SIGCONT to leasehold continues it",
        };
        tell(&format!("the command is stopped, and the lease of {:?} is still renewed; {remedy}", self.job.key));
    }

    fn go_on_in_foreground(&mut self) {
        if self.wants_terminal {
            self.gets_terminal();
        }
    }

    /// Whether the command gets the terminal that it asks for. If an outer leasehold has it, that one is asked: it gives the terminal to its
    /// command, and continues that. If it is not the next one, the command asks again, one leasehold further in.
    fn gets_terminal(&mut self) -> bool {
        let Some(terminal) = &self.terminal else { return false };
        if terminal.is_ours() {
            self.go_on();
            return true;
        }
        let asker = terminal.asker();
        // Asked again, it might be stopped just after it was given the terminal.
        if let Some(asker) = asker
            && !std::mem::replace(&mut self.has_asked, true)
        {
            signals::ask_for_terminal(asker);
        }
        asker.is_some()
    }

    /// When the shell of a stopped job ends, the kernel sends the job HUP and CONT, because nobody could continue it. Here the kernel sends
    /// nothing, because only the command is stopped, and leasehold runs. So leasehold sends both; else it would keep the lease for ever.
    ///
    /// If there was no shell from the start, the kernel usually answers a job that asks for the terminal with an error. But it stops the
    /// command, because its parent, leasehold, still runs. No shell will continue the command, so leasehold sends both here, too.
    fn hang_up_without_shell(&mut self) {
        if self.waits_for_shell() && !job::can_be_continued() {
            self.child.signal(Signal::SIGHUP);
            self.go_on();
        }
    }

    /// Whether it is stopped, and only a shell can be expected to continue it. If there is no shell, whoever stopped it may continue it,
    /// unless it wants the terminal.
    fn waits_for_shell(&self) -> bool {
        self.stopped && (self.has_shell || self.wants_terminal)
    }

    /// Continues the command. It gets the terminal if it had it before, or asked for it. Otherwise another process of its pipeline may
    /// need it, and the shell may have sent CONT only because that one was stopped.
    fn go_on(&mut self) {
        self.stopped = false;
        self.terminal.iter_mut().for_each(Terminal::note_the_shell);
        let wants_terminal = std::mem::take(&mut self.wants_terminal);
        if let Some(terminal) = self.terminal.as_mut().filter(|terminal| wants_terminal || terminal.was_given_once()) {
            terminal.give(self.child.group);
        }
        self.child.signal(Signal::SIGCONT);
    }

    fn pass_on(&mut self, signal: Signal) {
        match signal {
            Signal::SIGCONT => self.go_on(),
            Signal::SIGTSTP if self.stopped => self.go_on(),
            _ => {
                self.child.signal(signal);
                if signals::is_ending(signal) {
                    self.signalled = Some(signal);
                    // Who is stopped would not hear it.
                    if self.stopped {
                        self.go_on();
                    }
                }
            }
        }
    }

    /// Ends the command, or warns. Says so if the store has confirmed the lease.
    fn respond_to(&mut self, change: LeaseChange) {
        let key = &self.job.key;
        let (what, goes_on, grace) = match change {
            LeaseChange::Lost(reason) => {
                let what = format!("the lease of {key:?} is lost: {}", hold::meaning(reason));
                let what = match self.last_error.sentence() {
                    // The last error may say why the store failed for good.
                    Some(said) if matches!(reason, LostReason::StoreFailed | LostReason::StoreFull) => {
                        format!("{what} ({said})")
                    }
                    _ => what,
                };
                (what, "goes on without it".into(), self.job.rules.grace)
            }
            LeaseChange::Late(left) => {
                let why = self.last_error.or("its store does not answer in time");
                let what = format!("the lease of {key:?} cannot be renewed: {why}");
                let goes_on = if left.is_zero() {
                    "goes on, and another process may have been granted the key".into()
                } else {
                    let left_s = left.as_secs_f64();
                    format!(
                        "goes on; the lease runs out in {left_s:.1} s, and soon after, another process may be granted the key"
                    )
                };
                (what, goes_on, left.min(self.job.rules.grace))
            }
            LeaseChange::Confirmed => {
                return tell(&format!("the store has confirmed the lease of {key:?} again: it was never lost"));
            }
        };
        if self.job.rules.on_loss == OnLoss::Warn {
            return tell(&format!("{what}; the command {goes_on}"));
        }
        let kill_at = Instant::now() + grace;
        self.phase = Phase::Ends { kill_at };
        self.child.signal(Signal::SIGTERM);
        // Who is stopped would not hear it.
        self.child.signal(Signal::SIGCONT);
        tell(&format!("{what}; the command is told to end, and killed in {} s", grace.as_secs_f64()));
    }

    fn kill_if_due(&mut self) {
        if let Phase::Ends { kill_at } = self.phase
            && Instant::now() >= kill_at
        {
            self.phase = Phase::Killed;
            self.child.signal(Signal::SIGKILL);
        }
    }
}

impl Ended {
    /// How leasehold ends after it.
    pub(crate) const fn exit(&self) -> Exit {
        match self {
            Self::Itself { exit, .. } => *exit,
            Self::Lost { .. } => Exit::Code(LOST),
        }
    }
}
