//! Events from the log. A log entry with a field `class` is an event, at any level, and even if the
//! log's filter drops it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use aquifer_admin::events::EventRing;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// Notes events in a ring.
pub(super) struct Events(pub Arc<EventRing>);

/// Whether a log entry is an event.
pub(super) fn is_event(logged: &Metadata<'_>) -> bool {
    logged.is_event() && logged.fields().field("class").is_some()
}

impl<S: Subscriber> Layer<S> for Events {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut words = Words::default();
        event.record(&mut words);
        let level = event.metadata().level().as_str().to_lowercase();
        self.0.note(&level, &words.class, &words.message, words.fields);
    }
}

#[derive(Default)]
struct Words {
    class: String,
    message: String,
    fields: BTreeMap<String, String>,
}

impl Words {
    fn put(&mut self, field: &Field, value: String) {
        match field.name() {
            "class" => self.class = value,
            "message" => self.message = value,
            name => drop(self.fields.insert(name.into(), value)),
        }
    }
}

impl Visit for Words {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, format!("{value:?}"));
    }
}
