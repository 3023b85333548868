//! The options and commands.

use std::{ffi::OsString, io::Write as _, time::Duration};

use clap::{
    Args, CommandFactory as _, Parser, Subcommand, ValueEnum,
    error::{ContextKind, ContextValue, ErrorKind},
};
use clap_complete::Shell;
use leasehold::Mode;

use super::codes::{Exit, Failure, USAGE};
use super::manual;
use super::output::print;

/// Runs commands under leases: locks with a time limit, kept in a store that processes share.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, after_long_help = manual::after_help(), after_help = AFTER_SHORT_HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) order: Order,
}

const AFTER_SHORT_HELP: &str = "leasehold --help has the exit codes; leasehold man writes the manual page.";

#[derive(Debug, Subcommand)]
pub(crate) enum Order {
    Run(Run),
    List(List),
    Status(Status),
    Watch(Watch),
    Steal(Steal),
    Elect(Elect),
    Bench(Bench),
    /// Writes a completion script for a shell to stdout
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Writes the manual page to stdout: leasehold man > leasehold.1
    Man,
}

/// The choice of the store.
#[derive(Args, Debug)]
pub(crate) struct Place {
    /// The store, such as sqlite:PATH; by default LEASEHOLD_STORE, else a file in the user's state folder
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
}

/// How long a command waits for the lease.
#[derive(Args, Debug)]
pub(crate) struct Waiting {
    /// Fail at once if the key is taken
    ///
    /// If the holder has died, or may have because it was silent for longer than its lease, leasehold waits until its death is
    /// proved: for a few ms over SQLite if its process has ended, else for one and a quarter times its lease at most. It fails as soon as
    /// the holder shows that it is alive.
    #[arg(short = 'n', long, alias = "nb", conflicts_with = "wait")]
    pub(crate) nonblock: bool,
    /// Fail if the key is not granted within this many seconds
    ///
    /// This includes the time to open the store. If the holder may have died, leasehold waits longer, as with -n.
    #[arg(short, long, alias = "timeout", value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) wait: Option<Duration>,
    /// The exit code if the key is not granted: 0 to 255
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = super::codes::NOT_ACQUIRED)]
    #[arg(value_parser = exit_code, allow_negative_numbers = true)]
    pub(crate) conflict_exit_code: u8,
    /// Write no message while waiting
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// How the lease is held while a command runs.
#[derive(Args, Debug)]
pub(crate) struct Holding {
    /// What the loss of the lease does to the command
    ///
    /// kill: the command's process group gets TERM, and KILL after the grace. If the lease cannot be renewed, TERM
    /// comes early enough that KILL comes before another process can be granted the key. If the lease is stolen, or
    /// its store is deleted, another process may hold the key already. warn: leasehold only writes to stderr.
    #[arg(long, value_enum, value_name = "ACTION", default_value = "kill")]
    pub(crate) on_loss: OnLoss,
    /// How long the lease lasts without renewal
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) lease: Duration,
    /// How long the command has to end by itself when the lease is lost; by default a quarter of the lease or 5 s, whichever is shorter
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) grace: Option<Duration>,
    /// What others see of this holder; by default host, process id and command line
    #[arg(long, value_name = "TEXT")]
    pub(crate) info: Option<String>,
    /// Write to stderr when the lease is granted, and when it is released
    #[arg(long)]
    pub(crate) verbose: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLoss {
    /// End the command
    Kill,
    /// Write to stderr when the lease is lost, and when it is about to run out because it cannot be renewed
    Warn,
}

/// Waits for the lease of KEY, runs a command under it, and releases it
///
/// KEY is a name in the store, not a file as with flock. All options must come before KEY. After it come the command and its arguments,
/// which run without a shell; for a line of shell, write sh -c LINE. The command shares leasehold's standard input and output, and runs in
/// a process group of its own, to which leasehold passes on HUP, INT, QUIT, TERM, USR1 and USR2. The lease is released when the command
/// ends, even if processes that it started go on.
///
/// If leasehold itself is killed, the lease is free within a few ms over SQLite. Over a server it is free when others have seen leasehold
/// silent for as long as the lease, and a tenth more. On Linux the command is killed with it, unless --on-loss is warn; the processes that
/// the command has started, and set-user-ID programs, are not. On other systems nothing ends the command. While leasehold is stopped, it
/// cannot end the command. A command that must never act after its lease has ended should pass LEASEHOLD_TOKEN to whatever it writes to,
/// and that should refuse smaller tokens.
#[derive(Args, Debug)]
#[command(override_usage = "leasehold run [OPTIONS] KEY [--] COMMAND...")]
pub(crate) struct Run {
    /// Hold the key together with others that share it
    #[arg(short, long, conflicts_with = "exclusive")]
    shared: bool,
    /// Hold the key alone: the default
    #[arg(short = 'x', short_alias = 'e', long)]
    exclusive: bool,
    #[command(flatten)]
    pub(crate) waiting: Waiting,
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) holding: Holding,
    /// The key, a name and not a file, and the command with its arguments; -- between them may be left out
    #[arg(value_names = ["KEY", "COMMAND"], num_args = 1.., required = true, trailing_var_arg = true)]
    pub(crate) words: Vec<OsString>,
}

impl Run {
    pub(crate) fn mode(&self) -> Mode {
        if self.shared { Mode::Shared } else { Mode::Exclusive }
    }
}

/// Shows the keys that are held or waited for
///
/// EXPIRES says when the lease expires unless it is renewed, or "dead" if the holder's process has ended. A holder whose lease expired a
/// while ago may have ended, too. Once its death is proved, it no longer blocks anybody.
#[derive(Args, Debug)]
pub(crate) struct List {
    /// Only keys that begin with this
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// Shows who holds a key, and who waits for it
#[derive(Args, Debug)]
pub(crate) struct Status {
    /// The key
    pub(crate) key: String,
    /// Exit with 1 if somebody who may be alive holds the key or waits for it
    #[arg(long)]
    pub(crate) exit_code: bool,
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// Shows the keys that are held or waited for, every second; if stdout is not a terminal, the table only once
#[derive(Args, Debug)]
pub(crate) struct Watch {
    /// Only keys that begin with this
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    /// Write a line of JSON every second, in the form of list --json, until stdout is closed
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// Takes KEY from its holder, and runs a command under its lease, if one is given
///
/// The old holder learns of it at once if it is reachable, else at its next heartbeat: until then both may act.
/// Without a command the lease is released at once, to whoever waits.
#[derive(Args, Debug)]
#[command(override_usage = "leasehold steal [OPTIONS] KEY [[--] COMMAND...]")]
pub(crate) struct Steal {
    /// Write as JSON who held the key; not with a command
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) holding: Holding,
    /// The key, a name and not a file, and the command with its arguments
    #[arg(value_names = ["KEY", "COMMAND"], num_args = 1.., required = true, trailing_var_arg = true)]
    pub(crate) words: Vec<OsString>,
}

/// Runs a command whenever this process is elected: again after a loss, until the command ends by itself
///
/// -n and -w limit each campaign, including those after a loss. With --on-loss warn the command goes on after a loss, and there is
/// no other campaign.
#[derive(Args, Debug)]
#[command(override_usage = "leasehold elect [OPTIONS] KEY [--] COMMAND...")]
pub(crate) struct Elect {
    #[command(flatten)]
    pub(crate) waiting: Waiting,
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) holding: Holding,
    /// The key, a name and not a file, and the command with its arguments
    #[arg(value_names = ["KEY", "COMMAND"], num_args = 1.., required = true, trailing_var_arg = true)]
    pub(crate) words: Vec<OsString>,
}

/// Measures a store: acquire with release, and the hand-off between two contexts
#[derive(Args, Debug)]
pub(crate) struct Bench {
    /// How often each is measured
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) rounds: u32,
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// The longest wait: 136 years, which no process outlives.
pub(crate) const LONGEST: Duration = Duration::from_secs(u32::MAX as u64);

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if f64::is_finite(seconds) && seconds >= 0.0 => {
            Ok(Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST).min(LONGEST))
        }
        _ => Err("give seconds as a finite number, 0 or more, such as 10 or 0.5".into()),
    }
}

fn exit_code(text: &str) -> Result<u8, String> {
    text.parse().map_err(|_| "give an exit code as a whole number from 0 to 255".into())
}

/// The key, and the command behind it.
pub(crate) fn parted(words: Vec<OsString>) -> Result<(String, Vec<OsString>), Failure> {
    let mut words = words.into_iter();
    // The command line was checked: the first word is there.
    let key = words.next().unwrap_or_default();
    let key =
        key.into_string().map_err(|key| Failure::usage(format!("the key {key:?} is not UTF-8; choose another")))?;
    let mut command: Vec<_> = words.collect();
    match command.first().and_then(|word| word.to_str()) {
        Some("--") => drop(command.remove(0)),
        // flock takes a line of shell this way.
        Some(option @ ("-c" | "--command")) => {
            return Err(Failure::usage(format!(
                "{option:?} follows the key {}, where a command must begin, and no shell runs it; for a line of shell, write \
                 sh -c LINE",
                shown(&key)
            )));
        }
        // A misplaced option would be run as a command.
        Some(option) if option.starts_with('-') => {
            return Err(Failure::usage(format!(
                "{:?} follows the key {}, where the command begins; write options before the key, or -- before a \
                 command of this name",
                without_value(option),
                shown(&key)
            )));
        }
        _ => {}
    }
    Ok((key, command))
}

/// A key as it may be repeated there. A URL in its place may hold a password, too.
fn shown(key: &str) -> String {
    if key.contains("://") { "…".into() } else { format!("{key:?}") }
}

/// An option as it may be repeated on stderr, which logs keep: its value may hold a password.
fn without_value(option: &str) -> String {
    match option.split_once('=') {
        Some((name, _)) if is_plain(name) => format!("{name}=…"),
        None if is_plain(option) => option.into(),
        _ => "-…".into(),
    }
}

/// Whether a word holds nothing that a URL with a password needs.
fn is_plain(word: &str) -> bool {
    word.chars().all(|letter| letter.is_alphanumeric() || "+-._/".contains(letter))
}

/// What clap says, without the words that may hold a password.
fn without_secrets(error: &clap::Error) -> String {
    let mut text = error.to_string();
    let given = [ContextKind::InvalidValue, ContextKind::InvalidSubcommand];
    // Elsewhere it is an option as clap spells it, and not as it was typed.
    let unknown = Some(ContextKind::InvalidArg).filter(|_| error.kind() == ErrorKind::UnknownArgument);
    for kind in given.into_iter().chain(unknown) {
        if let Some(ContextValue::String(word)) = error.get(kind)
            && !is_plain(word)
        {
            text = text.replace(word, "…");
        }
    }
    text
}

/// As [`parted`]; there must be a command.
pub(crate) fn parted_with_command(words: Vec<OsString>) -> Result<(String, Vec<OsString>), Failure> {
    let (key, command) = parted(words)?;
    if command.is_empty() {
        let sentence = format!("no command follows the key {}; say what is to run under its lease", shown(&key));
        return Err(Failure::usage(sentence));
    }
    Ok((key, command))
}

/// Writes help to stdout, and an error as one sentence to stderr.
pub(crate) fn told(error: &clap::Error) -> Result<Exit, Failure> {
    let text = without_secrets(error);
    if !error.use_stderr() {
        return print(&text);
    }
    let Some(wrong) = text.strip_prefix("error: ") else {
        // `leasehold` alone shows the help. If stderr is closed, nobody wants to read it.
        let _ = std::io::stderr().write_all(text.as_bytes());
        return Ok(Exit::Code(USAGE));
    };
    let wrong = wrong.split("\n\nUsage:").next().unwrap_or(wrong);
    let wrong = wrong.split("\n\nFor more information").next().unwrap_or(wrong);
    // clap advises `-- -c`, which would make `-c` the key.
    let lines = wrong.lines().filter(|line| !line.trim_start().starts_with("tip: to pass"));
    let mut words: Vec<_> = lines.flat_map(str::split_whitespace).collect();
    if matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(word)) if word == "-c" || word == "--command")
    {
        words.push("(no shell runs the command; for a line of shell, write sh -c LINE after the key)");
    }
    let first = std::env::args_os().nth(1).unwrap_or_default();
    let help = if Cli::command().find_subcommand(&first).is_some() {
        format!("leasehold {} --help", first.display())
    } else {
        let is_unknown = matches!(error.kind(), ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument);
        let names_one = |word: OsString| Cli::command().find_subcommand(word).is_some();
        if is_unknown && std::env::args_os().any(names_one) && is_option_of_a_subcommand(error) {
            words.push("(write options after the subcommand, as in leasehold list --store URL)");
        } else if is_unknown && first != "help" {
            words.push("(to run a command under a lease, write leasehold run [OPTIONS] KEY COMMAND...)");
        }
        "leasehold --help".into()
    };
    Err(Failure::new(USAGE, format!("{}; {help} shows what there is", words.join(" "))))
}

/// Whether the argument that is not known here is an option of some subcommand.
fn is_option_of_a_subcommand(error: &clap::Error) -> bool {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return false };
    let is_that = |argument: &clap::Arg| {
        let long = argument.get_long().into_iter().chain(argument.get_all_aliases().into_iter().flatten());
        let short = argument.get_short().into_iter().chain(argument.get_all_short_aliases().into_iter().flatten());
        long.map(|name| format!("--{name}")).chain(short.map(|name| format!("-{name}"))).any(|name| name == *word)
    };
    Cli::command().get_subcommands().any(|subcommand| subcommand.get_arguments().any(is_that))
}
