//! Holders that are killed, and a server that is killed, while a heartbeat is under way.

use leasehold::{LeaseManager, LeaseManagerBuilder, executor::TokioExecutor};
use tokio::runtime::Runtime;

use crate::{
    other::Other,
    proxy::Commit,
    renewing::{
        self, a_holder_that_is_killed_while_it_renews_is_replaced_once,
        a_server_that_is_killed_while_a_holder_renews_costs_no_lease, dying_holder, lasting_holder,
    },
    server::{Place, Server},
};

async fn builder(place: &Place) -> LeaseManagerBuilder {
    LeaseManager::builder(place.store().await, TokioExecutor::new())
}

/// Plays this process's part, if it has one.
pub(crate) fn take_part(role: &str, url: &str, prefix: &str) -> bool {
    renewing::take_part(role, async || builder(&Place { url: url.into(), prefix: prefix.into() }).await)
}

fn holder_dies(fate: Commit, prefix: &str) {
    let Some(place) = Place::new(prefix) else { return };
    let proxy = place.proxy();
    let holder = dying_holder(|role| Other::start(role, &place.behind(proxy.port)));
    a_holder_that_is_killed_while_it_renews_is_replaced_once(fate, &proxy, holder, async || builder(&place).await);
}

/// Its transaction stays open until the server gives it up.
#[test]
fn a_holder_that_is_killed_before_its_heartbeat_is_committed_is_replaced_once() {
    holder_dies(Commit::IsKept, "renewals_request");
}

#[test]
fn a_holder_that_is_killed_before_the_answer_to_its_heartbeat_arrives_is_replaced_once() {
    holder_dies(Commit::IsUnanswered, "renewals_answer");
}

/// The records, and the names of the sessions. Nobody writes records while all waiters are in the queue.
fn rows(place: &Place) -> Vec<(String, String)> {
    let rows = "SELECT key::text, text FROM leasehold_record UNION ALL SELECT 'session', id::text FROM leasehold_session ORDER BY 1, 2";
    Runtime::new().unwrap().block_on(async {
        let rows = place.client().await.query(rows, &[]).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    })
}

/// The server syncs what it commits, as it does by default, and all of its processes are killed.
fn server_dies(fate: Commit) {
    let Some(server) = Server::start_with("-c fsync=on") else { return };
    let place = Place { url: server.url(), prefix: "leasehold".into() };
    let (proxy, mut before) = (place.proxy(), Vec::new());
    let holder = lasting_holder(|role| Other::start(role, &place.behind(proxy.port)));
    let near = async || builder(&place).await;
    a_server_that_is_killed_while_a_holder_renews_costs_no_lease(fate, &proxy, holder, near, |up| {
        if up {
            server.restart();
            assert_eq!(rows(&place), before, "what was committed is there");
        } else {
            before = rows(&place);
            server.crash();
        }
    });
}

#[test]
fn a_server_that_is_killed_before_it_commits_a_heartbeat_costs_no_lease() {
    server_dies(Commit::IsKept);
}

#[test]
fn a_server_that_is_killed_after_it_has_committed_a_heartbeat_costs_no_lease() {
    server_dies(Commit::IsUnanswered);
}
