//! Callers that bring streams.

use aquifer_api::HISTORY_ITSELF;
use aquifer_dataset::Feeder;

/// The one that brings a stream, or gives one up: a stream is its bringer's alone.
#[derive(Debug, Clone)]
pub struct Bringer {
    /// By this streams and copies are told apart: `token backup`, `uid 0`.
    principal: String,
    /// As the history has it.
    who: String,
    is_admin: bool,
    has_token: bool,
}

impl Bringer {
    /// A caller of the API.
    pub fn new(principal: String, who: String, is_admin: bool, has_token: bool) -> Bringer {
        Bringer { principal, who, is_admin, has_token }
    }

    /// The daemon itself, which replicates from one of its pools to another.
    pub fn itself() -> Bringer {
        Bringer::new(HISTORY_ITSELF.into(), HISTORY_ITSELF.into(), true, false)
    }

    /// The peer of this name, from which a copy is fetched: it may do what a token may that only
    /// receives.
    pub fn peer(name: &str) -> Bringer {
        let principal = format!("peer {name}");
        Bringer { who: principal.clone(), principal, is_admin: false, has_token: true }
    }

    /// By this it is told apart from others.
    pub fn principal(&self) -> &str {
        &self.principal
    }

    /// As the history has it.
    pub fn who(&self) -> &str {
        &self.who
    }

    /// Whether it may do all.
    pub fn is_admin(&self) -> bool {
        self.is_admin
    }

    /// Whether it comes over the network.
    pub fn has_token(&self) -> bool {
        self.has_token
    }

    /// How a copy knows it.
    pub fn feeder(&self) -> Feeder {
        Feeder { principal: self.principal.clone(), is_admin: self.is_admin }
    }
}

impl PartialEq for Bringer {
    /// From wherever it asks.
    fn eq(&self, other: &Bringer) -> bool {
        self.principal == other.principal
    }
}

impl Eq for Bringer {}
