//! Acts over the network that wait for a second person.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::request::{On, Operation, request};

/// `GET /confirmations`: acts that wait for a second person.
#[derive(Debug, Clone, Copy)]
pub struct ConfirmationsQuery;

request!(Get "/confirmations", Read, ConfirmationsQuery, () -> Vec<WaitingAct>);

/// An act that waits, in `GET /confirmations`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WaitingAct {
    /// Its number.
    pub number: u64,
    /// The whole act, in words of the command line.
    pub act: String,
    /// Caller that asked for the act: `token NAME from ADDRESS`.
    pub who: String,
    /// When, in seconds since 1970.
    pub asked_s: u64,
    /// Until when it waits, in seconds since 1970.
    pub until_s: u64,
    /// Outcome when the wait ends.
    pub then: AfterWait,
}

/// Outcome of an act that nobody confirms or refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AfterWait {
    /// It is dropped: `two_persons=on`.
    Dropped,
    /// It is carried out: `two_persons=delay=24h`.
    CarriedOut,
}

/// `POST /confirmations/{name}/confirm`, and `/refuse`; the name is the number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ConfirmAct {
    /// The act, as the list showed it: another one is not confirmed.
    pub act: String,
}

request!(Post "/confirmations/{name}/confirm", Admin, On<ConfirmAct> -> Confirmed);

impl Operation for On<ConfirmAct> {
    fn words(&self) -> String {
        format!("confirm {}: {}", self.name, self.request.act)
    }
}

/// `POST /confirmations/{name}/refuse`: drops an act that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefuseAct(pub ConfirmAct);

request!(Post "/confirmations/{name}/refuse", Admin, On<RefuseAct(ConfirmAct)> -> WaitingAct);

impl Operation for On<RefuseAct> {
    fn words(&self) -> String {
        format!("refuse {}: {}", self.name, self.request.0.act)
    }
}

/// An act that a second person confirmed was carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Confirmed {
    /// The act.
    pub waited: WaitingAct,
    /// Its answer, as its route has it.
    pub answer: Value,
}
