//! Connections that are slow, or lead nowhere for a while.

use tokio::runtime::Runtime;

use crate::{address_of, delays::Pair, manager, proxy_before, server};

fn pair(runtime: &Runtime, name: &str) -> Option<Pair> {
    let address = server::shared()?;
    let proxy = proxy_before(&address);
    runtime.block_on(async {
        let (far, near) = (manager(&address_of(&proxy), name).await, manager(&address, name).await);
        Some(Pair { proxy, far, near })
    })
}

crate::absences::tests!(pair);
crate::delays::tests!(pair);
