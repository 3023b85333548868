//! The executor of browsers, in windows and in workers of every kind.

mod lifecycle;
mod timer;

use core::time::Duration;

use js_sys::{Date, Uint8Array};
use wasm_bindgen::prelude::*;

use super::{Executor, LifecycleWatch, LifecycleWatcher, MaybeSendFuture, WeakShared};
use crate::machine::{Monotonic, Now, Wall};
use timer::Timer;

/// `setTimeout` keeps its delay in 31 bits, and fires at once beyond them.
const LONGEST_TIMER_MS: u64 = 0x7fff_ffff;

/// Runs tasks as microtasks, sets timers by `setTimeout`, and reads the clocks of the browser.
///
/// It works in windows and in workers, and needs no secure context.
///
/// ```no_run
/// use leasehold::{LeaseManager, executor::WebExecutor, store::IndexedDbStore};
///
/// let leases = LeaseManager::builder(IndexedDbStore::new("my-app"), WebExecutor::new()).build();
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WebExecutor;

impl WebExecutor {
    /// The executor of this context.
    pub const fn new() -> Self {
        Self
    }
}

impl Executor for WebExecutor {
    /// Reads [`performance.now()`](https://developer.mozilla.org/en-US/docs/Web/API/Performance/now), which counts
    /// from the start of this context and does not go back, and
    /// [`Date.now()`](https://developer.mozilla.org/en-US/docs/Web/JavaScript/Reference/Global_Objects/Date/now).
    fn now(&self) -> Now {
        now()
    }

    fn spawn(&self, task: MaybeSendFuture<'static, ()>) {
        spawn(task);
    }

    /// Waits by [`setTimeout`](https://developer.mozilla.org/en-US/docs/Web/API/Window/setTimeout).
    fn sleep(&self, duration: Duration) -> MaybeSendFuture<'static, ()> {
        let until_ms = monotonic_ms().saturating_add(ms_rounded_up(duration));
        Box::pin(async move {
            // Again and again: a timer has a longest delay, and may fire a little before the clock shows its time.
            loop {
                let left_ms = until_ms.saturating_sub(monotonic_ms()).min(LONGEST_TIMER_MS);
                if left_ms == 0 {
                    break;
                }
                Timer::new(left_ms as u32).await;
            }
        })
    }

    /// Draws by [`getRandomValues()`](https://developer.mozilla.org/en-US/docs/Web/API/Crypto/getRandomValues): unlike
    /// `randomUUID`, it exists in insecure contexts, too.
    fn random(&self) -> u128 {
        random()
    }

    /// [Chromium delays them](https://developer.chrome.com/blog/timer-throttling-in-chrome-88) in pages that have been hidden for minutes.
    fn delays_chained_timers(&self) -> bool {
        true
    }

    /// Listens to [the page's life cycle](https://developer.chrome.com/docs/web-platform/page-lifecycle-api). Workers have
    /// none.
    fn watch_lifecycle(&self, watcher: WeakShared<dyn LifecycleWatcher>) -> Option<Box<dyn LifecycleWatch>> {
        lifecycle::watch(watcher)
    }
}

/// Spawns a task. `spawn_local` is generic: if it was called directly, the wasm would contain its code once for each kind of task.
pub(crate) fn spawn(task: MaybeSendFuture<'static, ()>) {
    wasm_bindgen_futures::spawn_local(task);
}

pub(crate) fn now() -> Now {
    Now { monotonic: Monotonic::from_ms(monotonic_ms()), wall: Wall::from_ms(Date::now() as u64) }
}

pub(crate) fn random() -> u128 {
    // Filled on JavaScript's side: getRandomValues refuses the memory of a wasm module with threads.
    let drawn = Uint8Array::new_with_length(16);
    js_sys::global().unchecked_into::<Global>().crypto().get_random_values(&drawn);
    let mut bytes = [0; 16];
    drawn.copy_to(&mut bytes);
    u128::from_ne_bytes(bytes)
}

fn monotonic_ms() -> u64 {
    // The cast floors. It is exact far beyond the life of any context.
    performance_now() as u64
}

fn ms_rounded_up(duration: Duration) -> u64 {
    let rest_ms = duration.subsec_nanos().div_ceil(1_000_000);
    duration.as_secs().saturating_mul(1_000).saturating_add(rest_ms.into())
}

#[wasm_bindgen]
extern "C" {
    /// `globalThis`: a window or a worker.
    type Global;

    #[wasm_bindgen(method, getter)]
    fn crypto(this: &Global) -> Crypto;

    /// By its global name: the clock is read several times a request, and each step to it would be a call.
    #[wasm_bindgen(js_namespace = performance, js_name = now)]
    fn performance_now() -> f64;

    type Crypto;

    #[wasm_bindgen(method, js_name = getRandomValues)]
    fn get_random_values(this: &Crypto, bytes: &Uint8Array);
}
