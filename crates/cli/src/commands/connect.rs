//! `aquifer connect`: the commands to type on a hypervisor.

use aquifer_api::ConnectQuery;
use aquifer_api::client::Client;

use super::Output;
use crate::failure::Failure;

pub(super) async fn connect(
    client: &Client,
    output: Output,
    query: ConnectQuery,
) -> Result<(), Failure> {
    output.answer(&client.ask(&query).await?, |advice| {
        let why = advice.why.iter().map(|why| format!("# {why}\n"));
        why.chain(advice.lines.iter().map(|line| format!("{line}\n"))).collect()
    })
}
