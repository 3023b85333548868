//! The channels that messages go over.

use wasm_bindgen::prelude::*;
use web_sys::{BroadcastChannel, Event, MessageEvent};

use crate::executor::{Part, WeakShared};
use crate::machine::Message;
use crate::signal::{Inbox, Notice};

/// An open channel. Dropping it closes it.
pub(super) struct Channel {
    channel: BroadcastChannel,
    _on_message: Closure<dyn Fn(Event)>,
}

impl Channel {
    /// [MDN](https://developer.mozilla.org/en-US/docs/Web/API/BroadcastChannel/BroadcastChannel). If the class is missing, there are no
    /// messages.
    pub(super) fn open(name: &str, inbox: WeakShared<dyn Inbox>) -> Option<Self> {
        let channel = BroadcastChannel::new(name).ok()?;
        // It takes any event, as the other closures do: each further type of closure adds code to the wasm.
        let on_message = Closure::<dyn Fn(Event)>::new(move |event: Event| {
            // Anybody of this origin can post here: what is no message of ours is not for us.
            let decoding = Part::Decode.begin();
            let message =
                event.unchecked_ref::<MessageEvent>().data().as_string().and_then(|text| Message::decode(&text));
            drop(decoding);
            if let (Some(message), Some(inbox)) = (message, inbox.upgrade()) {
                inbox.notice(Notice::Message(message));
            }
        });
        channel.set_onmessage(Some(on_message.as_ref().unchecked_ref()));
        Some(Self { channel, _on_message: on_message })
    }

    /// [MDN](https://developer.mozilla.org/en-US/docs/Web/API/BroadcastChannel/postMessage)
    pub(super) fn post(&self, text: &str) {
        // A message may be lost, and nothing depends on it, so a failure is ignored.
        let _ = self.channel.post_message(&text.into());
    }
}

/// The channel of another context that was posted on last. Contexts that take turns post to the same one again and again,
/// and to open a channel takes longer than to post. Only one is kept: it hears what others post there, too.
#[derive(Default)]
pub(super) struct LastPosted(Option<(String, BroadcastChannel)>);

impl LastPosted {
    pub(super) fn post(&mut self, name: String, text: &str) {
        if self.0.as_ref().is_none_or(|(known, _)| *known != name) {
            self.close();
            self.0 = BroadcastChannel::new(&name).ok().map(|channel| (name, channel));
        }
        if let Some((_, channel)) = &self.0 {
            let _ = channel.post_message(&text.into());
        }
    }

    fn close(&mut self) {
        // Messages that were posted are still delivered.
        self.0.take().into_iter().for_each(|(_, channel)| channel.close());
    }
}

impl Drop for LastPosted {
    fn drop(&mut self) {
        self.close();
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.channel.set_onmessage(None);
        self.channel.close();
    }
}
