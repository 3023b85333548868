//! A panic of the user's in a page: Rust on wasm does not unwind by default, so nothing is dropped. The thread counts as panicking from
//! then on, so nothing else is tested here.
#![cfg(all(target_family = "wasm", target_os = "unknown", feature = "web", feature = "test-util"))]

use js_sys::Function;
use leasehold::{LeaseManager, LostReason, executor::WebExecutor, store::IndexedDbStore};
use wasm_bindgen::prelude::*;
use wasm_bindgen_test::wasm_bindgen_test as test;

wasm_bindgen_test::wasm_bindgen_test_configure!(run_in_browser);

thread_local! {
    static LEASES: LeaseManager = tab();
}

fn tab() -> LeaseManager {
    LeaseManager::builder(IndexedDbStore::new("panic"), WebExecutor::new()).build().unwrap()
}

fn leases() -> LeaseManager {
    LEASES.with(LeaseManager::clone)
}

fn give_up_on_panic() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        leases().suspend();
        before(info);
    }));
}

#[test]
async fn a_hook_gives_up_what_a_panic_leaves_held() {
    let guard = leases().lock("k").acquire().await.unwrap();
    let lost = guard.lost();
    give_up_on_panic();
    let panicking = Closure::<dyn Fn()>::new(|| panic!("on purpose"));
    let thrown = panicking.as_ref().unchecked_ref::<Function>().call0(&JsValue::NULL);
    assert!(thrown.is_err(), "wasm ends in a trap");
    assert_eq!(lost.await, LostReason::Suspended);
    // Another tab.
    assert!(tab().lock("k").acquire().await.unwrap().token() > guard.token());
}
