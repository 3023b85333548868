//! An executor behind a pointer is an executor, too. So a program can choose one when it starts.

use alloc::boxed::Box;
use core::{
    task::{Context, Poll},
    time::Duration,
};

use super::{Executor, LifecycleWatch, LifecycleWatcher, MaybeSendFuture, Shared, WeakShared};
use crate::machine::Now;

macro_rules! behind {
    ($pointer:ty) => {
        impl<E: Executor + ?Sized> Executor for $pointer {
            fn now(&self) -> Now {
                (**self).now()
            }

            fn spawn(&self, task: MaybeSendFuture<'static, ()>) {
                (**self).spawn(task);
            }

            fn sleep(&self, duration: Duration) -> MaybeSendFuture<'static, ()> {
                (**self).sleep(duration)
            }

            fn random(&self) -> u128 {
                (**self).random()
            }

            fn check(&self) -> Result<(), &'static str> {
                (**self).check()
            }

            fn poll_proceed(&self, context: &mut Context<'_>) -> Poll<()> {
                (**self).poll_proceed(context)
            }

            fn elsewhere(&self) -> Option<Shared<dyn Executor>> {
                (**self).elsewhere()
            }

            fn has_crashed(&self) -> bool {
                (**self).has_crashed()
            }

            fn delays_chained_timers(&self) -> bool {
                (**self).delays_chained_timers()
            }

            fn watch_lifecycle(&self, watcher: WeakShared<dyn LifecycleWatcher>) -> Option<Box<dyn LifecycleWatch>> {
                (**self).watch_lifecycle(watcher)
            }
        }
    };
}

behind!(Box<E>);
behind!(Shared<E>);
