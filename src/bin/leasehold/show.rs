//! `leasehold list` and `leasehold status`.

use leasehold::LeaseStatus;

use super::codes::{Exit, Failure};
use super::json;
use super::life::{Eyes, Life};
use super::options::{List, Place, Status};
use super::output::{print, tell};
use super::place::{self, Opened, Sight};
use super::table::{expiry, printable, table};
use super::wait::{self, named};

pub(crate) async fn list(options: &List) -> Result<Exit, Failure> {
    let opened = look(&options.place).await?;
    let listed = opened.leases.list(&options.prefix).await;
    wait::close(&opened.leases).await;
    print(&shown(&listed?, &opened.eyes, options.json))
}

/// Keys as one line of JSON, or as a table.
pub(crate) fn shown(listed: &[LeaseStatus], eyes: &Eyes, as_array: bool) -> String {
    if as_array { json::array(listed.iter().map(|status| as_json(status, eyes))) + "\n" } else { table(listed, eyes) }
}

pub(crate) async fn status(options: &Status) -> Result<Exit, Failure> {
    place::check(None, &options.key, "").await?;
    let opened = look(&options.place).await?;
    let status = opened.leases.status(&options.key).await;
    wait::close(&opened.leases).await;
    let (status, eyes) = (status?, &opened.eyes);
    print(&if options.json { as_json(&status, eyes) + "\n" } else { as_text(&status, eyes) })?;
    Ok(if options.exit_code && may_be_taken(&status, eyes) { Exit::NOT_ACQUIRED } else { Exit::SUCCESS })
}

/// Whether somebody who may be alive holds the key or waits for it.
fn may_be_taken(status: &LeaseStatus, eyes: &Eyes) -> bool {
    let holding = status.holders.iter().map(|holder| eyes.holder(holder));
    let waiting = status.queue.iter().map(|waiter| eyes.waiter(waiter));
    holding.chain(waiting).any(|life| life != Life::Dead)
}

/// Opens a store to read it. If nobody can hold a key there, says so and opens an empty one.
async fn look(place: &Place) -> Result<Opened, Failure> {
    match place.look(&place.url()?).await? {
        Sight::Store(opened) => Ok(opened),
        Sight::Nothing(why) => {
            tell(&why);
            nothing().await
        }
    }
}

/// A store in which nobody holds anything.
pub(crate) async fn nothing() -> Result<Opened, Failure> {
    place::open("memory:", None).await
}

fn as_text(status: &LeaseStatus, eyes: &Eyes) -> String {
    let key = printable(status.key.as_str());
    if status.is_idle() {
        // Of a key that was never used, or whose record was deleted, the store knows no token.
        return match status.last_token.as_u64() {
            0 => format!("{key}: free\n"),
            last => format!("{key}: free; its next token will be above {last}\n"),
        };
    }
    let mut text = String::new();
    for holder in &status.holders {
        let (mode, token, name) =
            (holder.mode.name(), holder.token.as_u64(), named(holder.holder, &holder.instance, &holder.info));
        let expiry = expiry(holder.expires_at);
        text += &match eyes.holder(holder) {
            Life::Alive => format!("{key}: held ({mode}, token {token}, expires {expiry}) by {name}\n"),
            Life::Silent => format!(
                "{key}: held ({mode}, token {token}, expired {expiry}, replaceable once others have seen it silent for a lease) by {name}\n"
            ),
            Life::Dead => {
                format!("{key}: its holder ({mode}, token {token}) is dead and no longer blocks anybody: {name}\n")
            }
        };
    }
    for (place, waiter) in status.queue.iter().enumerate() {
        text += &format!(
            "{key}: waiting as number {} ({}): {}{}\n",
            place + 1,
            waiter.mode.name(),
            named(waiter.holder, &waiter.instance, &waiter.info),
            eyes.waiter(waiter).remark()
        );
    }
    text
}

fn as_json(status: &LeaseStatus, eyes: &Eyes) -> String {
    let queue = status.queue.iter().map(|waiter| {
        json::object(&[
            ("mode", json::string(waiter.mode.name())),
            ("priority", waiter.priority.to_string()),
            ("life", json::string(eyes.waiter(waiter).name())),
            ("session", json::string(&waiter.holder.to_string())),
            ("instance", json::string(&waiter.instance)),
            ("info", json::string(&waiter.info)),
        ])
    });
    json::object(&[
        ("key", json::string(status.key.as_str())),
        ("last_token", status.last_token.as_u64().to_string()),
        ("holders", holders_as_json(status, eyes)),
        ("queue", json::array(queue)),
    ])
}

/// The holders, as an array.
pub(crate) fn holders_as_json(status: &LeaseStatus, eyes: &Eyes) -> String {
    json::array(status.holders.iter().map(|holder| {
        json::object(&[
            ("mode", json::string(holder.mode.name())),
            ("token", holder.token.as_u64().to_string()),
            ("expires_at_ms", holder.expires_at.as_ms().to_string()),
            ("life", json::string(eyes.holder(holder).name())),
            ("session", json::string(&holder.holder.to_string())),
            ("instance", json::string(&holder.instance)),
            ("info", json::string(&holder.info)),
        ])
    }))
}
