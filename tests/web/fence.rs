//! Writes to the user's own database that only the holder of a lease in it can make.

use futures::FutureExt;
use js_sys::{Function, Reflect};
use leasehold::{
    FenceError, LeaseGuard, LeaseManager, LostReason, ReleaseOutcome, executor::WebExecutor, store::IndexedDbStore,
};
use wasm_bindgen::prelude::*;
use wasm_bindgen_test::wasm_bindgen_test as test;
use web_sys::{IdbTransaction, IdbTransactionMode};

use super::{
    desk::{Desk, a_moment, begin, commit, desk, end, notes, try_commit, valid_until_ms, write},
    manners::takes_no_more_memory,
    platform::{Replaced, done, fresh_name, soon},
    sessions::Asked,
};

#[test]
async fn a_current_lease_writes() {
    let desk = desk("current").await;
    let guard = desk.hold().await;
    let mut transaction = desk.begin();
    let (ended, fenced) = (end(&transaction), guard.fence(&mut transaction));
    write(&transaction, "mine");
    soon(fenced).await.unwrap();
    assert_eq!(ended.await, "complete");
    assert_eq!(desk.note().await.as_deref(), Some("mine"));
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
}

#[test]
async fn who_waits_for_the_fence_goes_on_in_the_same_transaction() {
    let desk = desk("await").await;
    let guard = desk.hold().await;
    let transaction = desk.begin();
    let ended = end(&transaction);
    guard.fence(&transaction).await.unwrap();
    write(&transaction, "after");
    assert_eq!(ended.await, "complete");
    assert_eq!(desk.note().await.as_deref(), Some("after"));
}

#[test]
async fn a_fence_reads_the_record_and_only_if_it_must_the_sessions_row() {
    let name = fresh_name("reads");
    let (slow, fast) = (Desk::at(&name).await, Desk::at(&name).await);
    let guard = slow.hold().await;
    let asked = Asked::of(&name);
    let transaction = slow.begin();
    guard.fence(&transaction).await.unwrap();
    assert_eq!(asked.methods(), ["get"], "the record");
    end(&transaction).await;
    let transaction = slow.begin();
    guard.fence_and_renew(&transaction).await.unwrap();
    assert_eq!(asked.methods(), ["get", "get", "put"], "a heartbeat goes with it");
    end(&transaction).await;
    let _thief = soon(fast.leases.lock("k").steal()).await.unwrap();
    asked.methods();
    assert_eq!(guard.fence(&slow.begin()).await, Err(FenceError::Lost { key: "k".into(), reason: LostReason::Stolen }));
    assert_eq!(asked.methods()[..2], ["get", "get"], "the session's row tells that it was stolen");
}

/// Its own page was told nothing: the thief's message does not reach a manager that sees no events.
#[test]
async fn an_overtaken_guard_writes_nothing() {
    let name = fresh_name("stale");
    let (slow, fast) = (Desk::at(&name).await, Desk::at(&name).await);
    for commits in [false, true] {
        for waits in [false, true] {
            let guard = slow.hold().await;
            let thief = soon(fast.leases.lock("k").steal()).await.unwrap();
            let transaction = slow.begin();
            let ended = end(&transaction);
            let fenced = guard.fence(&transaction);
            if waits {
                assert_eq!(fenced.await, Err(FenceError::Lost { key: "k".into(), reason: LostReason::Stolen }));
                assert!(transaction.object_store("notes").is_err(), "it is over by now");
            } else {
                write(&transaction, "late");
                if commits {
                    commit(&transaction);
                }
                assert_eq!(soon(fenced).await, Err(FenceError::Lost { key: "k".into(), reason: LostReason::Stolen }));
            }
            assert_eq!(ended.await, "abort");
            assert_eq!(slow.note().await, None);
            let own = fast.begin();
            let ended = end(&own);
            drop(thief.fence(&own));
            write(&own, "new");
            commit(&own);
            assert_eq!(ended.await, "complete", "the thief's lease is the current one");
            assert_eq!(slow.note().await.as_deref(), Some("new"));
            let tidy = begin(&fast.database, &["notes"], IdbTransactionMode::Readwrite);
            done(&notes(&tidy).clear().unwrap()).await.unwrap();
            thief.release().await.unwrap();
        }
    }
}

#[test]
async fn commit_is_the_browsers_own_again_when_all_fences_have_answered() {
    let desk = desk("commit").await;
    let (one, two) = (desk.hold().await, soon(desk.leases.lock("other").acquire()).await.unwrap());
    let transaction = desk.begin();
    let ended = end(&transaction);
    let own = || js_sys::Object::has_own(&transaction, &"commit".into());
    let fences = [one.fence(&transaction), two.fence(&transaction)];
    assert!(own());
    write(&transaction, "both");
    commit(&transaction);
    for fence in fences {
        soon(fence).await.unwrap();
    }
    assert!(!own());
    assert_eq!(ended.await, "complete");
    assert_eq!(desk.note().await.as_deref(), Some("both"));
}

#[test]
async fn a_second_commit_throws_as_the_browsers_own_does() {
    let desk = desk("twice").await;
    let guard = desk.hold().await;
    for fences in [false, true] {
        let transaction = desk.begin();
        let ended = end(&transaction);
        let fence = fences.then(|| guard.fence(&transaction));
        write(&transaction, "once");
        commit(&transaction);
        let thrown: web_sys::DomException = try_commit(&transaction).unwrap_err().unchecked_into();
        assert_eq!(thrown.name(), "InvalidStateError", "fenced: {fences}");
        if let Some(fence) = fence {
            soon(fence).await.unwrap();
        }
        assert_eq!(ended.await, "complete", "fenced: {fences}");
    }
}

/// `tx.commit.bind(tx)` reads the method early, and so may a library that wraps it.
#[test]
async fn a_commit_that_was_read_before_the_verdict_commits_after_it() {
    let desk = desk("kept").await;
    let guard = desk.hold().await;
    let transaction = desk.begin();
    let ended = end(&transaction);
    let fence = guard.fence(&transaction);
    let kept: Function = Reflect::get(&transaction, &"commit".into()).unwrap().unchecked_into();
    soon(fence).await.unwrap();
    write(&transaction, "kept");
    kept.call0(&transaction).unwrap();
    let thrown: web_sys::DomException = kept.call0(&transaction).unwrap_err().unchecked_into();
    assert_eq!(thrown.name(), "InvalidStateError");
    assert_eq!(ended.await, "complete");
    assert_eq!(desk.note().await.as_deref(), Some("kept"));
}

#[test]
async fn of_two_leases_one_that_is_gone_is_enough_to_write_nothing() {
    let name = fresh_name("two");
    let (slow, fast) = (Desk::at(&name).await, Desk::at(&name).await);
    let (kept, lost) = (slow.hold().await, soon(slow.leases.lock("other").acquire()).await.unwrap());
    let _thief = soon(fast.leases.lock("other").steal()).await.unwrap();
    let transaction = slow.begin();
    let ended = end(&transaction);
    let fences = [kept.fence(&transaction), lost.fence(&transaction)];
    write(&transaction, "half");
    commit(&transaction);
    let [first, second] = fences.map(|fence| fence.map(|verdict| verdict.is_ok()));
    assert!(soon(first).await);
    assert!(!soon(second).await);
    assert_eq!(ended.await, "abort");
    assert_eq!(slow.note().await, None);
}

#[test]
async fn a_guard_that_was_given_back_writes_nothing() {
    let desk = desk("released").await;
    // The lease lingers: the record is the same, and the next guard is of the same grant.
    let guard = desk.hold().await;
    guard.release().await.unwrap();
    let next = desk.hold().await;
    let transaction = desk.begin();
    let ended = end(&transaction);
    assert_eq!(soon(guard.fence(&transaction)).await, Err(FenceError::Released { key: "k".into() }));
    assert_eq!(ended.await, "abort");
    assert_eq!(desk.note().await, None);
    assert!(next.is_valid());
}

/// The database runs the release after a transaction that was created before it.
#[test]
async fn a_guard_that_is_given_back_while_it_is_checked_writes() {
    let name = fresh_name("releasing");
    let (desk, other) = (Desk::at(&name).await, Desk::at(&name).await);
    for waits_elsewhere in [false, true] {
        let guard = desk.hold().await;
        let next = if waits_elsewhere { &other } else { &desk };
        a_moment().await;
        let transaction = desk.begin();
        let (ended, fenced) = (end(&transaction), guard.fence_and_renew(&transaction));
        write(&transaction, if waits_elsewhere { "theirs" } else { "ours" });
        drop(guard.release());
        let heir = next.hold().await;
        let until = valid_until_ms(&heir);
        assert_eq!(soon(fenced).await, Ok(()));
        assert_eq!(ended.await, "complete");
        assert!(heir.is_valid());
        assert_eq!(valid_until_ms(&heir), until, "nothing was renewed");
        heir.release().await.unwrap();
    }
    assert_eq!(desk.note().await.as_deref(), Some("theirs"));
}

/// A lease that was stolen before the check is lost, even if its guard was released meanwhile.
#[test]
async fn a_guard_that_was_stolen_before_it_was_given_back_writes_nothing() {
    let name = fresh_name("stolen_releasing");
    let (slow, fast) = (Desk::at(&name).await, Desk::at(&name).await);
    let guard = slow.hold().await;
    let thief = soon(fast.leases.lock("k").steal()).await.unwrap();
    let transaction = slow.begin();
    let (ended, fenced) = (end(&transaction), guard.fence(&transaction));
    write(&transaction, "late");
    drop(guard.release());
    assert!(soon(fenced).await.is_err());
    assert_eq!(ended.await, "abort");
    assert_eq!(slow.note().await, None);
    assert!(thief.is_valid());
}

/// Firefox commits all the same if it was told to commit.
#[test]
async fn a_renewal_that_could_not_be_written_renews_nothing() {
    let desk = desk("unwritten").await;
    let guard = desk.hold().await;
    let (row, until) = (desk.session().await, valid_until_ms(&guard));
    a_moment().await;
    // The row exists.
    let fails = "function (...given) {
        return Array.isArray(given[1]) ? this.add(...given) : original.apply(this, given);
    }";
    let failing = Replaced::in_database(&desk.database.name(), "IDBObjectStore", "put", fails);
    let transaction = desk.begin();
    let (ended, fenced) = (end(&transaction), guard.fence_and_renew(&transaction));
    soon(fenced).await.unwrap();
    commit(&transaction);
    ended.await;
    drop(failing);
    assert_eq!((desk.session().await, valid_until_ms(&guard)), (row, until));
}

#[test]
async fn a_renewal_goes_with_the_write_or_not_at_all() {
    let desk = desk("renew").await;
    let guard = desk.hold().await;
    let before = [Some(desk.record().await), desk.session().await];
    for aborts in [true, false] {
        a_moment().await;
        let until = valid_until_ms(&guard);
        let transaction = desk.begin();
        let (ended, fenced) = (end(&transaction), guard.fence_and_renew(&transaction));
        soon(fenced).await.unwrap();
        write(&transaction, "renewed");
        if aborts {
            transaction.abort().unwrap();
        }
        assert_eq!(ended.await, if aborts { "abort" } else { "complete" });
        let after = [Some(desk.record().await), desk.session().await];
        assert_eq!(after[0], before[0], "a heartbeat is the session's");
        assert_eq!(after[1] == before[1], aborts, "the row has the heartbeat if the note is written");
        assert_eq!(valid_until_ms(&guard) > until, !aborts);
    }
}

async fn elsewhere() -> Desk {
    desk("elsewhere").await
}

#[test]
async fn what_cannot_be_checked_is_not_written() {
    let name = fresh_name("misuse");
    let desk = Desk::at(&name).await;
    let guard = desk.hold().await;
    let says = async |guard: &LeaseGuard, transaction: &IdbTransaction, words: &str| {
        let verdict = soon(guard.fence(transaction)).await;
        assert!(matches!(&verdict, Err(FenceError::Misuse(text)) if text.contains(words)), "{words}: {verdict:?}");
    };

    let readonly = begin(&desk.database, &["notes", "leasehold"], IdbTransactionMode::Readonly);
    let ended = end(&readonly);
    says(&guard, &readonly, "\"readwrite\"").await;
    assert_eq!(ended.await, "abort");

    let narrow = begin(&desk.database, &["notes"], IdbTransactionMode::Readwrite);
    let ended = end(&narrow);
    write(&narrow, "unchecked");
    says(&guard, &narrow, "\"leasehold\"").await;
    assert_eq!(ended.await, "abort");

    let other = elsewhere().await;
    let elsewhere = other.begin();
    let ended = end(&elsewhere);
    write(&elsewhere, "unchecked");
    says(&guard, &elsewhere, "attach").await;
    assert_eq!(ended.await, "abort");

    let own = LeaseManager::builder(IndexedDbStore::new(&name), WebExecutor::new()).build().unwrap();
    let foreign = soon(own.lock("k").acquire()).await.unwrap();
    let transaction = desk.begin();
    let ended = end(&transaction);
    says(&foreign, &transaction, "attach").await;
    assert_eq!(ended.await, "abort");
    own.close().await;

    let over = desk.begin();
    let ended = end(&over);
    write(&over, "before");
    assert_eq!(ended.await, "complete");
    says(&guard, &over, "over").await;

    let committing = desk.begin();
    write(&committing, "before");
    commit(&committing);
    says(&guard, &committing, "before commit()").await;
    assert_eq!(desk.note().await.as_deref(), Some("before"));
    assert_eq!(other.note().await, None);
}

#[test]
async fn a_wiped_database_takes_nothing_from_before() {
    let desk = desk("wiped").await;
    let guard = desk.hold().await;
    let wipe = begin(&desk.database, &["leasehold"], IdbTransactionMode::Readwrite);
    done(&wipe.object_store("leasehold").unwrap().clear().unwrap()).await.unwrap();
    let transaction = desk.begin();
    let (ended, fenced) = (end(&transaction), guard.fence(&transaction));
    write(&transaction, "late");
    assert_eq!(soon(fenced).await, Err(FenceError::Lost { key: "k".into(), reason: LostReason::StoreCleared }));
    assert_eq!(ended.await, "abort");
    assert_eq!(soon(guard.lost()).await, LostReason::StoreCleared, "the guard learns of it");
}

#[test]
async fn a_transaction_that_ends_before_it_was_checked_says_so() {
    let desk = desk("aborted").await;
    let guard = desk.hold().await;
    let transaction = desk.begin();
    let fenced = guard.fence(&transaction);
    transaction.abort().unwrap();
    let verdict = soon(fenced).await;
    assert!(matches!(&verdict, Err(FenceError::Store(error)) if error.message.contains("aborted")), "{verdict:?}");
    assert!(guard.verify().await.unwrap());
}

#[test]
async fn of_two_renewals_in_one_transaction_both_are_written() {
    let name = fresh_name("both");
    let (one, two) = (Desk::at(&name).await, Desk::at(&name).await);
    let hold = async |desk: &Desk| soon(desk.leases.lock("k").shared().acquire()).await.unwrap();
    let guards = [hold(&one).await, hold(&two).await];
    let rows = async || [one.session().await.unwrap(), two.session().await.unwrap()];
    let before = rows().await;
    let transaction = one.begin();
    let ended = end(&transaction);
    let fences = guards.each_ref().map(|guard| guard.fence_and_renew(&transaction));
    for fence in fences {
        soon(fence).await.unwrap();
    }
    assert_eq!(ended.await, "complete");
    let after = rows().await;
    assert!(before[0] != after[0] && before[1] != after[1], "{before:?} {after:?}");
}

/// Both fences ask before either has written.
#[test]
async fn of_two_renewals_of_one_session_the_later_heartbeat_stays() {
    let desk = desk("twice").await;
    let guards = [desk.hold().await, soon(desk.leases.lock("other").acquire()).await.unwrap()];
    let beat = async || -> u64 {
        let row = desk.session().await.unwrap();
        let rest = row.split_once("\"beat\":").unwrap().1;
        rest.split_once(',').unwrap().0.parse().unwrap()
    };
    let before = beat().await;
    let transaction = desk.begin();
    let ended = end(&transaction);
    let fences = guards.each_ref().map(|guard| guard.fence_and_renew(&transaction));
    for fence in fences.into_iter().rev() {
        soon(fence).await.unwrap();
    }
    assert_eq!(ended.await, "complete");
    assert!(beat().await > before + 1, "the second number is the larger");
    for guard in guards {
        assert!(guard.is_valid() && guard.verify().await.unwrap());
    }
}

/// A failed write does not abort the transaction if a handler of the page says so.
#[test]
async fn a_renewal_that_failed_to_be_written_ends_the_transaction() {
    let desk = desk("unwritten").await;
    let guard = desk.hold().await;
    let calm = Closure::<dyn Fn(web_sys::Event)>::new(|event: web_sys::Event| event.prevent_default());
    desk.database.add_event_listener_with_callback("error", calm.as_ref().unchecked_ref()).unwrap();
    a_moment().await;
    let until = valid_until_ms(&guard);
    let transaction = desk.begin();
    let (ended, fenced) = (end(&transaction), guard.fence_and_renew(&transaction));
    let fails = "function (value, key) { return key[0] === 'session' ? this.add(value, key) : original.call(this, value, key) }";
    let failing = Replaced::in_database(&desk.database.name(), "IDBObjectStore", "put", fails);
    soon(fenced).await.unwrap();
    drop(failing);
    assert_eq!(ended.await, "abort");
    assert_eq!(valid_until_ms(&guard), until, "nothing was renewed");
}

#[test]
async fn fences_leave_no_memory_behind() {
    let desk = desk("memory").await;
    let guard = desk.hold().await;
    takes_no_more_memory(async || {
        for turn in 0..300 {
            let transaction = desk.begin();
            let (ended, fenced) = (end(&transaction), guard.fence_and_renew(&transaction));
            match turn % 3 {
                0 => drop(soon(fenced).await),
                1 => commit(&transaction),
                _ => transaction.abort().unwrap(),
            }
            ended.await;
        }
    })
    .await;
}
