//! Reads the state of keys. Reading renews nothing, so it also works where nothing runs tasks, such as outside of any runtime, if the store
//! needs no runtime either.

use alloc::{boxed::Box, format, vec::Vec};

use crate::client::error::AcquireError;
use crate::client::status::{LeaseStatus, seen};
use crate::driver::{Driver, Response};
use crate::executor::{DROPS_TASKS, MaybeSendFuture, Shared};
use crate::machine::{Action, Batch, Key, Operation, StoreError, whole_ms};

/// Whether reading must do without the tasks of the executor.
///
/// # Errors
/// [`AcquireError::Unsupported`] if the store needs such tasks, too.
pub(crate) fn is_without_tasks(driver: &Driver) -> Result<bool, AcquireError> {
    match driver.check() {
        Ok(()) => Ok(false),
        Err(_) if DROPS_TASKS && driver.is_closed() => Err(AcquireError::Closed),
        Err(_) if DROPS_TASKS && driver.store.polls_inline() => Ok(true),
        Err(missing) => Err(missing),
    }
}

/// What these keys look like at one moment.
pub(crate) async fn look_at_all(
    driver: &Shared<Driver>,
    keys: Vec<Key>,
    without_tasks: bool,
) -> Result<Vec<LeaseStatus>, Box<AcquireError>> {
    let mut found = Vec::with_capacity(keys.len());
    // The constant keeps all of this out of the npm package.
    if DROPS_TASKS && without_tasks {
        let looks = look_without_tasks(driver.clone(), keys.clone()).await;
        for (key, look) in keys.into_iter().zip(looks) {
            found.push(seen(driver, key, Some(look))?);
        }
        return Ok(found);
    }
    let looks = driver.look_at(keys.clone());
    for (key, look) in keys.into_iter().zip(looks) {
        found.push(seen(driver, key, look.await)?);
    }
    Ok(found)
}

/// What the store says of these keys. The caller's own future carries the transaction, and no task does. It is boxed, so that nothing of it
/// is left in a build that never calls it.
fn look_without_tasks(driver: Shared<Driver>, keys: Vec<Key>) -> MaybeSendFuture<'static, Vec<Response>> {
    Box::pin(async move {
        let look = |key: &Key| Operation { key: key.clone(), action: Action::Inspect };
        let batch = Batch::new(driver.session(), keys.iter().map(look).collect());
        let limit = driver.store_timeout;
        let asked = (*driver.store).transact(batch, driver.executor.now(), limit);
        let late = || StoreError::transient(format!("the store did not answer within {} ms", whole_ms(limit)));
        let status = |result| Response::Status(Box::new(result));
        match driver.within(limit, asked).await.unwrap_or_else(|| Err(late())) {
            Ok(reply) => reply.answers.into_iter().map(|answer| status(Ok(answer.outcome))).collect(),
            Err(error) => keys.iter().map(|_| status(Err(error.clone()))).collect(),
        }
    })
}
