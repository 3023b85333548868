//! `leasehold watch`.

use std::{io::IsTerminal, pin::pin, time::Duration};

use futures::future::{Either, select};
use tokio::time::{Instant, sleep};

use super::codes::{Exit, Failure};
use super::options::Watch;
use super::output::{print_meanwhile, tell};
use super::place::{Opened, Sight};
use super::show::{nothing, shown};
use super::signals::Signals;
use super::table::printable;
use super::{terminal, wait};

const PAUSE: Duration = Duration::from_secs(1);
/// The pause before a look that failed at once is repeated.
const AGAIN: Duration = Duration::from_millis(200);
const CLEAR: &str = "\x1b[2J";

/// Shows a table that is drawn anew once a second, or a line of JSON.
pub(crate) async fn watch(options: &Watch) -> Result<Exit, Failure> {
    let url = options.place.url()?;
    let mut signals = Signals::listen()?;
    let draws = !options.json && std::io::stdout().is_terminal();
    let mut opened = None;
    let watched = match select(pin!(show(options, &url, draws, &mut opened)), pin!(signals.end())).await {
        Either::Left((ended, _)) => ended,
        Either::Right((signal, _)) => Ok(signal.into()),
    };
    close(&mut opened).await;
    watched
}

/// Ends when stdout is closed, or after one table if stdout is not a terminal.
async fn show(options: &Watch, url: &str, draws: bool, store: &mut Option<Opened>) -> Result<Exit, Failure> {
    let mut screen = Screen { draws, lasts: draws || options.json, ..Screen::default() };
    if draws {
        print_meanwhile(CLEAR.into()).await?;
    }
    loop {
        match look(options, url, store).await {
            Ok(seen) => {
                screen.was_open |= store.is_some();
                if !screen.show(seen).await? || !screen.lasts {
                    return Ok(Exit::SUCCESS);
                }
            }
            Err(failure) if screen.outlasts(&failure, store.is_some()) => {
                if failure.is_gone {
                    close(store).await;
                }
            }
            Err(failure) => return Err(failure),
        }
        sleep(PAUSE).await;
    }
}

struct Seen {
    text: String,
    /// Why nobody can hold a key there.
    nothing_because: Option<String>,
}

/// What stdout and stderr were told.
#[derive(Default)]
struct Screen {
    draws: bool,
    /// Whether there is more to come than one table.
    lasts: bool,
    /// A store that has been open before is waited for.
    was_open: bool,
    /// It was told that the store is away.
    is_away: bool,
    /// Why nobody can hold a key there, as it was told.
    told: Option<String>,
}

impl Screen {
    /// Says whether stdout is still read.
    async fn show(&mut self, Seen { text, nothing_because }: Seen) -> Result<bool, Failure> {
        self.is_away = false;
        if self.draws {
            return print_meanwhile(screen(&text, nothing_because.as_deref())).await;
        }
        if nothing_because.is_some() && nothing_because != self.told {
            nothing_because.iter().for_each(|why| tell(why));
            self.told = nothing_because;
        }
        print_meanwhile(text).await
    }

    /// Whether the watch goes on. Then stderr is told why nothing is shown.
    fn outlasts(&mut self, failure: &Failure, is_open: bool) -> bool {
        self.was_open |= is_open;
        if !self.lasts || !(failure.is_gone || failure.may_pass && self.was_open) {
            return false;
        }
        if !std::mem::replace(&mut self.is_away, true) || failure.is_gone {
            tell(&format!("{}; still watching", failure.cause()));
        }
        if failure.is_gone {
            self.told = None;
        }
        true
    }
}

/// Opens the store, unless it is open. The watcher does not create a missing file, but looks for it again.
async fn look(options: &Watch, url: &str, store: &mut Option<Opened>) -> Result<Seen, Failure> {
    let mut nothing_because = None;
    if store.is_none() {
        match options.place.look(url).await? {
            Sight::Store(opened) => *store = Some(opened),
            Sight::Nothing(why) => nothing_because = Some(why),
        }
    }
    Ok(Seen { text: text(options, store.as_ref()).await?, nothing_because })
}

async fn close(store: &mut Option<Opened>) {
    if let Some(opened) = store.take() {
        wait::close(&opened.leases).await;
    }
}

async fn text(options: &Watch, store: Option<&Opened>) -> Result<String, Failure> {
    let empty = if store.is_none() { Some(nothing().await?) } else { None };
    let Some(opened) = store.or(empty.as_ref()) else { return Ok(String::new()) };
    let begun = Instant::now();
    let mut listed = opened.leases.list(&options.prefix).await;
    if listed.is_err() && begun.elapsed() < AGAIN {
        // A store that has just disappeared fails at once, and can say only a moment later what happened.
        sleep(AGAIN).await;
        listed = opened.leases.list(&options.prefix).await;
    }
    Ok(shown(&listed?, &opened.eyes, options.json))
}

/// A table as it fits the window, with what there is to say below it.
fn screen(table: &str, remark: Option<&str>) -> String {
    let mut text = table.to_owned();
    text.extend(remark.map(|remark| format!("{}\n", printable(remark))));
    drawn(&cut(&text, terminal::height()))
}

/// The lines that fit a window of this height, above the one for the cursor. More lines would push the first ones out of it.
fn cut(text: &str, height: Option<usize>) -> String {
    let lines: Vec<_> = text.lines().collect();
    let most = height.map_or(usize::MAX, |height| height.saturating_sub(1).max(2));
    if lines.len() <= most {
        return text.to_owned();
    }
    let (shown, others) = lines.split_at(most - 1);
    format!("{}\n… and {} more\n", shown.join("\n"), others.len())
}

/// Draws from the upper left corner over the last table. Long lines are cut off, not wrapped. Wrapping is turned on again before the end
/// of each line: stdout writes whole lines, possibly a few at a time, and somebody may stop or kill `watch` after any of them.
fn drawn(table: &str) -> String {
    let lines = table.lines().map(|line| format!("\x1b[?7l{line}\x1b[K\x1b[?7h\n"));
    format!("\x1b[H{}\x1b[J", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_is_longer_than_the_window_is_cut_and_says_so() {
        let table = "head\n1\n2\n3\n4\n";
        for height in [None, Some(6), Some(24)] {
            assert_eq!(cut(table, height), table);
        }
        assert_eq!(cut(table, Some(5)), "head\n1\n2\n… and 2 more\n");
        assert_eq!(cut(table, Some(1)), "head\n… and 4 more\n");
    }

    #[test]
    fn whatever_part_of_a_table_goes_out_the_terminal_wraps_lines_after_it() {
        let table = drawn("KEY  MODE\nk    exclusive\n");
        let parts = table.match_indices('\n').map(|(end, _)| &table[..end]).chain([table.as_str()]);
        for part in parts {
            assert!(part.rfind("\x1b[?7l") < part.rfind("\x1b[?7h"), "long lines are cut off after {part:?}");
        }
    }
}
