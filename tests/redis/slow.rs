//! Connections that are slow, or lead nowhere for a while.

use tokio::runtime::Runtime;

use crate::{client_of, context, delays::Pair, proxy_before, shared};

fn pair(runtime: &Runtime, name: &str) -> Option<Pair> {
    let server = shared()?;
    let proxy = proxy_before(server.port());
    runtime.block_on(async {
        let (far, near) = (context(&client_of(&proxy), name).await.1, context(&server.client(), name).await.1);
        Some(Pair { proxy, far, near })
    })
}

crate::absences::tests!(pair);
crate::delays::tests!(pair);
