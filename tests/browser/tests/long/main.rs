//! What takes long: `make test-long`.

#[allow(dead_code, reason = "the short suite needs the rest")]
#[path = "../tabs/hidden.rs"]
mod hidden;
#[allow(dead_code, reason = "the short suite needs the rest")]
#[path = "../tabs/killed.rs"]
mod killed;
#[allow(dead_code, reason = "the short suite needs the rest")]
#[path = "../tabs/many.rs"]
mod many;
mod times;
#[allow(dead_code, reason = "the short suite needs the rest")]
#[path = "../tabs/world.rs"]
mod world;

use leasehold_browser_tests::Engine;
use world::{World, run_for, run_with_slow_timers};

macro_rules! tests {
    ($($engine:ident in $folder:ident: $($scenario:ident,)*;)*) => {$(
        mod $folder {
            use leasehold_browser_tests::Engine;
            #[test]
            fn a_page_that_is_hidden_for_six_minutes_keeps_its_lease() {
                crate::hidden_for_long(Engine::$engine);
            }
            #[test]
            fn twenty_tabs_that_come_and_go_count_exactly() {
                crate::many(Engine::$engine);
            }
            $(#[test]
            fn $scenario() {
                crate::world::run_for(crate::LONG, Engine::$engine, crate::times::$scenario);
            })*
        }
    )*};
}

/// Ends what hangs.
const LONG: std::time::Duration = std::time::Duration::from_secs(600);

tests! {
    // Firefox has no way to crash a tab over WebDriver.
    Chromium in chromium: take_over_after_close, take_over_after_reload, take_over_after_crash, take_over_after_kill, without_beacon,;
    Firefox in firefox: take_over_after_close, take_over_after_reload, without_beacon,;
}

fn hidden_for_long(engine: Engine) {
    run_with_slow_timers(LONG, engine, hidden::a_page_that_is_hidden_for_six_minutes_keeps_its_lease);
}

fn many(engine: Engine) {
    run_for(LONG, engine, async |world: &World| many::count(world, 20, 200).await);
}
