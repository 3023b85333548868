//! What a browser does to a page: it prerenders it, hides it, freezes it, keeps it in the back/forward cache, and ends it.
//!
//! [The life cycle of pages](https://developer.chrome.com/docs/web-platform/page-lifecycle-api). Workers get none of these
//! events: a late tick is their only sign.

use std::rc::Rc;

use js_sys::Function;
use wasm_bindgen::prelude::*;
use web_sys::{Event, EventTarget};

use super::super::{Lifecycle, LifecycleWatch, LifecycleWatcher, WeakShared};

/// The event, and whether it is the document's; else it is the window's.
const EVENTS: [(&str, bool); 6] = [
    // https://developer.mozilla.org/en-US/docs/Web/API/Window/pagehide_event
    ("pagehide", false),
    // https://developer.mozilla.org/en-US/docs/Web/API/Window/pageshow_event
    ("pageshow", false),
    // https://developer.mozilla.org/en-US/docs/Web/API/Document/visibilitychange_event
    ("visibilitychange", true),
    // Chromium alone: https://wicg.github.io/page-lifecycle/
    ("freeze", true),
    ("resume", true),
    // Chromium alone: https://developer.mozilla.org/en-US/docs/Web/API/Document/prerenderingchange_event
    ("prerenderingchange", true),
];

/// The listeners of one watcher. Dropping it removes them.
struct Listeners {
    window: EventTarget,
    document: Rc<Document>,
    on_event: Closure<dyn Fn(Event)>,
}

/// Listens to the page, if this is one.
pub(super) fn watch(watcher: WeakShared<dyn LifecycleWatcher>) -> Option<Box<dyn LifecycleWatch>> {
    let window = js_sys::global().unchecked_into::<Global>();
    let document = Rc::new(window.document().ok()??);
    if document.prerendering() == Some(true) {
        let watcher = watcher.clone();
        // Nobody can be told before the manager is built.
        super::spawn(Box::pin(async move {
            if let Some(watcher) = watcher.upgrade() {
                watcher.lifecycle(Lifecycle::Suspending);
            }
        }));
    }
    let on_event = Closure::<dyn Fn(Event)>::new({
        let document = Rc::clone(&document);
        move |event: Event| {
            // A component of the page, such as a table that freezes a column, may fire an event of the same name, which bubbles up to here.
            if event.event_phase() == Event::AT_TARGET
                && let Some(watcher) = watcher.upgrade()
            {
                watcher.lifecycle(meaning(event.unchecked_ref(), &document));
            }
        }
    });
    let listeners = Listeners { window: window.unchecked_into(), document, on_event };
    listeners.listen(true);
    Some(Box::new(listeners))
}

fn meaning(event: &PageEvent, document: &Document) -> Lifecycle {
    match &*event.type_() {
        // A page that nobody sees yet, and perhaps never will, asks for nothing: the browser gives it no Web Lock either.
        // https://wicg.github.io/nav-speculation/prerendering.html#web-locks-patch
        _ if document.prerendering() == Some(true) => Lifecycle::Suspending,
        "pagehide" if event.persisted() == Some(false) => Lifecycle::Ending,
        "pagehide" | "freeze" => Lifecycle::Suspending,
        "visibilitychange" => [Lifecycle::Shown, Lifecycle::Hidden][usize::from(document.hidden())],
        _ => Lifecycle::Resumed,
    }
}

impl Listeners {
    /// Adds the listeners, or removes them. Either call fails only for a value that is no listener.
    fn listen(&self, begin: bool) {
        let listener: &Function = self.on_event.as_ref().unchecked_ref();
        for (name, of_document) in EVENTS {
            let target = if of_document { AsRef::<EventTarget>::as_ref(&*self.document) } else { &self.window };
            let _ = match begin {
                true => target.add_event_listener_with_callback(name, listener),
                false => target.remove_event_listener_with_callback(name, listener),
            };
        }
    }
}

impl LifecycleWatch for Listeners {
    /// `document.open()` removes all listeners of a page. Adding a listener that is still there changes nothing.
    fn renew(&self) {
        self.listen(true);
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        self.listen(false);
    }
}

#[wasm_bindgen]
extern "C" {
    /// `globalThis`, which may be a window.
    type Global;

    /// In some isolated contexts a mere look at it throws.
    #[wasm_bindgen(method, getter, catch)]
    fn document(this: &Global) -> Result<Option<Document>, JsValue>;

    #[wasm_bindgen(extends = Event)]
    type PageEvent;

    /// Whether the page may come back, from the back/forward cache. Of the events that are listened to here, `pagehide` and `pageshow` say
    /// so: <https://developer.mozilla.org/en-US/docs/Web/API/PageTransitionEvent/persisted>. An event that a script made may lack it.
    #[wasm_bindgen(method, getter)]
    fn persisted(this: &PageEvent) -> Option<bool>;

    #[wasm_bindgen(extends = EventTarget)]
    type Document;

    #[wasm_bindgen(method, getter)]
    fn hidden(this: &Document) -> bool;

    /// Whether the browser renders the page before anybody goes to it; Chromium alone.
    #[wasm_bindgen(method, getter)]
    fn prerendering(this: &Document) -> Option<bool>;
}
