//! `aquifer alerts`: what is wrong now, and where that is sent.

use aquifer_api::client::Client;
use aquifer_api::time;
use aquifer_api::{AlertsInfo, OutletInfo, TestAlerts, TestedOutlet};

use super::Output;
use crate::args::AlertsCommand;
use crate::failure::Failure;
use crate::table::Table;

pub(super) async fn run(
    command: Option<AlertsCommand>,
    client: &Client,
    output: Output,
) -> Result<(), Failure> {
    match command {
        None => {
            let alerts = client.alerts().await?;
            output.answer(&alerts, |alerts| text(alerts, output))
        }
        Some(AlertsCommand::Test { outlet }) => {
            let tested = client.test_alerts(&TestAlerts { outlet }).await?;
            output.answer(&tested, |tested| told(tested))?;
            let failed = tested.iter().filter(|outlet| outlet.error.is_some()).count();
            match failed {
                0 => Ok(()),
                _ => Err(Failure::failed(format!("{failed} of {} failed", tested.len()))),
            }
        }
    }
}

fn text(alerts: &AlertsInfo, output: Output) -> String {
    let mut table = Table::new(&["SEVERITY", "POOL", "CODE", "SINCE", "WHAT"]);
    for alert in &alerts.active {
        table.row(vec![
            alert.problem.severity.word().into(),
            alert.pool.clone().unwrap_or_else(|| "-".into()),
            alert.problem.code.clone(),
            time::text(alert.since_ns),
            alert.problem.status.clone(),
        ]);
    }
    if output.script {
        return output.table(&table);
    }
    let mut text = match alerts.active.is_empty() {
        true => "nothing is wrong\n".to_string(),
        false => output.table(&table),
    };
    text.push('\n');
    text.push_str(&outlets(&alerts.outlets, output));
    text
}

fn outlets(outlets: &[OutletInfo], output: Output) -> String {
    if outlets.is_empty() {
        return "alerts are sent nowhere: see [alerts] in /etc/aquifer/aquifer.toml\n".into();
    }
    let mut table =
        Table::new(&["OUTLET", "KIND", ">SENT", ">FAILED", ">WAITING", "LAST SENT", "ERROR"]);
    for outlet in outlets {
        table.row(vec![
            outlet.name.clone(),
            outlet.kind.word().into(),
            outlet.sent.to_string(),
            outlet.failed.to_string(),
            outlet.waiting.to_string(),
            outlet.last_sent_ns.map_or_else(|| "-".into(), time::text),
            outlet.last_error.clone().unwrap_or_else(|| "-".into()),
        ]);
    }
    output.table(&table)
}

fn told(tested: &[TestedOutlet]) -> String {
    let line = |TestedOutlet { name, error }: &TestedOutlet| match error {
        None => format!("{name}: sent\n"),
        Some(why) => format!("{name}: not sent: {why}\n"),
    };
    tested.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use aquifer_api::{ActiveAlert, OutletKind, Problem, Severity};

    use super::*;

    const PLAIN: Output = Output { json: false, script: false, exact: false, colour: false };

    #[test]
    fn alerts_and_outlets_are_two_tables() {
        let problem = Problem {
            code: "disk-missing".into(),
            severity: Severity::Error,
            status: "/dev/b is missing; the pool runs on the other disks.".into(),
            action: None,
        };
        let outlet = OutletInfo {
            name: "mail-1".into(),
            kind: OutletKind::Mail,
            sent: 3,
            failed: 1,
            waiting: 1,
            dropped: 0,
            last_sent_ns: Some(0),
            last_error: Some("connection refused".into()),
        };
        let alert = ActiveAlert { pool: Some("tank".into()), problem, since_ns: 0 };
        let alerts = AlertsInfo { active: vec![alert], outlets: vec![outlet] };
        let told = text(&alerts, PLAIN);
        let expected = "\
SEVERITY  POOL  CODE          SINCE                     WHAT
error     tank  disk-missing  1970-01-01T00:00:00.000Z  /dev/b is missing; the pool runs on the \
other disks.

OUTLET  KIND  SENT  FAILED  WAITING  LAST SENT                 ERROR
mail-1  mail     3       1        1  1970-01-01T00:00:00.000Z  connection refused
";
        assert_eq!(told, expected);
        let none = AlertsInfo { active: Vec::new(), outlets: Vec::new() };
        assert!(text(&none, PLAIN).starts_with("nothing is wrong\n\nalerts are sent no"));
    }
}
