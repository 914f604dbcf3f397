//! Metrics of the problems there are now, and of whether they are sent.

use aquifer_api::{AlertsInfo, OutletInfo};

use super::{Family, Page};

pub(super) fn of_alerts(page: &mut Page, alerts: &AlertsInfo) {
    let name = "aquifer_alert_active";
    page.family(name, "gauge", "Always 1: what is wrong now.");
    for alert in &alerts.active {
        let pool = alert.pool.as_deref().unwrap_or_default();
        let severity = alert.problem.severity.word();
        let labels = [("pool", pool), ("code", &alert.problem.code), ("severity", severity)];
        page.sample(name, &labels, 1);
    }
    let counts: [Family<OutletInfo>; 3] = [
        ("aquifer_alert_sent_total", "Messages sent.", |outlet| outlet.sent),
        ("aquifer_alert_failed_total", "Tries that failed.", |outlet| outlet.failed),
        ("aquifer_alert_dropped_total", "Messages given up.", |outlet| outlet.dropped),
    ];
    for (name, help, value) in counts {
        page.family(name, "counter", help);
        for outlet in &alerts.outlets {
            page.sample(name, &[("outlet", &outlet.name)], value(outlet));
        }
    }
}
