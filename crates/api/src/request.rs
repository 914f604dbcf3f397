//! A request describes itself: its method, its path, the role that it needs and its answer stand
//! beside its type, in one line of [`request`]. The client asks by that, the daemon makes the route
//! of it, and the description for programs (OpenAPI) has it too.
//!
//! ```text
//! request!(Post "/snapshots/hold", Operator, HoldSnapshots -> SnapshotsDone);
//! request!(Get "/bookmarks", Read, BookmarkQuery(SnapshotQuery) -> Vec<BookmarkInfo>);
//! request!(Post "/pools/{name}/scrub", Operator, On<ScrubRequest> -> PoolDone);
//! request!(Post "/pools/{name}/clear", Operator, On<ClearPool>, () -> PoolDone);
//! ```
//! The first one is its own body, or query if the method is GET. The second one travels as another
//! type, which several routes share. The third one has a name in its path. The last one has neither
//! a body nor a query.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::role::Role;

/// A method of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// The content of the request is its query.
    Get,
    /// The content of the request is its body.
    Post,
}

impl Method {
    /// Its name in HTTP.
    pub const fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
        }
    }
}

/// A request of the API.
pub trait ApiRequest: Sized + Send + Sync + 'static {
    /// Its query, or its body.
    type Content: Payload;
    /// Its answer.
    type Answer: Payload;
    /// How it travels.
    const METHOD: Method;
    /// Its path below [`PATH`](crate::PATH); `{name}` stands for any name.
    const PATH: &'static str;
    /// Least role that a caller must have.
    const ROLE: Role;

    /// The name in its path, if there is one, and its content.
    fn parts(&self) -> (&str, &Self::Content);

    /// The request of these parts.
    fn of_parts(name: String, content: Self::Content) -> Self;

    /// The content of a request that has none.
    fn no_content() -> Option<Self::Content> {
        None
    }
}

/// A request that changes something.
pub trait Operation: ApiRequest {
    /// The operation in words of the command line, for the history and the audit log.
    fn words(&self) -> String;
}

/// A request on what has a name, which stands in its path: a pool, a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct On<R> {
    /// The name.
    pub name: String,
    /// The request.
    pub request: R,
}

impl<R> On<R> {
    /// A request on what has this name.
    pub fn new(name: impl Into<String>, request: R) -> On<R> {
        On { name: name.into(), request }
    }
}

/// Content of requests and answers: JSON, or the words of a query.
pub trait Payload: Serialize + DeserializeOwned + Schemed + Send + Sync + 'static {}

impl<T: Serialize + DeserializeOwned + Schemed + Send + Sync + 'static> Payload for T {}

/// Types with a schema, where there are schemas; else all types.
#[cfg(feature = "schema")]
pub trait Schemed: schemars::JsonSchema {}
#[cfg(feature = "schema")]
impl<T: schemars::JsonSchema> Schemed for T {}

/// Types with a schema, where there are schemas; else all types.
#[cfg(not(feature = "schema"))]
pub trait Schemed {}
#[cfg(not(feature = "schema"))]
impl<T> Schemed for T {}

/// The types of a request, for its description.
#[derive(Debug, Clone, Copy)]
pub struct Types {
    /// Its content, if it has any.
    #[cfg(feature = "schema")]
    pub takes: Option<Schema>,
    /// Its answer.
    #[cfg(feature = "schema")]
    pub gives: Schema,
}

impl Types {
    /// The types of a request.
    pub fn of<R: ApiRequest>() -> Types {
        Types {
            #[cfg(feature = "schema")]
            takes: R::no_content().is_none().then_some(Schema::of::<R::Content>()),
            #[cfg(feature = "schema")]
            gives: Schema::of::<R::Answer>(),
        }
    }
}

/// A type as JSON Schema.
#[cfg(feature = "schema")]
#[derive(Debug, Clone, Copy)]
pub struct Schema {
    /// Its name.
    pub name: fn() -> std::borrow::Cow<'static, str>,
    /// The place of its schema, which the generator defines.
    pub place: fn(&mut schemars::SchemaGenerator) -> schemars::Schema,
}

#[cfg(feature = "schema")]
impl Schema {
    /// The schema of a type.
    pub fn of<T: schemars::JsonSchema>() -> Schema {
        Schema { name: T::schema_name, place: |schemas| schemas.subschema_for::<T>() }
    }
}

/// Describes a request, as the head of this module has it.
macro_rules! request {
    ($method:ident $path:literal, $role:ident, On<$of:ident>, () -> $answer:ty) => {
        request!(@ $method $path $role $answer, $crate::request::On<$of>, (), Some(()),
            name content (name, &()) { $crate::request::On { name, request: $of } });
    };
    ($method:ident $path:literal, $role:ident, On<$of:ident($content:ident)> -> $answer:ty) => {
        request!(@ $method $path $role $answer, $crate::request::On<$of>, $content, None,
            name content (name, content) {
                $crate::request::On { name, request: $of(content) }
            });
    };
    ($method:ident $path:literal, $role:ident, On<$of:ident> -> $answer:ty) => {
        request!(@ $method $path $role $answer, $crate::request::On<$of>, $of, None,
            name content (name, content) { $crate::request::On { name, request: content } });
    };
    ($method:ident $path:literal, $role:ident, $of:ident, () -> $answer:ty) => {
        request!(@ $method $path $role $answer, $of, (), Some(()), name content ("", &()) { $of });
    };
    ($method:ident $path:literal, $role:ident, $of:ident($content:ident) -> $answer:ty) => {
        request!(@ $method $path $role $answer, $of, $content, None,
            name content ("", content) { $of(content) });
    };
    ($method:ident $path:literal, $role:ident, $of:ident -> $answer:ty) => {
        request!(@ $method $path $role $answer, $of, $of, None,
            name content ("", content) { content });
    };
    // The last braces hold the request, both as it is taken apart and as it is made.
    (@ $method:ident $path:literal $role:ident $answer:ty, $request:ty, $content:ty, $none:expr,
        $name:ident $part:ident $parts:tt { $($form:tt)+ }
    ) => {
        impl $crate::request::ApiRequest for $request {
            type Content = $content;
            type Answer = $answer;
            const METHOD: $crate::request::Method = $crate::request::Method::$method;
            const PATH: &'static str = $path;
            const ROLE: $crate::role::Role = $crate::role::Role::$role;

            #[allow(unused_variables, reason = "not all have a name")]
            fn parts(&self) -> (&str, &$content) {
                let $($form)+ = self;
                $parts
            }

            #[allow(unused_variables, reason = "not all have a name")]
            fn of_parts($name: String, $part: $content) -> Self {
                $($form)+
            }

            fn no_content() -> Option<$content> {
                $none
            }
        }
    };
}

pub(crate) use request;
