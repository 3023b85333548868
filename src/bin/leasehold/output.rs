//! Output: messages for people to stderr, and results to stdout.
//!
//! A pipe that nobody reads, or a terminal that `^S` halts, keeps whoever writes to it waiting. The thread that renews the lease and
//! ends the command must not wait so, and lets others write.

use std::{
    io::Write as _,
    pin::pin,
    sync::{
        OnceLock,
        mpsc::{self, Receiver, Sender, SyncSender},
    },
    thread,
    time::Duration,
};

use futures::future::{Either, select};
use tokio::task::spawn_blocking;

use super::codes::{Exit, Failure};
use super::signals::Signals;
use super::table::printable;

/// For how long the last messages keep this process from ending, if nobody reads them. The thread that writes them may have to wait for a
/// processor on a busy machine.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// How many messages wait for a reader of stderr. Later ones are dropped: an `elect` may go on for years.
const MOST_MESSAGES: usize = 256;

/// An order for the thread that writes to stderr.
enum Order {
    Write(String),
    /// To say that all before was written.
    Report(Sender<()>),
}

/// The way to the thread that writes to stderr; `None` if the system refused to start it.
static WRITER: OnceLock<Option<SyncSender<Order>>> = OnceLock::new();

/// Writes one sentence to stderr, and escapes whatever would command the terminal. If stderr is closed, nobody wants to read it.
pub(crate) fn tell(sentence: &str) {
    let line = format!("leasehold: {}\n", printable(sentence));
    match WRITER.get_or_init(start_writer) {
        // It fails if nobody has read the messages before this one.
        Some(writer) => drop(writer.try_send(Order::Write(line))),
        None => write(&line),
    }
}

/// Waits until all messages are written, for [`LAST_WORDS`] at most. If the queue is full, nobody reads, and it does not wait.
pub(crate) fn finish() {
    let Some(Some(writer)) = WRITER.get() else { return };
    let (report, written) = mpsc::channel();
    if writer.try_send(Order::Report(report)).is_ok() {
        let _ = written.recv_timeout(LAST_WORDS);
    }
}

fn start_writer() -> Option<SyncSender<Order>> {
    let (writer, orders) = mpsc::sync_channel(MOST_MESSAGES);
    let started = thread::Builder::new().name("leasehold tells".into()).spawn(move || obey(&orders));
    started.ok().map(|_| writer)
}

fn obey(orders: &Receiver<Order>) {
    for order in orders {
        match order {
            Order::Write(line) => write(&line),
            // Who asked may have gone on without the answer.
            Order::Report(report) => drop(report.send(())),
        }
    }
}

fn write(line: &str) {
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Writes a result to stdout. A reader that has gone, such as `head`, has read enough.
pub(crate) fn print(text: &str) -> Result<Exit, Failure> {
    print_to_reader(text).map(|_| Exit::SUCCESS)
}

/// As [`print`], for a process that listens to signals: one that asks it to end is obeyed though nobody reads.
pub(crate) async fn print_until_signal(text: String, signals: &mut Signals) -> Result<Exit, Failure> {
    match select(pin!(print_meanwhile(text)), pin!(signals.end())).await {
        Either::Left((printed, _)) => printed.map(|_| Exit::SUCCESS),
        Either::Right((signal, _)) => Ok(signal.into()),
    }
}

/// As [`print`], on another thread; the answer is whether stdout is still read.
pub(crate) async fn print_meanwhile(text: String) -> Result<bool, Failure> {
    let printing = spawn_blocking(move || print_to_reader(&text)).await;
    printing.map_err(|why| Failure::system(format!("stdout was not written: {why}")))?
}

fn print_to_reader(text: &str) -> Result<bool, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(why) if why.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(why) => Err(Failure::system(format!("cannot write to stdout: {why}; redirect it elsewhere"))),
    }
}
