//! `leasehold list` and `leasehold status`.

use leasehold::LeaseStatus;

use super::codes::{Exit, Failure, print};
use super::options::{List, Status};
use super::table::{expiry, printable, table};
use super::wait::{self, named};
use super::{json, place};

pub(crate) async fn list(options: &List) -> Result<Exit, Failure> {
    let leases = place::open(&options.place.url()?, None).await?;
    let listed = leases.list(&options.prefix).await;
    wait::close(&leases).await;
    let listed = listed?;
    if options.json {
        return print(&(json::array(listed.iter().map(as_json)) + "\n"));
    }
    print(&table(&listed))
}

pub(crate) async fn status(options: &Status) -> Result<Exit, Failure> {
    let leases = place::open(&options.place.url()?, None).await?;
    let status = leases.status(&options.key).await;
    wait::close(&leases).await;
    let status = status?;
    print(&if options.json { as_json(&status) + "\n" } else { as_text(&status) })
}

fn as_text(status: &LeaseStatus) -> String {
    let key = printable(status.key.as_str());
    if status.is_idle() {
        return format!("{key}: free; its last token was {}\n", status.last_token.as_u64());
    }
    let mut text = String::new();
    for holder in &status.holders {
        let (mode, token, expiry) = (holder.mode.name(), holder.token.as_u64(), expiry(holder.expires_at));
        text += &format!(
            "{key}: held ({mode}, token {token}, expires {expiry}) by {}\n",
            named(&holder.instance, &holder.info)
        );
    }
    for (place, waiter) in status.queue.iter().enumerate() {
        text += &format!(
            "{key}: waiting as number {} ({}): {}\n",
            place + 1,
            waiter.mode.name(),
            named(&waiter.instance, &waiter.info)
        );
    }
    text
}

fn as_json(status: &LeaseStatus) -> String {
    let holders = status.holders.iter().map(|holder| {
        json::object(&[
            ("mode", json::string(holder.mode.name())),
            ("token", holder.token.as_u64().to_string()),
            ("expires_at_ms", holder.expires_at.as_ms().to_string()),
            ("instance", json::string(&holder.instance)),
            ("info", json::string(&holder.info)),
        ])
    });
    let queue = status.queue.iter().map(|waiter| {
        json::object(&[
            ("mode", json::string(waiter.mode.name())),
            ("priority", waiter.priority.to_string()),
            ("instance", json::string(&waiter.instance)),
            ("info", json::string(&waiter.info)),
        ])
    });
    json::object(&[
        ("key", json::string(status.key.as_str())),
        ("last_token", status.last_token.as_u64().to_string()),
        ("holders", json::array(holders)),
        ("queue", json::array(queue)),
    ])
}
