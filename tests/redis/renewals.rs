//! Holders that are killed, and a server that is killed, while a heartbeat is under way.

use crate::{
    context,
    other::Other,
    proxy::{Commit, Proxy},
    proxy_before,
    renewing::{
        a_holder_that_is_killed_while_it_renews_is_replaced_once,
        a_server_that_is_killed_while_a_holder_renews_costs_no_lease, dying_holder, lasting_holder,
    },
    server::Server,
    shared,
};

fn start(role: &str, proxy: &Proxy, prefix: &str) -> Other {
    Other::start(role, &(format!("redis://127.0.0.1:{}/", proxy.port).as_str(), prefix))
}

fn holder_dies(fate: Commit, prefix: &str) {
    let Some(server) = shared() else { return };
    let proxy = proxy_before(server.port());
    let holder = dying_holder(|role| start(role, &proxy, prefix));
    let near = async || context(&server.client(), prefix).await.1;
    a_holder_that_is_killed_while_it_renews_is_replaced_once(fate, &proxy, holder, near);
}

#[test]
fn a_holder_that_is_killed_before_its_heartbeat_arrives_is_replaced_once() {
    holder_dies(Commit::IsKept, "killed request");
}

#[test]
fn a_holder_that_is_killed_before_the_answer_to_its_heartbeat_arrives_is_replaced_once() {
    holder_dies(Commit::IsUnanswered, "killed answer");
}

/// The server syncs each write before it answers.
fn server_dies(fate: Commit) {
    let Some(mut server) = Server::start(&["--appendonly", "yes", "--appendfsync", "always"]) else { return };
    let (proxy, client) = (proxy_before(server.port()), server.client());
    let holder = lasting_holder(|role| start(role, &proxy, "renewals"));
    let near = async || context(&client, "renewals").await.1;
    a_server_that_is_killed_while_a_holder_renews_costs_no_lease(fate, &proxy, holder, near, |up| {
        if up {
            assert!(server.run(), "it starts again");
        } else {
            server.kill();
        }
    });
}

#[test]
fn a_server_that_is_killed_before_a_heartbeat_arrives_costs_no_lease() {
    server_dies(Commit::IsKept);
}

#[test]
fn a_server_that_is_killed_after_it_has_written_a_heartbeat_costs_no_lease() {
    server_dies(Commit::IsUnanswered);
}
