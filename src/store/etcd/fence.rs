//! A fence for the user's own etcd transactions: what they compare, so that they write only while the lease is current.

use core::{fmt, time::Duration};
use std::{boxed::Box, string::String, sync::Arc, vec::Vec};

use tokio::time::Instant;

use super::{
    super::inside::inside,
    EtcdStore,
    reservation::Sightings,
    rows::{Memory, Names, View},
    servers::Servers,
    transaction::Desk,
};
use crate::executor::{MaybeSendFuture, Shared};
use crate::machine::{Batch, Records, Row, StoreError, StoreId};
use crate::store::{Fence, FenceError, FencedTransaction, Store};

/// How long the check may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The answer of a fence: the lease was current. An etcd transaction with these [compares](Self::compares) writes only if its record has
/// not changed since.
///
/// Put `Compare::value(key, CompareOp::Equal, value)` for each of them into your own transaction, on a connection to the
/// same cluster. If a compare fails, the record of the lease has changed: the lease may be lost, or another context has merely begun or
/// ceased to wait for it. So [fence](crate::LeaseGuard::fence) again and retry: if the lease is lost, the fence then fails.
///
/// When etcd has answered, call [`answered`](Self::answered). Then the manager may pass the lease to its next request without asking etcd.
pub struct EtcdFence {
    compares: Vec<EtcdCompare>,
    fence: Shared<dyn Fence>,
}

/// An etcd key, and the value that it must have.
///
/// The value names the session and the request that hold the lease, by ids that are used once. A revision would not do: a cluster that was
/// wiped or restored from a backup reuses revision numbers, and may give the same one to the record of another holder.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EtcdCompare {
    /// The key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

impl EtcdFence {
    /// What the transaction must compare. Use all of them.
    pub fn compares(&self) -> &[EtcdCompare] {
        &self.compares
    }

    /// Reports that etcd has answered the transaction, whether it wrote or not. Until then, or if you drop this instead, the manager
    /// assumes that the transaction is still on its way. If the guard ends meanwhile, the manager gives the lease back to the store. Then
    /// the record changes, so the compares fail.
    pub fn answered(self) {
        self.fence.over();
    }
}

impl fmt::Debug for EtcdFence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("EtcdFence").field("compares", &self.compares).finish()
    }
}

/// Returns what an etcd transaction must compare, so that it writes only while the lease is current.
///
/// Share the store with the manager in an `Arc`. [`fence_and_renew`](crate::LeaseGuard::fence_and_renew) is refused: what your
/// transaction compares cannot renew a lease.
///
/// The loop below asks for another fence whenever the record has changed. If the guard may be
/// [downgraded](crate::LeaseGuard::downgrade) meanwhile, check [`mode`](crate::LeaseGuard::mode) in each round: the next fence begins under
/// the shared lease, and passes.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use etcd_client::{Client, Compare, CompareOp, Txn, TxnOp};
/// use leasehold::{LeaseManager, executor::TokioExecutor, store::EtcdStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Arc::new(EtcdStore::connect("etcd://10.0.0.1:2379").await?);
/// let leases = LeaseManager::builder(store.clone(), TokioExecutor::new()).build()?;
/// let guard = leases.lock("notes").acquire().await?;
///
/// let mut etcd = Client::connect(["10.0.0.1:2379"], None).await?;
/// loop {
///     // This fails as soon as the lease is lost.
///     let fence = guard.fence(&*store).await?;
///     let current = |compare: &leasehold::store::EtcdCompare| {
///         Compare::value(compare.key.clone(), CompareOp::Equal, compare.value.clone())
///     };
///     let compares: Vec<_> = fence.compares().iter().map(current).collect();
///     let txn = Txn::new().when(compares).and_then([TxnOp::put("notes", "milk", None)]);
///     let has_written = etcd.txn(txn).await?.succeeded();
///     fence.answered();
///     if has_written {
///         break;
///     }
/// }
/// # Ok(()) }
/// ```
impl<'a> FencedTransaction for &'a EtcdStore {
    type Passed = EtcdFence;
    type Answer = MaybeSendFuture<'a, Result<EtcdFence, FenceError>>;

    fn check(self, fence: Shared<dyn Fence>) -> Self::Answer {
        Box::pin(async move {
            // The caller gets no compares, so it sends no transaction.
            let compares = judge(self, &*fence).await.inspect_err(|_| fence.over())?;
            Ok(EtcdFence { compares, fence })
        })
    }

    fn refuse(self, why: FenceError) -> Self::Answer {
        Box::pin(core::future::ready(Err(why)))
    }
}

async fn judge(store: &EtcdStore, fence: &dyn Fence) -> Result<Vec<EtcdCompare>, FenceError> {
    store.check().map_err(FenceError::Store)?;
    if fence.reach() != store.reach() {
        return Err(misuse(
            "the lease is not kept in this store: give the manager and the fence the same EtcdStore, in an Arc",
        ));
    }
    if fence.ticket().renews() {
        return Err(misuse(
            "an etcd transaction cannot renew the lease that it is fenced by: use fence, which renews nothing",
        ));
    }
    let (servers, names, batch) = (Arc::clone(&store.servers), store.names.clone(), fence.ticket().batch.clone());
    let looked = inside(&store.runtime, look(servers, names, batch)).await.and_then(|looked| looked);
    let (rows, view) = looked.map_err(FenceError::Store)?;
    let (known, mut records) = load(fence, &view);
    // It writes nothing: a fence that does not renew changes no row.
    fence.judge(known, &mut records)?;
    let compare = |row: &Row| {
        // Each record is there, and is a text: the fence has found its grant in it.
        let value = view.text(row).unwrap_or_default().into();
        EtcdCompare { key: store.names.of(row), value }
    };
    Ok(rows.iter().map(compare).collect())
}

fn misuse(sentence: &str) -> FenceError {
    FenceError::Misuse(String::from(sentence))
}

/// Reads the records of the lease, with the store's row and the own session, at one moment. Which rows are the records?
async fn look(servers: Arc<Servers>, names: Names, batch: Batch) -> Result<(Vec<Row>, View), StoreError> {
    let (memory, sightings) = (Memory::default(), Sightings::default());
    let desk = Desk { servers: &servers, names: &names, memory: &memory, sightings: &sightings, bin: None };
    let records: Vec<_> = batch.keys().into_iter().map(Row::Record).collect();
    let mut asked = records.clone();
    asked.extend([Row::Store, Row::Session(batch.session)]);
    let answer = desk.read(&asked, Instant::now() + PATIENCE).await?;
    let mut view = View::default();
    view.take(asked, &answer);
    Ok((records, view))
}

/// What the fence is judged by. A store whose row cannot be read is none that a lease was granted in.
fn load(fence: &dyn Fence, view: &View) -> (Option<StoreId>, Records) {
    let (ticket, mut records) = (fence.ticket(), Records::new());
    let is_known =
        view.text(&Row::Store).is_some_and(|text| records.load_store(Some(text), StoreId::default()).is_ok());
    for key in ticket.batch.keys() {
        let row = Row::Record(key.clone());
        records.load(key, view.text(&row));
    }
    // The verdict does not rest on the session, unless the record has no such grant: then it tells what became of it.
    if !ticket.finds_its_grant(&records) {
        let session = ticket.batch.session;
        records.load_session(session, view.text(&Row::Session(session)));
    }
    (is_known.then(|| records.store()), records)
}
