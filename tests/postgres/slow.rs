//! Connections that are slow, or lead nowhere for a while.

use leasehold::{LeaseManager, executor::TokioExecutor};
use tokio::runtime::Runtime;

use crate::{delays::Pair, server::Place};

fn pair(runtime: &Runtime, name: &str) -> Option<Pair> {
    let words = name.split('_').filter_map(|word| word.chars().next());
    let place = Place::new(&format!("delays_{}", words.collect::<String>()))?;
    let proxy = place.proxy();
    let far = place.behind(proxy.port);
    runtime.block_on(async {
        let near = place.store().await;
        let contexts = [far.store().await, near].map(|store| LeaseManager::builder(store, TokioExecutor::new()));
        let [far, near] = contexts;
        Some(Pair { proxy, far, near })
    })
}

crate::absences::tests!(pair);
crate::delays::tests!(pair);
