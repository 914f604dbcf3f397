//! The description of the API for programs (OpenAPI 3.1) is that of the routes and of the types.
//!
//! It is made from the routes, each of which has the types of its request and its answer, with
//! their documentation. The table at the head of `routes.rs` names the same types.
//! `AQUIFER_BLESS=1` writes it.

use std::path::Path;

use aquifer_api as api;
use aquifer_daemon::http::{Route, routes};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

const TABLE: &str = include_str!("../../src/http/routes.rs");
const WRITTEN: &str = include_str!("../../src/http/openapi.json");

/// Types of a route, as a line of the table gives them.
struct Line {
    /// The type of its body or its query; `bytes`, or nothing.
    takes: Option<String>,
    /// The type of its answer; `[..]` for a list of them.
    gives: String,
}

fn line(route: &Route) -> Line {
    let begin = format!("//! {:<4} {} ", route.method, route.path);
    let line = TABLE.lines().find_map(|line| line.strip_prefix(&begin)).unwrap();
    let (before, after) = line.split_once("->").unwrap();
    let takes = before.split_whitespace().nth(1).map(str::to_string);
    Line { takes, gives: after.split_whitespace().next().unwrap().to_string() }
}

fn described() -> Value {
    let settings = SchemaSettings::draft2020_12();
    let settings = settings.with(|to| to.definitions_path = "/components/schemas".into());
    let mut schemas = settings.into_generator();
    let mut paths: Map<String, Value> = Map::new();
    // Builds for service do not have it.
    let all = routes().into_iter().filter(|route| !route.path.ends_with("/inject"));
    for route in all {
        let path = paths.entry(route.whole_path()).or_insert_with(|| json!({}));
        path[route.method.to_lowercase()] = operation(&route, &mut schemas);
    }
    let error = schema(None, "ApiError", &mut schemas);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Aquifer",
            "version": "1",
            "description": "docs/api.md has the rules, and examples.",
            "license": {"name": "Apache-2.0"},
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {"Error": {
                "description": "Why it was not done.",
                "content": {"application/json": {"schema": error}},
            }},
            "schemas": schemas.take_definitions(true),
        },
    })
}

/// The name of a type in the table.
fn shown(of: &api::Schema) -> String {
    let name = (of.name)();
    match name.strip_prefix("Array_of_") {
        Some(item) => format!("[{item}]"),
        None => name.into(),
    }
}

/// The table names the types that routes have.
fn check_line(shape: &api::Types, Line { takes, gives }: &Line) {
    assert_eq!(shape.takes.as_ref().map(shown), *takes);
    assert_eq!(shown(&shape.gives), *gives);
}

fn operation(route: &Route, schemas: &mut SchemaGenerator) -> Value {
    let line = line(route);
    if let Some(shape) = &route.shape {
        check_line(shape, &line);
    }
    let Line { takes, gives } = line;
    let mut parameters = Vec::new();
    if route.path.contains("{name}") {
        let text = json!({"type": "string"});
        parameters.push(json!({"name": "name", "in": "path", "required": true, "schema": text}));
    }
    let content = match gives.as_str() {
        "text" => json!({"text/plain": {}}),
        "bytes" => json!({"application/octet-stream": {}}),
        "this" => json!({"application/json": {}}),
        gives => {
            let of = route.shape.map(|shape| shape.gives);
            json!({"application/json": {"schema": schema(of, gives, schemas)}})
        }
    };
    let words = route.path.split(['/', '-', '.']).filter(|word| !word.is_empty());
    let words = words.map(|word| if word == "{name}" { "one" } else { word });
    let id: Vec<String> =
        std::iter::once(route.method.to_lowercase()).chain(words.map(str::to_string)).collect();
    let mut operation = json!({
        "operationId": id.join("_"),
        "description": format!("Needs the role {} or more.", route.role),
        "responses": {
            "200": {"description": "It was done.", "content": content},
            "default": {"$ref": "#/components/responses/Error"},
        },
    });
    match takes.as_deref() {
        Some("bytes") => {
            operation["requestBody"] = json!({"content": {"application/octet-stream": {}}});
        }
        Some(query) if route.method == "GET" => {
            let of = route.shape.and_then(|shape| shape.takes);
            parameters.extend(query_of(of, query, schemas));
        }
        Some(body) => {
            let of = route.shape.and_then(|shape| shape.takes);
            let schema = schema(of, body, schemas);
            let content = json!({"application/json": {"schema": schema}});
            operation["requestBody"] = json!({"required": true, "content": content});
        }
        None => {}
    }
    if !parameters.is_empty() {
        operation["parameters"] = json!(parameters);
    }
    operation
}

/// The fields of a query, as parameters.
fn query_of(of: Option<api::Schema>, name: &str, schemas: &mut SchemaGenerator) -> Vec<Value> {
    schema(of, name, schemas);
    let query = schemas.definitions()[name].clone();
    let is_required = |field: &String| {
        let required = query.get("required").and_then(Value::as_array);
        required.is_some_and(|required| required.contains(&json!(field)))
    };
    let fields = query["properties"].as_object().unwrap().iter();
    let each = fields.map(|(field, schema)| {
        json!({"name": field, "in": "query", "required": is_required(field), "schema": schema})
    });
    each.collect()
}

fn schema(of: Option<api::Schema>, name: &str, schemas: &mut SchemaGenerator) -> Value {
    if let Some(of) = of {
        return (of.place)(schemas).to_value();
    }
    let found = TYPES.iter().find(|(of, _)| *of == name);
    let (_, of) = found.unwrap_or_else(|| panic!("the type {name} is not in this list"));
    of(schemas)
}

fn of<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Value {
    schemas.subschema_for::<T>().to_value()
}

/// A type by its name.
type Type = (&'static str, fn(&mut SchemaGenerator) -> Value);

/// Types of parts of streams, which are no requests of the API's types, and of errors.
const TYPES: [Type; 3] = [
    ("ApiError", of::<api::ApiError>),
    ("ReceivedPart", of::<api::ReceivedPart>),
    ("SendQuery", of::<api::SendQuery>),
];

#[test]
fn the_description_for_programs_is_that_of_the_routes() {
    let mut text = serde_json::to_string_pretty(&described()).unwrap();
    text.push('\n');
    if std::env::var_os("AQUIFER_BLESS").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http/openapi.json");
        std::fs::write(path, &text).unwrap();
        return;
    }
    assert!(text == WRITTEN, "openapi.json is out of date: AQUIFER_BLESS=1 cargo test writes it");
    // Each reference leads somewhere, and nothing stands there that no route needs.
    let all: Value = serde_json::from_str(&text).unwrap();
    let schemas = all["components"]["schemas"].as_object().unwrap();
    for name in schemas.keys() {
        let place = format!("\"#/components/schemas/{name}\"");
        assert!(text.contains(&place) || name.ends_with("Query"), "{name}");
    }
    for place in text.split("\"#/components/schemas/").skip(1) {
        let name = place.split('"').next().unwrap();
        assert!(schemas.contains_key(name), "{name}");
    }
    let paths = all["paths"].as_object().unwrap();
    assert!(routes().iter().all(|route| {
        route.path.ends_with("/inject")
            || paths[&route.whole_path()].get(route.method.to_lowercase()).is_some()
    }));
}
