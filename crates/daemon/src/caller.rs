//! Callers of the API: every request that reaches a handler has a [`Caller`] among its extensions.
//!
//! Invariant: a request without one is refused (`http::gate`), so that a new way into the API
//! cannot forget to say who comes by it.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use aquifer_admin::control::audit::Asker;
use aquifer_admin::control::{Bringer, Puller, Scope};
use aquifer_api::{ApiError, Role};

/// A caller of the API, and the caller's rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    who: Who,
    rights: Rights,
}

/// Rights of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    /// Role, which says what the caller may do.
    pub role: Role,
    /// For which datasets.
    pub scope: Scope,
}

impl From<Role> for Rights {
    /// Of the whole server.
    fn from(role: Role) -> Rights {
        Rights { role, scope: Scope::default() }
    }
}

/// By what the daemon knows a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// A user of this machine, by the Unix socket. The kernel says so.
    User(u32),
    /// A token, by TCP.
    Token {
        /// The token's name.
        name: Arc<str>,
        /// From where it was shown.
        peer: IpAddr,
    },
}

impl Caller {
    /// A user who can open the socket: that is the daemon's own, or root.
    pub fn of_socket(uid: u32) -> Caller {
        Caller { who: Who::User(uid), rights: Role::Admin.into() }
    }

    /// The bearer of a token.
    pub fn of_token(name: Arc<str>, rights: impl Into<Rights>, peer: IpAddr) -> Caller {
        Caller { who: Who::Token { name, peer }, rights: rights.into() }
    }

    /// By what the daemon knows them.
    pub fn who(&self) -> &Who {
        &self.who
    }

    /// The name of their token, if they come by TCP.
    pub fn token(&self) -> Option<&str> {
        match &self.who {
            Who::User(_) => None,
            Who::Token { name, .. } => Some(name),
        }
    }

    /// For whom limits count, and whose streams and copies they are: a token, from wherever it is
    /// shown, or a user of this machine.
    pub fn principal(&self) -> String {
        match &self.who {
            Who::User(uid) => format!("uid {uid}"),
            Who::Token { name, .. } => principal_of(name),
        }
    }

    /// The caller as one that brings a stream.
    pub fn bringer(&self) -> Bringer {
        let (is_admin, has_token) = (self.role() >= Role::Admin, self.token().is_some());
        Bringer::new(self.principal(), self.to_string(), is_admin, has_token)
    }

    /// The caller as one that fetches copies.
    ///
    /// # Errors
    /// It has no token, by whose name its replication is known.
    pub fn puller(&self) -> Result<Puller, ApiError> {
        match &self.who {
            Who::Token { name, .. } => Puller::new(name),
            Who::User(_) => Err(ApiError::invalid(
                "copies are fetched over TCP, with a token: its name is that of the replication",
            )),
        }
    }

    /// The caller as one that asks for an act.
    pub fn asker(&self) -> Asker {
        let from = match &self.who {
            Who::User(_) => "socket".into(),
            Who::Token { peer, .. } => peer.to_string(),
        };
        let (who, principal) = (self.to_string(), self.principal());
        Asker { who, principal, role: self.role().to_string(), from }
    }

    /// Returns the role, which says what the caller may do.
    pub fn role(&self) -> Role {
        self.rights.role
    }

    /// The datasets for which they may do it.
    pub fn scope(&self) -> &Scope {
        &self.rights.scope
    }

    /// Whether they may do what needs `role`.
    ///
    /// # Errors
    /// That they may not, in words for them.
    pub fn needs(&self, role: Role) -> Result<(), ApiError> {
        if self.role() >= role {
            return Ok(());
        }
        let who = match &self.who {
            Who::User(uid) => format!("user {uid}"),
            Who::Token { .. } => self.principal(),
        };
        let why = format!("{who} has the role {}; this needs {role}", self.role());
        Err(ApiError::forbidden(why))
    }
}

/// The principal of a token.
pub(crate) fn principal_of(token: &str) -> String {
    format!("token {token}")
}

impl fmt::Display for Caller {
    /// As the log has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.who {
            Who::User(uid) => write!(f, "uid {uid}"),
            Who::Token { name, peer } => write!(f, "token {name} from {peer}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_does_what_lesser_ones_do_and_no_more() {
        for mine in Role::ALL {
            let caller = Caller::of_token("ci".into(), mine, [10, 0, 0, 1].into());
            for needed in Role::ALL {
                assert_eq!(caller.needs(needed).is_ok(), mine >= needed, "{mine} {needed}");
            }
        }
        let caller = Caller::of_token("ci".into(), Role::Read, [10, 0, 0, 1].into());
        let refused = caller.needs(Role::Operator).unwrap_err();
        assert_eq!(refused.message, "token ci has the role read; this needs operator");
        assert_eq!(caller.to_string(), "token ci from 10.0.0.1");
        assert_eq!(Caller::of_socket(0).to_string(), "uid 0");
        assert!(Caller::of_socket(7).needs(Role::Admin).is_ok());
    }
}
