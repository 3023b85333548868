//! `BroadcastSignals`: messages between contexts, and beacons that stand and fall.

use std::{cell::RefCell, rc::Rc, time::Duration};

use futures::{StreamExt, channel::mpsc, future::poll_fn};
use js_sys::{Array, Function, Promise, Reflect, global};
use leasehold::{
    executor::{Executor, WebExecutor},
    machine::{Body, Key, Message, SessionId, StoreId},
    signal::{BroadcastSignals, Inbox, Notice, Signals, contract},
};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::platform::{Replaced, fresh_name, locks, property, settle, soon, until};

/// A context with signals: what they bring is read from `notices`.
struct Context {
    signals: Rc<BroadcastSignals>,
    inbox: Rc<Post>,
    notices: RefCell<mpsc::UnboundedReceiver<Notice>>,
}

struct Post {
    notices: mpsc::UnboundedSender<Notice>,
    /// Ends these signals from within a notice.
    rests: RefCell<Option<Rc<BroadcastSignals>>>,
}

impl Inbox for Post {
    fn notice(&self, notice: Notice) {
        if let Some(signals) = self.rests.take() {
            signals.rest();
        }
        self.notices.unbounded_send(notice).unwrap();
    }
}

impl Context {
    fn new(name: &str) -> Self {
        let (sender, receiver) = mpsc::unbounded();
        let inbox = Rc::new(Post { notices: sender, rests: RefCell::new(None) });
        Self { signals: Rc::new(BroadcastSignals::new(name)), inbox, notices: RefCell::new(receiver) }
    }

    fn wake(&self, session: SessionId, beacon: bool) -> bool {
        let inbox: Rc<dyn Inbox> = self.inbox.clone();
        self.signals.wake(session, beacon, Rc::downgrade(&inbox))
    }

    /// Wakes without a beacon, as a session that nobody knows.
    fn listen(&self) -> bool {
        self.wake(session(), false)
    }

    /// Wakes with a beacon, and waits until it stands.
    async fn stand(&self, session: SessionId) {
        assert!(self.wake(session, true));
        assert_eq!(self.next().await, Notice::BeaconStands(session));
    }

    async fn next(&self) -> Notice {
        soon(poll_fn(|task| self.notices.borrow_mut().poll_next_unpin(task))).await.unwrap()
    }

    /// What has arrived so far.
    fn arrived(&self) -> Option<Notice> {
        self.notices.borrow_mut().try_recv().ok()
    }
}

/// Counts what is done with a name that begins so.
struct Counted {
    calls: Array,
    _replaced: Replaced,
}

impl Counted {
    fn calls(class: &str, method: &'static str, name: &str) -> Self {
        let (calls, list) = Self::list(name);
        let count = format!(
            "function (...given) {{
                if (String(given[0]).startsWith('{name}')) globalThis['{list}'].push(1);
                return original.apply(this, given);
            }}",
        );
        Self { calls, _replaced: Replaced::method(class, method, &count) }
    }

    fn classes(class: &'static str, name: &str) -> Self {
        let (calls, list) = Self::list(name);
        let counting = format!(
            "return class extends original {{
                constructor(given) {{
                    super(given);
                    if (given.startsWith('{name}')) globalThis['{list}'].push(1);
                }}
            }}",
        );
        let wrap = Function::new_with_args("original", &counting);
        let wrapped = wrap.call1(&JsValue::UNDEFINED, &property(&global(), class)).unwrap();
        Self { calls, _replaced: Replaced::new(&global(), class, &wrapped) }
    }

    fn list(name: &str) -> (Array, String) {
        let (calls, list) = (Array::new(), format!("counted {name}"));
        Reflect::set(&global(), &list.as_str().into(), &calls).unwrap();
        (calls, list)
    }

    fn count(&self) -> u32 {
        self.calls.length()
    }
}

/// One that nobody else has.
fn session() -> SessionId {
    SessionId(WebExecutor::new().random())
}

fn message(key: &str) -> Message {
    Message { store: StoreId(7), key: Key::new(key).unwrap(), body: Body::Gone { holder: SessionId(9) } }
}

#[test]
async fn they_keep_the_contract_of_all_signals() {
    let name = fresh_name("contract");
    let settle = async || WebExecutor::new().sleep(Duration::from_millis(30)).await;
    contract::all(async || BroadcastSignals::new(&name), settle).await;
}

#[test]
async fn messages_reach_the_others_and_not_oneself() {
    let name = fresh_name("messages");
    let [one, two, three, elsewhere] = [&name, &name, &name, &fresh_name("elsewhere")].map(|name| Context::new(name));
    for context in [&one, &two, &three, &elsewhere] {
        assert!(!context.listen(), "no beacon was asked for");
    }
    one.signals.send(&message("first"));
    one.signals.send(&message("second \u{1f98a}"));
    for other in [&two, &three] {
        assert_eq!(other.next().await, Notice::Message(message("first")));
        assert_eq!(other.next().await, Notice::Message(message("second \u{1f98a}")));
    }
    settle().await;
    assert_eq!((one.arrived(), elsewhere.arrived()), (None, None));
}

/// What concerns one session alone.
fn to(holder: SessionId, key: &str) -> Message {
    Message { body: Body::Ended { holder }, ..message(key) }
}

#[test]
async fn what_concerns_one_session_wakes_no_other() {
    let name = fresh_name("inbox");
    let [sender, one, two] = [Context::new(&name), Context::new(&name), Context::new(&name)];
    let [first, second] = [session(), session()];
    sender.listen();
    one.wake(first, false);
    two.wake(second, false);
    let keys: Vec<_> = (0..20).map(|number| format!("k{number}")).collect();
    for key in &keys {
        sender.signals.send(&to(first, key));
        sender.signals.send(&to(second, key));
    }
    for (context, session) in [(&one, first), (&two, second)] {
        let mut arrived = Vec::new();
        for _ in &keys {
            arrived.push(context.next().await);
        }
        assert!(keys.iter().all(|key| arrived.contains(&Notice::Message(to(session, key)))), "{arrived:?}");
    }
    settle().await;
    assert_eq!((sender.arrived(), one.arrived(), two.arrived()), (None, None, None));
}

#[test]
async fn what_concerns_a_session_that_has_ended_reaches_nobody() {
    let name = fresh_name("ended");
    let [sender, one] = [Context::new(&name), Context::new(&name)];
    let first = session();
    sender.listen();
    one.wake(first, false);
    one.listen();
    sender.signals.send(&to(first, "k"));
    settle().await;
    assert_eq!(one.arrived(), None);
}

#[test]
async fn what_is_no_message_is_dropped() {
    let name = fresh_name("garbage");
    let context = Context::new(&name);
    context.listen();
    let raw = web_sys::BroadcastChannel::new(&name).unwrap();
    let newer = message("k").encode().replace(r#""format":1"#, r#""format":2"#);
    let garbage = [JsValue::NULL, 7.into(), "".into(), "{}".into(), newer.into(), js_sys::Object::new().into()];
    for value in garbage {
        raw.post_message(&value).unwrap();
    }
    raw.post_message(&message("good").encode().into()).unwrap();
    assert_eq!(context.next().await, Notice::Message(message("good")));
    raw.close();
}

#[test]
async fn who_rests_hears_nothing_and_says_nothing() {
    let name = fresh_name("resting");
    let [one, two] = [Context::new(&name), Context::new(&name)];
    one.signals.send(&message("before waking"));
    one.listen();
    two.listen();
    two.signals.rest();
    two.signals.send(&message("after resting"));
    one.signals.send(&message("to nobody"));
    settle().await;
    assert_eq!((one.arrived(), two.arrived()), (None, None));
}

#[test]
async fn a_message_sent_just_before_resting_arrives() {
    let name = fresh_name("last-words");
    let [one, two] = [Context::new(&name), Context::new(&name)];
    let recipient = session();
    one.listen();
    two.wake(recipient, false);
    one.signals.send(&message("last"));
    one.signals.send(&to(recipient, "own"));
    one.signals.rest();
    let both = [two.next().await, two.next().await];
    for sent in [message("last"), to(recipient, "own")] {
        assert!(both.contains(&Notice::Message(sent)), "{both:?}");
    }
}

#[test]
async fn a_beacon_is_seen_standing_until_its_holder_rests() {
    let name = fresh_name("beacon");
    let [holder, watcher] = [Context::new(&name), Context::new(&name)];
    let raised = session();
    holder.stand(raised).await;
    watcher.listen();
    watcher.signals.watch(5, raised);
    settle().await;
    assert_eq!(watcher.arrived(), None);
    holder.signals.rest();
    assert_eq!(watcher.next().await, Notice::BeaconGone { watch: 5 });
    // For ever: whoever looks later sees it gone too.
    watcher.signals.watch(6, raised);
    assert_eq!(watcher.next().await, Notice::BeaconGone { watch: 6 });
    assert_eq!(holder.arrived(), None);
}

#[test]
async fn all_who_watch_are_told() {
    let name = fresh_name("watchers");
    let [holder, one, two] = [Context::new(&name), Context::new(&name), Context::new(&name)];
    let raised = session();
    holder.stand(raised).await;
    one.listen();
    two.listen();
    one.signals.watch(1, raised);
    one.signals.watch(2, raised);
    two.signals.watch(1, raised);
    holder.signals.rest();
    let both = [one.next().await, one.next().await];
    assert!(both.contains(&Notice::BeaconGone { watch: 1 }) && both.contains(&Notice::BeaconGone { watch: 2 }));
    assert_eq!(two.next().await, Notice::BeaconGone { watch: 1 });
}

#[test]
async fn a_watch_that_was_ended_says_nothing() {
    let name = fresh_name("unwatch");
    let [holder, watcher] = [Context::new(&name), Context::new(&name)];
    let raised = session();
    holder.stand(raised).await;
    watcher.listen();
    watcher.signals.watch(1, raised);
    watcher.signals.watch(2, raised);
    until(async || locks(&name).await.len() == 3).await;
    watcher.signals.unwatch(1);
    watcher.signals.unwatch(77);
    holder.signals.rest();
    assert_eq!(watcher.next().await, Notice::BeaconGone { watch: 2 });
    settle().await;
    assert_eq!(watcher.arrived(), None);
}

/// Contexts that take turns wait behind the same one again and again.
#[test]
async fn who_watches_the_same_session_again_is_told_by_the_request_that_stands() {
    let name = fresh_name("again");
    let [holder, other, watcher] = [Context::new(&name), Context::new(&name), Context::new(&name)];
    let [raised, else_raised] = [session(), session()];
    holder.stand(raised).await;
    other.stand(else_raised).await;
    watcher.listen();
    watcher.signals.watch(1, raised);
    until(async || locks(&name).await.len() == 3).await;
    let requests = Counted::calls("LockManager", "request", &name);
    for watch in 2..10 {
        watcher.signals.unwatch(watch - 1);
        watcher.signals.watch(watch, raised);
    }
    assert_eq!(requests.count(), 0, "the request stands");
    // Of those that serve nobody, only the last stays.
    watcher.signals.unwatch(9);
    watcher.signals.watch(10, else_raised);
    watcher.signals.watch(11, raised);
    assert_eq!(requests.count(), 2, "the one was taken back for the other");
    until(async || locks(&name).await.len() == 4).await;
    holder.signals.rest();
    assert_eq!(watcher.next().await, Notice::BeaconGone { watch: 11 });
    watcher.signals.unwatch(10);
    other.signals.rest();
    until(async || locks(&name).await.is_empty()).await;
    settle().await;
    assert_eq!(watcher.arrived(), None, "whom nobody watches any more is not told of");
}

#[test]
async fn who_posts_to_the_same_session_again_opens_no_other_channel() {
    let name = fresh_name("posts");
    let [sender, one] = [Context::new(&name), Context::new(&name)];
    let first = session();
    sender.listen();
    one.wake(first, false);
    sender.signals.send(&to(first, "k"));
    let opened = Counted::classes("BroadcastChannel", &name);
    sender.signals.send(&to(first, "l"));
    assert_eq!(opened.count(), 0);
    sender.signals.send(&to(session(), "k"));
    sender.signals.send(&to(first, "m"));
    assert_eq!(opened.count(), 2, "one at a time");
    for key in ["k", "l", "m"] {
        assert_eq!(one.next().await, Notice::Message(to(first, key)));
    }
}

#[test]
async fn a_beacon_that_was_lowered_before_it_stood_never_stands() {
    let name = fresh_name("early-rest");
    let context = Context::new(&name);
    assert!(context.wake(session(), true));
    context.signals.rest();
    settle().await;
    assert_eq!(context.arrived(), None);
    until(async || locks(&name).await.is_empty()).await;
}

#[test]
async fn nothing_is_left_after_resting() {
    let name = fresh_name("left");
    let [holder, watcher] = [Context::new(&name), Context::new(&name)];
    let raised = session();
    holder.stand(raised).await;
    watcher.stand(session()).await;
    watcher.signals.watch(1, raised);
    until(async || locks(&name).await.len() == 3).await;
    assert!(locks(&name).await.contains(&format!("{name}:{raised}")));
    watcher.signals.rest();
    until(async || locks(&name).await == [format!("{name}:{raised}")]).await;
    drop(holder);
    until(async || locks(&name).await.is_empty()).await;
}

#[test]
async fn a_context_may_wake_again_with_a_new_session() {
    let name = fresh_name("again");
    let [holder, watcher] = [Context::new(&name), Context::new(&name)];
    let [first, second] = [session(), session()];
    holder.stand(first).await;
    watcher.listen();
    watcher.signals.watch(1, first);
    holder.signals.rest();
    holder.stand(second).await;
    assert_eq!(watcher.next().await, Notice::BeaconGone { watch: 1 });
    watcher.signals.watch(2, second);
    settle().await;
    assert_eq!(watcher.arrived(), None);
}

#[test]
async fn signals_may_be_ended_from_within_a_notice() {
    let name = fresh_name("within");
    let [holder, watcher] = [Context::new(&name), Context::new(&name)];
    let raised = session();
    // By a message, by the beacon that stands, by a beacon that is gone.
    watcher.listen();
    holder.listen();
    watcher.inbox.rests.replace(Some(Rc::clone(&watcher.signals)));
    holder.signals.send(&message("k"));
    assert_eq!(watcher.next().await, Notice::Message(message("k")));

    watcher.inbox.rests.replace(Some(Rc::clone(&watcher.signals)));
    watcher.stand(session()).await;

    holder.stand(raised).await;
    watcher.listen();
    watcher.signals.watch(1, raised);
    watcher.inbox.rests.replace(Some(Rc::clone(&watcher.signals)));
    holder.signals.rest();
    assert_eq!(watcher.next().await, Notice::BeaconGone { watch: 1 });
    until(async || locks(&name).await.is_empty()).await;
}

#[test]
async fn without_web_locks_there_are_messages_and_no_beacons() {
    let name = fresh_name("insecure");
    let _insecure = Replaced::new(&property(&global(), "navigator"), "locks", &JsValue::UNDEFINED);
    let [one, two] = [Context::new(&name), Context::new(&name)];
    assert!(!one.wake(session(), true));
    assert!(!two.listen());
    two.signals.watch(1, session());
    two.signals.unwatch(1);
    one.signals.send(&message("k"));
    assert_eq!(two.next().await, Notice::Message(message("k")));
    settle().await;
    assert_eq!((one.arrived(), two.arrived()), (None, None));
}

/// Some browsers release a page's locks behind its back.
#[test]
async fn a_beacon_that_was_taken_away_is_told_to_its_holder_and_to_who_watches() {
    let name = fresh_name("stolen");
    let [holder, watcher] = [Context::new(&name), Context::new(&name)];
    let raised = session();
    holder.stand(raised).await;
    watcher.listen();
    watcher.signals.watch(1, raised);
    until(async || locks(&name).await.len() == 2).await;
    let steal = Function::new_with_args("name", "return navigator.locks.request(name, { steal: true }, () => {})");
    let stolen = steal.call1(&JsValue::UNDEFINED, &format!("{name}:{raised}").into()).unwrap();
    JsFuture::from(stolen.unchecked_into::<Promise>()).await.unwrap();
    assert_eq!(holder.next().await, Notice::BeaconLost(raised));
    assert_eq!(watcher.next().await, Notice::BeaconGone { watch: 1 });
}

#[test]
async fn a_refused_lock_is_told_at_once() {
    let refuse = "function () { return Promise.reject(new DOMException('opaque origin', 'SecurityError')) }";
    let _refused = Replaced::method("LockManager", "request", refuse);
    let context = Context::new(&fresh_name("refused"));
    let refused = session();
    assert!(context.wake(refused, true));
    context.signals.watch(1, session());
    assert_eq!(context.next().await, Notice::BeaconLost(refused));
    settle().await;
    assert_eq!(context.arrived(), None);
}

#[test]
async fn without_broadcast_channels_there_are_beacons_and_no_messages() {
    let name = fresh_name("no-channel");
    let _none = Replaced::new(&global(), "BroadcastChannel", &JsValue::UNDEFINED);
    let [one, two] = [Context::new(&name), Context::new(&name)];
    one.stand(session()).await;
    two.stand(session()).await;
    one.signals.send(&message("k"));
    settle().await;
    assert_eq!(two.arrived(), None);
}
