//! A sweep does not keep others from their keys.

use std::time::Duration;

use etcd_client::{Txn, TxnOp};
use tokio::{runtime::Runtime, time::timeout};

use crate::{
    address_of,
    contract::client,
    faults::BUSY,
    manager,
    proxy::Way,
    proxy_before,
    server::{self, Server},
};

/// A key without a record takes its tokens from the store's own row, which a sweep writes. These keys were used in their order.
#[test]
fn a_far_context_acquires_a_new_key_while_near_contexts_sweep() {
    if !server::is_installed() {
        return;
    }
    let server = Server::start(&[]);
    Runtime::new().unwrap().block_on(async {
        let (address, mut etcd) = (server.address(), client(&server.address()).await);
        let proxy = proxy_before(&address);
        let far = manager(&address_of(&proxy), "sweeps").await.build().unwrap();
        // It opens its session, and finds nothing to sweep.
        drop(far.lock("other").acquire().await.unwrap());
        for first in (0..6_000).step_by(100) {
            let put = |number| {
                let token = 64 * (number + 1);
                let text = format!(
                    r#"{{"format":1,"last_token":{token},"revision":4,"grants":[],"queue":[],"last_exclusive":{token}}}"#
                );
                TxnOp::put(format!("sweeps/record/k{number:05}"), text, None)
            };
            etcd.txn(Txn::new().and_then((first..first + 100).map(put).collect::<Vec<_>>())).await.unwrap();
        }
        proxy.delay(Way::ToServer, Duration::from_millis(40));
        let mut near = Vec::new();
        for number in [0, 2_000, 4_000] {
            let leases = manager(&address, "sweeps").await.build().unwrap();
            near.push(leases.lock(&format!("k{number:05}")).acquire().await.unwrap());
        }
        let before = proxy.trips();
        drop(timeout(BUSY, far.lock("new").acquire()).await.unwrap().unwrap());
        let trips = proxy.trips() - before;
        assert!(trips <= 25, "{trips} round trips");
    });
}
