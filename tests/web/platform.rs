//! The platform itself, beside the adapters: raw IndexedDB, and platform objects that misbehave.

use std::{future::Future, time::Duration};

use futures::future::{Either, select};
use js_sys::{Array, Function, Object, Promise, Reflect, global};
use leasehold::{
    executor::{Executor, WebExecutor},
    machine::SessionId,
};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::{IdbDatabase, IdbFactory, IdbRequest, IdbTransactionMode};

/// Longer than any browser takes for anything here.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the future gives, if it gives anything in time.
pub(super) async fn soon<T>(future: impl Future<Output = T>) -> T {
    match select(Box::pin(future), WebExecutor::new().sleep(PATIENCE)).await {
        Either::Left((value, _)) => value,
        Either::Right(_) => panic!("nothing came of it in {} s", PATIENCE.as_secs()),
    }
}

/// Waits for what is about to become true.
pub(super) async fn until(is_so: impl AsyncFn() -> bool) {
    soon(async {
        while !is_so().await {
            WebExecutor::new().sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Gives everything under way the time to arrive, where a test shows that nothing does.
pub(super) async fn settle() {
    WebExecutor::new().sleep(Duration::from_millis(200)).await;
}

/// A name that no other test, run or browser context uses.
pub(super) fn fresh_name(test: &str) -> String {
    format!("{test}-{:032x}", WebExecutor::new().random())
}

/// `globalThis.indexedDB`.
pub(super) fn indexed_db() -> IdbFactory {
    Reflect::get(&global(), &"indexedDB".into()).unwrap().unchecked_into()
}

/// Waits for a raw request.
pub(super) async fn done(request: &IdbRequest) -> Result<JsValue, JsValue> {
    let promise = Promise::new(&mut |resolve, reject| {
        request.set_onsuccess(Some(&resolve));
        request.set_onerror(Some(&reject));
    });
    soon(JsFuture::from(promise)).await?;
    request.result()
}

/// Opens a database without the adapter.
pub(super) async fn open_raw(name: &str) -> IdbDatabase {
    let request = indexed_db().open(name).unwrap();
    done(&request).await.unwrap().unchecked_into()
}

/// Writes a value under a key of a database that the adapter made.
pub(super) async fn put_raw(database: &str, key: impl Into<JsValue>, value: &JsValue) {
    let database = open_raw(database).await;
    let transaction = database.transaction_with_str_and_mode("leases", IdbTransactionMode::Readwrite).unwrap();
    let put = transaction.object_store("leases").unwrap().put_with_key(value, &key.into()).unwrap();
    done(&put).await.unwrap();
    database.close();
}

/// Reads the value under a key of a database that the adapter made.
pub(super) async fn get_raw(database: &str, key: impl Into<JsValue>) -> JsValue {
    let database = open_raw(database).await;
    let get = database.transaction_with_str("leases").unwrap().object_store("leases").unwrap().get(&key.into());
    let value = done(&get.unwrap()).await.unwrap();
    database.close();
    value
}

/// The key under which the row of a session stands.
pub(super) fn session_row(session: SessionId) -> JsValue {
    Array::of2(&"session".into(), &session.to_string().into()).into()
}

/// The key under which the row of the store itself stands.
pub(super) fn store_row() -> JsValue {
    Array::of1(&"store".into()).into()
}

/// The names of the locks that are held or requested and start like this.
pub(super) async fn locks(prefix: &str) -> Vec<String> {
    let manager = property(&property(&global(), "navigator"), "locks");
    let query: Function = property(&manager, "query").unchecked_into();
    let state = JsFuture::from(query.call0(&manager).unwrap().unchecked_into::<Promise>()).await.unwrap();
    let lists = [property(&state, "held"), property(&state, "pending")];
    let names = lists.iter().flat_map(|list| Array::from(list).to_vec()).map(|lock| property(&lock, "name"));
    names.filter_map(|name| name.as_string()).filter(|name| name.starts_with(prefix)).collect()
}

/// A property of an object.
pub(super) fn property(object: &JsValue, name: &str) -> JsValue {
    Reflect::get(object, &name.into()).unwrap()
}

/// A property that looks different until this is dropped.
pub(super) struct Replaced {
    object: Object,
    name: &'static str,
    before: JsValue,
}

impl Replaced {
    /// Gives a property of the object another value.
    pub(super) fn new(object: &JsValue, name: &'static str, value: &JsValue) -> Self {
        let object: Object = object.clone().unchecked_into();
        let before = Object::get_own_property_descriptor(&object, &name.into());
        let descriptor = Object::new();
        Reflect::set(&descriptor, &"value".into(), value).unwrap();
        Reflect::set(&descriptor, &"configurable".into(), &true.into()).unwrap();
        Reflect::set(&descriptor, &"writable".into(), &true.into()).unwrap();
        assert!(Reflect::define_property(&object, &name.into(), &descriptor).unwrap());
        Self { object, name, before }
    }

    /// Replaces a method of a class by the function that this JavaScript makes of it.
    pub(super) fn method(class: &str, name: &'static str, wrapper: &str) -> Self {
        let class = Reflect::get(&global(), &class.into()).unwrap();
        let prototype = Reflect::get(&class, &"prototype".into()).unwrap();
        let original = Reflect::get(&prototype, &name.into()).unwrap();
        let wrap = Function::new_with_args("original", &["return ", wrapper].concat());
        let wrapped = wrap.call1(&JsValue::UNDEFINED, &original).unwrap();
        Self::new(&prototype, name, &wrapped)
    }

    /// The same of a class of IndexedDB, for one database only: another test may have left work behind in its own.
    pub(super) fn in_database(database: &str, class: &str, name: &'static str, wrapper: &str) -> Self {
        let of_one = format!(
            "(() => {{
                const changed = {wrapper};
                return function (...given) {{
                    const name = (this.transaction?.db ?? this.db ?? this).name ?? given[0];
                    return (name === '{database}' ? changed : original).apply(this, given);
                }};
            }})()"
        );
        Self::method(class, name, &of_one)
    }
}

impl Drop for Replaced {
    fn drop(&mut self) {
        let name = self.name.into();
        if self.before.is_undefined() {
            Reflect::delete_property(&self.object, &name).unwrap();
        } else {
            Reflect::define_property(&self.object, &name, self.before.unchecked_ref()).unwrap();
        }
    }
}
