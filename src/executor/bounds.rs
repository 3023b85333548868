//! What differs in a browser: tasks stay on one thread, a process has few contexts, and no executor makes a task pause.

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
mod sys {
    use core::task::{Context, Poll};

    /// `Send` natively, nothing in a browser.
    pub trait MaybeSend: Send {}
    impl<T: Send + ?Sized> MaybeSend for T {}

    /// `Send + Sync` natively, nothing in a browser.
    pub trait MaybeSendSync: Send + Sync {}
    impl<T: Send + Sync + ?Sized> MaybeSendSync for T {}

    /// A shared handle: `Arc` natively, `Rc` in a browser.
    pub type Shared<T> = std::sync::Arc<T>;
    /// A weak shared handle.
    pub type WeakShared<T> = std::sync::Weak<T>;
    /// A boxed future that may move between threads natively.
    pub type MaybeSendFuture<'a, T> = futures::future::BoxFuture<'a, T>;

    /// Which thread this is.
    pub(crate) type ThreadMark = std::thread::ThreadId;
    pub(crate) fn this_thread() -> ThreadMark {
        std::thread_local! {
            // `thread::current()` clones a counted handle at each call; this reads it once for each thread.
            static THIS: ThreadMark = std::thread::current().id();
        }
        THIS.with(|this| *this)
    }

    /// Which process this is. WASI has no processes, and `std::process::id` panics there.
    pub(crate) type ProcessMark = u32;
    pub(crate) fn this_process() -> ProcessMark {
        if cfg!(target_family = "wasm") { 0 } else { std::process::id() }
    }

    /// A server may have thousands of contexts in one process.
    pub(crate) const HAS_MANY_CONTEXTS: bool = true;

    /// Asks the executor whether the calling task may go on.
    pub(crate) fn poll_proceed(executor: &dyn crate::executor::Executor, context: &mut Context<'_>) -> Poll<()> {
        executor.poll_proceed(context)
    }

    /// Runs on a thread of its own what a panicking thread must not run. If the system starts no thread, it is not run.
    pub(crate) fn after_panic(task: impl FnOnce() + Send + 'static) {
        let thread = std::thread::Builder::new().name("leasehold after a panic".into());
        let _ = thread.spawn(task);
    }

    /// Declares a function that shows one value for the whole process.
    macro_rules! process_wide {
        ($with:ident, $type:ty, $init:expr) => {
            fn $with<R>(visit: impl FnOnce(&$crate::executor::Mutex<$type>) -> R) -> R {
                static VALUE: $crate::executor::Mutex<$type> = $crate::executor::Mutex::new($init);
                visit(&VALUE)
            }
        };
    }
    pub(crate) use process_wide;
}

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
mod sys {
    use core::task::{Context, Poll};

    /// `Send` natively, nothing in a browser.
    pub trait MaybeSend {}
    impl<T: ?Sized> MaybeSend for T {}

    /// `Send + Sync` natively, nothing in a browser.
    pub trait MaybeSendSync {}
    impl<T: ?Sized> MaybeSendSync for T {}

    /// A shared handle: `Arc` natively, `Rc` in a browser.
    pub type Shared<T> = std::rc::Rc<T>;
    /// A weak shared handle.
    pub type WeakShared<T> = std::rc::Weak<T>;
    /// A boxed future that may move between threads natively.
    pub type MaybeSendFuture<'a, T> = futures::future::LocalBoxFuture<'a, T>;

    /// Which thread this is: there is one.
    #[derive(Clone, Copy, PartialEq)]
    pub(crate) struct ThreadMark;
    pub(crate) fn this_thread() -> ThreadMark {
        ThreadMark
    }

    /// Which process this is: nothing forks a page.
    #[derive(Clone, Copy, PartialEq)]
    pub(crate) struct ProcessMark;
    pub(crate) fn this_process() -> ProcessMark {
        ProcessMark
    }

    /// A page has few contexts, and would have to download the code that finds one among many.
    pub(crate) const HAS_MANY_CONTEXTS: bool = false;

    /// Does nothing: no browser executor makes a task pause, and the call would enlarge the download.
    pub(crate) fn poll_proceed(_: &dyn crate::executor::Executor, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// A panic drops nothing here.
    pub(crate) fn after_panic(_: impl FnOnce() + 'static) {}

    /// Declares a function that shows one value for the whole context.
    macro_rules! process_wide {
        ($with:ident, $type:ty, $init:expr) => {
            fn $with<R>(visit: impl FnOnce(&$crate::executor::Mutex<$type>) -> R) -> R {
                std::thread_local! {
                    static VALUE: $crate::executor::Mutex<$type> = const { $crate::executor::Mutex::new($init) };
                }
                VALUE.with(visit)
            }
        };
    }
    pub(crate) use process_wide;
}

pub(crate) use sys::{
    HAS_MANY_CONTEXTS, ProcessMark, ThreadMark, after_panic, poll_proceed, process_wide, this_process, this_thread,
};
pub use sys::{MaybeSend, MaybeSendFuture, MaybeSendSync, Shared, WeakShared};
