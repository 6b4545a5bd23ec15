//! The description of the API in OpenAPI 3.1: `GET /v1/openapi.json`.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use underload_fleet::message::{
    Enrol, Enrolled, Heartbeat, HeartbeatAnswer, Move, Moved, Next, NextAnswer, OpenSession,
    Problem, Release, Released, Results, Session, Stored,
};
use underload_fleet::operator::{
    self, ApplyPlan, ListLines, NewCodes, PutLines, RemoveDevice, SetServerAddress, StopPlan,
};
use utoipa::ToSchema;
use utoipa::openapi::{RefOr, Schema};

use super::signed::{SESSION, TAG, TIME};

/// How the sender of a request authenticates.
#[derive(Clone, Copy, PartialEq)]
enum Sender {
    Anybody,
    Session,
    Token,
}

/// Error answers by status.
const PROBLEMS: [(&str, &str); 12] = [
    ("400", "The request is invalid"),
    ("401", "The sender is not authenticated"),
    ("403", "The sender is not allowed to do this"),
    ("404", "The path, or what the request names, does not exist"),
    ("405", "The path requires another method"),
    ("408", "The body took too long to arrive"),
    ("409", "The request conflicts with what is stored"),
    ("410", "The sender was removed and must stop for good"),
    ("413", "The body is too large: send less at once"),
    ("429", "Too many requests: retry after Retry-After seconds"),
    ("500", "The orchestrator or its store has a defect"),
    ("503", "Overloaded or store unreachable: retry after Retry-After seconds; nothing was stored"),
];

/// Limits that the types do not express: a schema, its fields, and their JSON Schema keywords.
const LIMITS: &str = include_str!("limits.json");

type Limit = (String, Vec<String>, BTreeMap<String, Value>);

#[derive(Default)]
struct Description {
    paths: BTreeMap<&'static str, Value>,
    schemas: BTreeMap<String, RefOr<Schema>>,
}

impl Description {
    fn schema<T: ToSchema>(&mut self) -> Value {
        let mut used = vec![(T::name().into_owned(), T::schema())];
        T::schemas(&mut used);
        self.schemas.extend(used);
        json!({ "application/json": { "schema": {
            "$ref": format!("#/components/schemas/{}", T::name()) } } })
    }

    fn operator<M: operator::Message<Answer: ToSchema> + ToSchema>(&mut self, about: &str) {
        self.post::<M, M::Answer>(M::PATH, Sender::Token, about);
    }

    fn post<M: ToSchema, A: ToSchema>(&mut self, path: &'static str, sender: Sender, about: &str) {
        let id = path.trim_start_matches("/v1/").replace('/', "-");
        let answer = self.schema::<A>();
        let mut responses = json!({ "200": { "description": "Done", "content": answer } });
        let (message, problem) = (self.schema::<M>(), self.schema::<Problem>());
        for (status, description) in PROBLEMS {
            responses[status] = json!({ "description": description, "content": problem });
            if matches!(status, "429" | "503") {
                responses[status]["headers"] = json!({ "Retry-After": {
                    "description": "Seconds", "schema": { "type": "integer", "minimum": 1 } } });
            }
        }
        let security = match sender {
            Sender::Anybody => json!([]),
            Sender::Session => json!([{ "session": [], "time": [], "tag": [] }]),
            Sender::Token => json!([{ "token": [] }]),
        };
        self.paths.insert(
            path,
            json!({ "post": {
            "operationId": id,
            "summary": about,
            "requestBody": { "required": true, "content": message },
            "responses": responses,
            "security": security,
        } }),
        );
    }
}

pub fn document() -> Value {
    let mut it = Description::default();
    it.post::<Enrol, Enrolled>("/v1/enrol", Sender::Anybody, "Enrols a device or a server");
    it.post::<OpenSession, Session>(
        "/v1/session",
        Sender::Anybody,
        "Opens a session for an hour by proof of a key",
    );
    it.post::<Next, NextAnswer>("/v1/next", Sender::Session, "Requests the next run");
    it.post::<Move, Moved>("/v1/move", Sender::Session, "Moves a lease to another server");
    it.post::<Release, Released>(
        "/v1/release",
        Sender::Session,
        "Releases the lease of a finished run",
    );
    it.post::<Results, Stored>("/v1/results", Sender::Session, "Hands in results");
    it.post::<Heartbeat, HeartbeatAnswer>(
        "/v1/heartbeat",
        Sender::Session,
        "Reports the load and leases of a server",
    );
    it.operator::<NewCodes>("Makes codes for enrolment");
    it.operator::<ApplyPlan>("Applies a plan");
    it.operator::<StopPlan>("Stops a plan for good");
    it.operator::<RemoveDevice>("Removes a device or a server for good");
    it.operator::<SetServerAddress>("Changes the address of a server");
    it.operator::<PutLines>("Records lines: their names, devices, and attributes over time");
    it.operator::<ListLines>("Lists lines");
    let header =
        |name, what| json!({ "type": "apiKey", "in": "header", "name": name, "description": what });
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "underload orchestrator",
            "description": "Admits the runs of devices and collects their results",
            "version": env!("CARGO_PKG_VERSION"),
        },
        "paths": it.paths,
        "components": {
            "schemas": it.schemas,
            "securitySchemes": {
                "session": header(SESSION, "The session that /v1/session returned"),
                "time": header(TIME, "Milliseconds since 1970, by the orchestrator's clock"),
                "tag": header(TAG, "HMAC-SHA-256, by the session's key, of the method, a space, \
                    the path and query, a line feed, the time, a line feed and the body; 64 \
                    hexadecimal digits"),
                "token": { "type": "http", "scheme": "bearer" },
            },
        },
    });
    limit(&mut document["components"]["schemas"]);
    document
}

/// Adds [`LIMITS`] and the ranges of integers.
fn limit(schemas: &mut Value) {
    let limits: Vec<Limit> = serde_json::from_str(LIMITS).unwrap_or_default();
    for (schema, fields, limits) in &limits {
        for field in fields {
            for (name, limit) in limits {
                schemas[schema]["properties"][field][name] = limit.clone();
            }
        }
    }
    whole_numbers(schemas);
}

fn whole_numbers(schema: &mut Value) {
    let most = match schema.get("format").and_then(Value::as_str) {
        Some("int32") => u64::from(u32::MAX),
        Some("int64") => u64::MAX,
        _ => 0,
    };
    // All integers of the API are unsigned.
    if most > 0 {
        let is_short = most == u64::from(u32::MAX);
        schema["format"] = if is_short { "uint32".into() } else { "uint64".into() };
        if schema.get("maximum").is_none() {
            schema["maximum"] = most.into();
        }
    }
    match schema {
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        _ => {}
    }
}
