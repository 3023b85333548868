//! A channel for one answer.
//!
//! It replaces `futures::channel::oneshot`, which would add 2 kB to the wasm for each kind of answer.

use core::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};
use std::sync::atomic::{AtomicU8, Ordering};

use crate::executor::{Mutex, Shared};

/// The sender. If it is dropped before it sends, there will be no answer.
#[derive(Debug)]
pub(crate) struct Sender<T>(Shared<Slot<T>>);

/// The receiver: a future of the answer, or of `None` if there will be none.
#[derive(Debug)]
pub(crate) struct Receiver<T>(Shared<Slot<T>>);

#[derive(Debug)]
struct Slot<T> {
    value: Mutex<Option<T>>,
    bell: Bell,
}

/// Rings once, when the answer is there or will never come. It is not generic, so its code exists only once.
#[derive(Debug, Default)]
struct Bell {
    state: AtomicU8,
    waker: Mutex<Option<Waker>>,
}

/// The bits of a bell's state: it has rung; a waker is stored.
const RANG: u8 = 1;
const HEARD: u8 = 2;

pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let slot = Shared::new(Slot { value: Mutex::new(None), bell: Bell::default() });
    (Sender(slot.clone()), Receiver(slot))
}

impl<T> Sender<T> {
    /// Sends the answer. If nobody waits for it any more, it is dropped.
    pub(crate) fn send(self, value: T) {
        *self.0.value.lock() = Some(value);
    }

    /// Sends the answer, and returns the waker for the caller to wake, so that no outside code runs here.
    pub(crate) fn put(self, value: T) -> Option<Waker> {
        *self.0.value.lock() = Some(value);
        self.0.bell.ring()
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.bell.wake();
    }
}

impl<T> Receiver<T> {
    /// Whether the answer is there, or will never come. The next poll takes it.
    pub(crate) fn poll_there(&self, context: &Context<'_>) -> Poll<()> {
        if self.0.bell.rang(context.waker()) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl<T> Future for Receiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.poll_there(context).map(|()| self.0.value.lock().take())
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.bell.mute();
    }
}

/// Wakers are woken and dropped after the lock is released, because they may own something that takes it.
impl Bell {
    /// Marks the bell as rung. The first call returns the waker, if one is stored.
    fn ring(&self) -> Option<Waker> {
        // Usually no waker is stored yet, because the receiver has not polled.
        if self.state.fetch_or(RANG, Ordering::AcqRel) == HEARD { self.waker.lock().take() } else { None }
    }

    fn has_rung(&self) -> bool {
        self.state.load(Ordering::Acquire) & RANG != 0
    }

    fn wake(&self) {
        // Only the sender rings. If it has put an answer, it has rung already.
        if self.has_rung() {
            return;
        }
        if let Some(waker) = self.ring() {
            waker.wake();
        }
    }

    /// Whether it has rung. If not, it stores the waker, and wakes it when it rings.
    fn rang(&self, waker: &Waker) -> bool {
        if self.has_rung() {
            return true;
        }
        // Cloning may run the user's code, so it is done before the lock is taken.
        let waker = waker.clone();
        let before = self.waker.lock().replace(waker);
        drop(before);
        // If the bell rang before this line, the sender saw no waker, and none need be woken: drop it.
        let rang = self.state.fetch_or(HEARD, Ordering::AcqRel) & RANG != 0;
        if rang {
            self.forget();
        }
        rang
    }

    /// Drops the waker, because nobody listens any more.
    fn mute(&self) {
        if self.state.load(Ordering::Acquire) == HEARD {
            self.forget();
        }
    }

    fn forget(&self) {
        let waker = self.waker.lock().take();
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn poll(receiver: &mut Receiver<u8>, count: &Arc<Count>) -> Poll<Option<u8>> {
        Pin::new(receiver).poll(&mut Context::from_waker(&Waker::from(count.clone())))
    }

    #[test]
    fn whoever_waits_is_woken_by_the_answer_and_by_its_loss() {
        for value in [Some(7), None] {
            let (count, (sender, mut receiver)) = (Arc::<Count>::default(), channel());
            assert_eq!(poll(&mut receiver, &count), Poll::Pending);
            assert_eq!(poll(&mut receiver, &count), Poll::Pending);
            match value {
                Some(value) => sender.send(value),
                None => drop(sender),
            }
            assert_eq!(count.0.load(Ordering::Relaxed), 1);
            assert_eq!(poll(&mut receiver, &count), Poll::Ready(value));
        }
    }

    #[test]
    fn whoever_waits_no_more_leaves_neither_waker_nor_answer() {
        let (count, (sender, mut receiver)) = (Arc::<Count>::default(), channel());
        assert_eq!(poll(&mut receiver, &count), Poll::Pending);
        drop(receiver);
        assert_eq!(Arc::strong_count(&count), 1);
        sender.send(7);
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
    }
}
