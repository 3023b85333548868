//! Holders that are killed, and a server that is killed, while a heartbeat is under way.

use crate::{
    Other, address_of, manager, port_of,
    proxy::{Commit, Proxy, Wire},
    renewing::{
        a_holder_that_is_killed_while_it_renews_is_replaced_once,
        a_server_that_is_killed_while_a_holder_renews_costs_no_lease, dying_holder, lasting_holder,
    },
    server::{self, Server},
};

/// A request that names a session's row counts as a commit. A holder that does nothing else sends only heartbeats like that.
fn proxy_before(address: &str) -> Proxy {
    Proxy::start(port_of(address), Wire { commit: b"/session/", committed: b"" })
}

fn holder_dies(fate: Commit, prefix: &str) {
    let Some(address) = server::shared() else { return };
    let proxy = proxy_before(&address);
    let holder = dying_holder(|role| Other::start(role, &(address_of(&proxy).as_str(), prefix)));
    let near = async || manager(&address, prefix).await;
    a_holder_that_is_killed_while_it_renews_is_replaced_once(fate, &proxy, holder, near);
}

#[test]
fn a_holder_that_is_killed_before_its_heartbeat_arrives_is_replaced_once() {
    holder_dies(Commit::IsKept, "killed-request");
}

#[test]
fn a_holder_that_is_killed_before_the_answer_to_its_heartbeat_arrives_is_replaced_once() {
    holder_dies(Commit::IsUnanswered, "killed-answer");
}

fn server_dies(fate: Commit) {
    if !server::is_installed() {
        return;
    }
    let mut server = Server::start(&[]);
    let address = server.address();
    let proxy = proxy_before(&address);
    let holder = lasting_holder(|role| Other::start(role, &(address_of(&proxy).as_str(), "renewals")));
    let near = async || manager(&address, "renewals").await;
    let serve = |up| if up { server.restart() } else { server.kill() };
    a_server_that_is_killed_while_a_holder_renews_costs_no_lease(fate, &proxy, holder, near, serve);
}

#[test]
fn a_server_that_is_killed_before_a_heartbeat_arrives_costs_no_lease() {
    server_dies(Commit::IsKept);
}

#[test]
fn a_server_that_is_killed_after_it_has_written_a_heartbeat_costs_no_lease() {
    server_dies(Commit::IsUnanswered);
}
