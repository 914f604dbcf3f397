//! Routes of tokens.

use aquifer_admin::Control;
use aquifer_api::{
    ApiError, BindToken, CreateToken, DaemonInfo, On, RevokeToken, RotateToken, SessionInfo,
    SessionQuery, TokensQuery,
};

use super::super::asked::Asking;
use super::table::Table;
use crate::caller::principal_of;

pub(super) fn routes(table: Table) -> Table {
    table
        .question(async |at, TokensQuery| Ok(at.tokens.list()))
        .question(async |at, SessionQuery| Ok(session(&at)))
        .operation(async |at, make: CreateToken| at.tokens.create(&make))
        .operation(async |at, On { name, request }: On<RotateToken>| {
            ended(&at.control, &name, at.tokens.rotate(&name, &request))
        })
        .operation(async |at, On { name, request }: On<BindToken>| at.tokens.bind(&name, &request))
        .operation(async |at, of: On<RevokeToken>| {
            ended(&at.control, &of.name, at.tokens.revoke(&of.name))
        })
}

fn session(at: &Asking) -> SessionInfo {
    let datasets = at.scope().datasets().to_vec();
    let (caller, role) = (at.caller.to_string(), at.caller.role());
    let DaemonInfo { version, commit, .. } = at.control.info();
    let host = at.control.host_name().into();
    SessionInfo { caller, role, datasets, host, version, commit }
}

/// Drops the acts that a token asked for and that wait, once the token has ended.
fn ended<T>(control: &Control, name: &str, ended: Result<T, ApiError>) -> Result<T, ApiError> {
    ended.inspect(|_| control.drop_acts_of(&principal_of(name)))
}
