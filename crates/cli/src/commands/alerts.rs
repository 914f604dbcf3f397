//! `aquifer alerts`: what is wrong now, and where that is sent.

use aquifer_api::client::Client;
use aquifer_api::time;
use aquifer_api::{ActiveAlert, AlertsInfo, AlertsQuery, OutletInfo, TestAlerts, TestedOutlet};

use super::{Output, status};
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
            let alerts = client.ask(&AlertsQuery).await?;
            output.answer(&alerts, |alerts| text(alerts, output))
        }
        Some(AlertsCommand::Test { outlet }) => {
            let tested = client.ask(&TestAlerts { outlet }).await?;
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
    if output.script {
        return output.table(&table(&alerts.active));
    }
    let mut text = match alerts.active.is_empty() {
        true => "nothing is wrong\n".to_string(),
        false => alerts.active.iter().map(block).collect::<Vec<_>>().join("\n"),
    };
    text.push('\n');
    text.push_str(&outlets(&alerts.outlets, output));
    text
}

/// For scripts: a line for each.
fn table(active: &[ActiveAlert]) -> Table {
    let mut table = Table::new(&["SEVERITY", "POOL", "CODE", "SINCE", "WHAT", "SEE"]);
    for ActiveAlert { pool, problem, since_ns } in active {
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
        table.row(vec![
            problem.severity.word().into(),
            or_none(pool),
            problem.code.clone(),
            time::text(*since_ns),
            problem.status.clone(),
            or_none(&problem.see),
        ]);
    }
    table
}

/// For people: as the status of a pool has it.
fn block(ActiveAlert { pool, problem, since_ns }: &ActiveAlert) -> String {
    let what = format!("{} {}", problem.severity.word(), problem.code);
    let of = pool.as_ref().map(|pool| format!(" of pool {pool}")).unwrap_or_default();
    let mut text = status::labelled("alert", &format!("{what}{of}"));
    text.push_str(&status::labelled("since", &time::text(*since_ns)));
    text.push_str(&status::labelled("status", &problem.status));
    for (label, what) in [("action", &problem.action), ("see", &problem.see)] {
        what.iter().for_each(|what| text.push_str(&status::labelled(label, what)));
    }
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
    use aquifer_api::{OutletKind, Problem, Severity, codes};

    use super::*;

    const PLAIN: Output = Output { json: false, script: false, exact: false, colour: false };

    #[test]
    fn alerts_are_told_with_what_to_do_and_where_to_read() {
        let problem = Problem::new(
            codes::DISK_MISSING,
            Severity::Error,
            "/dev/b is missing; the pool runs on the other disks.",
            Some("Attach what is missing, then type `aquifer pool online tank /dev/b`.".into()),
        );
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
        let expected = " \
alert: error disk-missing of pool tank
 since: 1970-01-01T00:00:00.000Z
status: /dev/b is missing; the pool runs on the other disks.
action: Attach what is missing, then type `aquifer pool online tank /dev/b`.
   see: /usr/share/doc/aquifer/docs/runbook.md#replace-a-disk

OUTLET  KIND  SENT  FAILED  WAITING  LAST SENT                 ERROR
mail-1  mail     3       1        1  1970-01-01T00:00:00.000Z  connection refused
";
        assert_eq!(told, expected);
        let lines = text(&alerts, Output { script: true, ..PLAIN });
        let cells: Vec<&str> = lines.trim_end().split('\t').collect();
        assert_eq!(cells[..3], ["error", "tank", "disk-missing"]);
        assert!(cells[5].ends_with("runbook.md#replace-a-disk"), "{lines}");
        let none = AlertsInfo { active: Vec::new(), outlets: Vec::new() };
        assert!(text(&none, PLAIN).starts_with("nothing is wrong\n\nalerts are sent no"));
    }
}
