//! `leasehold watch`.

use std::{io::IsTerminal, pin::pin, time::Duration};

use futures::future::{Either, select};
use tokio::time::sleep;

use super::codes::{Exit, Failure, print};
use super::options::Watch;
use super::place;
use super::signals::Signals;
use super::table::table;
use super::wait;

const PAUSE: Duration = Duration::from_secs(1);
/// Long lines are cut off, not wrapped.
const BEGIN: &str = "\x1b[?7l\x1b[2J";
const END: &str = "\x1b[?7h";

/// Shows a table that is drawn anew once a second.
pub(crate) async fn watch(options: &Watch) -> Result<Exit, Failure> {
    let url = options.place.url()?;
    let mut signals = Signals::listen()?;
    let leases = place::open(&url, None).await?;
    if !std::io::stdout().is_terminal() {
        let listed = leases.list(&options.prefix).await;
        wait::close(&leases).await;
        return print(&table(&listed?));
    }
    print(BEGIN)?;
    let watched = {
        let draw = async {
            loop {
                print(&drawn(&table(&leases.list(&options.prefix).await?)))?;
                sleep(PAUSE).await;
            }
        };
        match select(pin!(draw), pin!(signals.end())).await {
            Either::Left((failed, _)) => failed,
            Either::Right((signal, _)) => Ok(signal.into()),
        }
    };
    print(END)?;
    wait::close(&leases).await;
    watched
}

/// From the upper left corner on, over what was there.
fn drawn(table: &str) -> String {
    format!("\x1b[H{}\x1b[J", table.replace('\n', "\x1b[K\n"))
}
