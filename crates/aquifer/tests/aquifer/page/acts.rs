//! Acts of an administrator on the page: disks that are added, attached and detached, holds, names.

use serde_json::json;

use super::{Bed, bed};

impl Bed {
    fn as_admin() -> Option<Bed> {
        let mut bed = bed()?;
        let end = "fetch('/v1/session/end', {method: 'POST', headers: {'x-aquifer-page': '1'}})";
        bed.browser.eval(end);
        bed.log_in("boss", "admin");
        Some(bed)
    }

    /// Sets fields of the dialog by their names, and sends it.
    fn fill(&mut self, fields: &[(&str, &str)]) {
        self.browser.wait_for("document.querySelector('dialog form') !== null");
        for (name, value) in fields {
            self.browser.eval(&format!(
                "document.querySelector('dialog [name={name}]').value = {}",
                json!(value)
            ));
        }
        self.browser.click("dialog button[type=submit]");
    }

    /// Opens what is under "More" of a row, and asks for an act there.
    fn more(&mut self, row: &str, act: &str) {
        let row = format!("[data-row={}]", json!(row));
        self.browser.wait_for(&format!("document.querySelector('{row} .more') !== null"));
        self.browser.eval(&format!("document.querySelector('{row} .more').open = true"));
        self.browser.click(&format!("{row} [data-act={act}]"));
    }

    fn guid(&self, disk: &str) -> String {
        let status = self.place.json(&["pool", "status", "tank"]);
        let vdevs = status["vdevs"].as_array().unwrap().iter();
        let mut leaves = vdevs.flat_map(|vdev| vdev["leaves"].as_array().unwrap().clone());
        let leaf = leaves.find(|leaf| leaf["path"] == disk).unwrap();
        leaf["guid"].as_str().unwrap().to_string()
    }
}

#[test]
fn disks_are_added_after_a_look_and_sides_come_and_go() {
    let Some(mut bed) = Bed::as_admin() else { return };
    let [c, d, e] = ["c", "d", "e"].map(|name| bed.place.image(name));
    bed.go("pools", "tank");

    // What is refused is refused before anything is done, in the words of the command line.
    bed.browser.click("[data-act=add]");
    bed.fill(&[("part", "data: a mirror"), ("disks", &c)]);
    bed.browser.wait_for("document.querySelector('dialog .refusal') !== null");
    let said = bed.browser.text("document.querySelector('dialog .refusal').textContent");
    assert!(said.contains("mirror"), "{said}");

    // A spare: first what would be added, and nothing yet.
    bed.fill(&[("part", "spares"), ("disks", &c)]);
    bed.browser.wait_for("document.querySelector('dialog .lines') !== null");
    let lines = bed.browser.text("document.querySelector('dialog .lines').textContent");
    assert_eq!(lines, format!("spare: {c}"));
    bed.browser.shoot("add");
    assert!(!bed.place.must(&["pool", "status", "tank"]).contains(&c));
    bed.browser.click("dialog button[type=submit]");
    bed.notice("done", "tank has more disks");
    assert!(bed.place.must(&["pool", "status", "tank"]).contains(&c));
    bed.browser.wait_for("document.querySelector('[data-act=remove]') !== null");
    bed.browser.click("[data-act=remove]");
    bed.fill(&[]);
    bed.notice("done", "is removed");
    assert!(!bed.place.must(&["pool", "status", "tank"]).contains(&c));

    // Another mirror, for data.
    bed.browser.click("[data-act=add]");
    bed.fill(&[("part", "data: a mirror"), ("disks", &format!("{c} {d}"))]);
    bed.browser.wait_for("document.querySelector('dialog .lines') !== null");
    let lines = bed.browser.text("document.querySelector('dialog .lines').textContent");
    assert!(lines.contains(&format!("data: a mirror of {c}, {d} (256M)")), "{lines}");
    bed.browser.click("dialog button[type=submit]");
    bed.notice("done", "tank has more disks");
    let status = bed.place.json(&["pool", "status", "tank"]);
    assert_eq!(status["vdevs"].as_array().unwrap().len(), 2, "{status}");

    // A third side comes, and one goes.
    let row = bed.guid(&c);
    bed.more(&row, "attach");
    bed.fill(&[("new", &e)]);
    bed.notice("done", "is being attached");
    bed.place.must(&["pool", "wait", "tank"]);
    assert_eq!(bed.place.states("tank").1.len(), 5);
    bed.browser.shoot("pools");
    bed.more(&row, "detach");
    bed.browser.shoot("detach");
    bed.fill(&[]);
    bed.notice("done", "is detached");
    assert!(!bed.place.must(&["pool", "status", "tank"]).contains(&c));
    assert_eq!(bed.browser.complaints, [""; 0]);
}

#[test]
fn snapshots_are_held_and_released_and_names_change() {
    let Some(mut bed) = Bed::as_admin() else { return };
    bed.go("datasets", "tank%2Fvms");
    let before = "tank/vms@before";
    bed.more(before, "hold");
    bed.fill(&[("tag", "audit"), ("until", "soon")]);
    bed.browser.wait_for("document.querySelector('dialog .refusal') !== null");
    bed.fill(&[("until", "")]);
    bed.notice("done", "is held");
    let cell =
        format!("document.querySelector('[data-row=\"{before}\"] [data-cell=by]')?.textContent");
    bed.browser.wait_for(&format!("{cell} === 'held: audit'"));
    let holds = bed.place.json(&["holds", before]);
    assert_eq!((&holds[0]["tag"], &holds[0]["ends_s"]), (&json!("audit"), &json!(null)));
    bed.more(before, "release");
    bed.fill(&[]);
    bed.notice("done", "Hold audit of tank/vms@before is released");
    assert_eq!(bed.place.json(&["holds", before]), json!([]));

    // One with an end: nobody releases it, in the words of the command line.
    bed.more(before, "hold");
    bed.fill(&[("tag", "law"), ("until", "1h")]);
    bed.notice("done", "is held");
    bed.browser.wait_for(&format!("{cell}.startsWith('held: law until 2')"));
    bed.browser.set_width(1100);
    bed.browser.shoot("snapshots");
    bed.more(before, "release");
    bed.fill(&[]);
    bed.browser.wait_for("document.querySelector('dialog .refusal') !== null");
    let refusal = bed.browser.text("document.querySelector('dialog .refusal').textContent");
    let said = bed.place.ask(&["release", "law", before]);
    // But for the second in which each was asked: the end is worked out from what is left.
    let without_time =
        |text: &str| text.replace('`', "").replace(|c: char| c.is_ascii_digit(), "0");
    let refusal = without_time(&format!("aquifer: {refusal}\n"));
    assert_eq!((said.code, without_time(&said.err)), (1, refusal));
    bed.browser.click("dialog button:not([type=submit])");

    bed.more(before, "rename");
    bed.fill(&[("new", "golden")]);
    bed.notice("done", "is @golden now");
    bed.browser.wait_for("document.querySelector('[data-row=\"tank/vms@golden\"]') !== null");
    bed.browser.set_width(360);
    bed.browser.shoot("phone");
    let width = bed.browser.eval("document.scrollingElement.scrollWidth");
    assert!(width.as_u64().unwrap() <= 360, "{width}");
    bed.browser.set_width(1100);

    // The page goes where the dataset went.
    bed.browser.click("[data-dataset='tank/vms'] > .row [data-act=rename]");
    bed.fill(&[("new", "tank/guests")]);
    bed.browser.wait_for("document.querySelector('[data-dataset=\"tank/guests\"]') !== null");
    let names = bed.place.must(&["list", "-r", "-H", "-o", "name", "tank"]);
    assert_eq!(names, "tank\ntank/guests\n");
    assert_eq!(bed.browser.complaints, [""; 0]);
}
