//! The errors, as the face receives them.

use core::{
    fmt::Display,
    future::Future,
    task::{Context, Poll, Waker},
};
use std::{boxed::Box, format, string::String};

use futures::future::{Either, LocalBoxFuture, select};
use js_sys::{Function, Promise};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

use crate::{
    AcquireError, FenceError, InvalidKey, InvalidOptions, StoreError, executor::spawn, machine::StoreErrorKind,
};

/// The code of a `LeaseError`, a blank, and its message; before them the place of the key, if it is one of several. What else the face may catch is a bug.
pub(super) struct Failure(String);

/// The future of a request, boxed: one type for all of them keeps the wasm small.
pub(super) type Answer = LocalBoxFuture<'static, Result<JsValue, Failure>>;

/// The output of a future if it is ready at once, as with a lease that lingers; else a promise of it.
pub(super) fn promise(future: impl Future<Output = Result<JsValue, Failure>> + 'static) -> JsValue {
    promise_of_boxed(Box::pin(future))
}

/// Not generic, because code for each type of future would enlarge the wasm by 10 kB.
fn promise_of_boxed(mut future: Answer) -> JsValue {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(value)) => value,
        Poll::Ready(Err(failure)) => Promise::reject(&failure.0.into()).into(),
        Poll::Pending => {
            let (promise, resolve, reject) = unsettled();
            spawn(Box::pin(async move { settle(&resolve, &reject, future.await) }));
            promise.into()
        }
    }
}

/// A promise, and the functions that fulfil and reject it.
pub(super) fn unsettled() -> (Promise, Function, Function) {
    let mut settle = None;
    let promise = Promise::new(&mut |resolve, reject| settle = Some((resolve, reject)));
    let (resolve, reject) = settle.expect("a promise hands out its functions while it is made");
    (promise, resolve, reject)
}

/// Settles such a promise.
pub(super) fn settle(resolve: &Function, reject: &Function, answer: Result<JsValue, Failure>) {
    // Neither of these two functions throws.
    let _ = match answer {
        Ok(value) => resolve.call1(&JsValue::UNDEFINED, &value),
        Err(failure) => reject.call1(&JsValue::UNDEFINED, &failure.0.into()),
    };
}

/// A promise of the answer, or of `undefined` if the promise `stopped` is fulfilled first. Then the request is dropped, and so withdrawn.
/// `stopped` must settle in the end.
pub(super) fn stoppable(asked: Answer, stopped: Option<Promise>) -> JsValue {
    let Some(stopped) = stopped else { return promise_of_boxed(asked) };
    promise(async {
        match select(JsFuture::from(stopped), asked).await {
            Either::Left(_) => Ok(JsValue::UNDEFINED),
            Either::Right((answer, _)) => answer,
        }
    })
}

impl Failure {
    /// The error for a value that does not fit, in a sentence that says what would.
    pub(super) fn invalid(sentence: &str) -> Self {
        Self::new("InvalidOptions", &sentence)
    }

    /// The same for one of several keys, whose index comes before the code.
    pub(super) fn at(self, place: Option<usize>) -> Self {
        match place {
            Some(place) => Self(format!("{place} {}", self.0)),
            None => self,
        }
    }

    fn new(code: &str, error: &dyn Display) -> Self {
        Self(format!("{code} {error}"))
    }
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        let code = match &error {
            // The face makes the message.
            AcquireError::Lost { reason, .. } => return Self::new("LeaseLost", &reason.name()),
            // Without a reason, the face says that it was released. JavaScript has no parts.
            AcquireError::Released { .. } | AcquireError::EmptyParts | AcquireError::NotResumable => {
                return Self::new("LeaseLost", &"");
            }
            AcquireError::Timeout { .. } => "Timeout",
            AcquireError::Closed => "Closed",
            AcquireError::InvalidKey(_) => "InvalidKey",
            AcquireError::InvalidOptions(_) => "InvalidOptions",
            AcquireError::InstanceInUse { .. } => "InstanceInUse",
            AcquireError::UpgradeConflict { .. } => "UpgradeConflict",
            AcquireError::FormatTooNew { .. } => "FormatTooNew",
            AcquireError::Unsupported(cause) | AcquireError::Quota(cause) | AcquireError::Store(cause) => {
                store_code(cause)
            }
        };
        Self::new(code, &error)
    }
}

impl From<Box<AcquireError>> for Failure {
    fn from(error: Box<AcquireError>) -> Self {
        (*error).into()
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::new(store_code(&error), &error)
    }
}

impl From<FenceError> for Failure {
    fn from(error: FenceError) -> Self {
        match &error {
            // The face makes the message.
            FenceError::Lost { reason, .. } => Self::new("LeaseLost", &reason.name()),
            FenceError::Released { .. } => Self::new("LeaseLost", &""),
            FenceError::Misuse(sentence) => Self::new("InvalidOptions", sentence),
            FenceError::Store(error) => Self::new(store_code(error), error),
        }
    }
}

impl From<InvalidKey> for Failure {
    fn from(invalid: InvalidKey) -> Self {
        Self::new("InvalidKey", &invalid)
    }
}

impl From<InvalidOptions> for Failure {
    fn from(invalid: InvalidOptions) -> Self {
        Self::new("InvalidOptions", &invalid)
    }
}

fn store_code(error: &StoreError) -> &'static str {
    match error.kind {
        StoreErrorKind::Unsupported => "Unsupported",
        StoreErrorKind::Quota => "Quota",
        StoreErrorKind::Closed => "Closed",
        StoreErrorKind::Busy | StoreErrorKind::Locked | StoreErrorKind::TooLarge | StoreErrorKind::Unavailable => {
            "Store"
        }
    }
}
