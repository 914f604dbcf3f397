//! The page in a browser: it shows what the command line shows, does what it does, and refuses what
//! it refuses.

mod acts;
mod browser;

use aquifer_meter::size;
use serde_json::{Value, json};

use crate::bed::with_file;
use crate::eyes::client::Client;
use crate::remote::serve;
use crate::support::{Daemon, Place};
use browser::Browser;

/// A file name, as a guest with access to the export may choose it.
const HOSTILE: &str = "<img src=x onerror=globalThis.harm=1>.raw";

/// A daemon with a mirror, a snapshot and traffic, and a browser that is logged in.
struct Bed {
    place: Place,
    daemon: Daemon,
    browser: Browser,
    url: String,
    disks: [String; 2],
    client: Client,
    file: Vec<u8>,
}

fn bed() -> Option<Bed> {
    let browser = Browser::start()?;
    let place = Place::new();
    let (daemon, port) = serve(&place);
    let disks = ["a", "b"].map(|name| place.image(name));
    with_file(&place, "tank", &["mirror", &disks[0], &disks[1]]);
    let mut client = Client::new(&place, "127.0.0.1");
    let root = client.mount("/tank/vms");
    let file = client.create(&root, HOSTILE);
    client.write(&file, 0, &[7; 65_536], true);
    place.must(&["snapshot", "tank/vms@before"]);
    place.must(&["set", "quota=128M", "tank/vms"]);
    let url = format!("https://127.0.0.1:{port}/");
    let mut bed = Bed { place, daemon, browser, url, disks, client, file };
    bed.log_in("ci", "operator");
    Some(bed)
}

impl Bed {
    /// With the keyboard alone: the focus is where the token goes.
    fn log_in(&mut self, name: &str, role: &str) {
        let token = self.place.must(&["token", "create", name, "--role", role]);
        let url = self.url.clone();
        self.browser.open(&url);
        self.browser.wait_for("document.activeElement?.name === 'token'");
        self.browser.type_text(token.trim());
        self.browser.press("Enter");
        self.browser.wait_for("document.querySelector('[data-view=overview]') !== null");
    }

    fn go(&mut self, view: &str, place: &str) {
        self.browser.eval(&format!("location.hash = '#/{view}/{place}'"));
        self.browser.wait_for(&format!("document.querySelector('[data-view={view}]') !== null"));
    }

    /// Waits until the page shows these cells of a table, row by row; `wanted` asks the command
    /// line each time, as things move.
    #[track_caller]
    fn shows(&mut self, table: &str, columns: &[&str], wanted: impl Fn(&Place) -> Value) {
        let rows = format!(
            "[...document.querySelectorAll('[data-table={}] [data-row]')].map(row => \
             {}.map(key => row.querySelector(`[data-cell=${{key}}]`).textContent))",
            json!(table),
            json!(columns)
        );
        let mut seen = (Value::Null, Value::Null);
        for _ in 0..300 {
            seen = (self.browser.eval(&rows), wanted(&self.place));
            if seen.0 == seen.1 {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("{table}: the page shows\n{}\nand not\n{}", seen.0, seen.1);
    }

    /// Waits for the notice of the page that says what was done, or refused, and returns its text.
    fn notice(&mut self, class: &str, part: &str) -> String {
        let text = format!("document.querySelector('main > .{class} span')?.textContent");
        self.browser.wait_for(&format!("Boolean({text}?.includes({}))", json!(part)));
        self.browser.text(&text)
    }
}

/// The lines of `-H`, without columns that the page has elsewhere.
fn lines(text: &str, columns: &[usize]) -> Value {
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('\t').collect();
        columns.iter().map(|at| cells[*at].to_string()).collect::<Vec<_>>()
    };
    json!(text.lines().map(row).collect::<Vec<_>>())
}

#[test]
fn pools_have_the_command_lines_numbers() {
    let Some(mut bed) = bed() else { return };
    // Capacity, in the same words as `pool list`.
    let seen = "['size', 'allocated', 'free'].map(of => document.querySelector(\
                `[data-pool=tank] [data-value=${of}]`).textContent).join(' ')";
    bed.browser.wait_for("document.querySelector('[data-pool=tank] [data-value=free]') !== null");
    let mut both = (String::new(), String::new());
    for _ in 0..100 {
        let pool = bed.place.json(&["pool", "list"])[0].clone();
        let of = |name: &str| size::human(pool[name].as_u64().unwrap());
        let said = ["size_bytes", "allocated_bytes", "free_bytes"].map(of).join(" ");
        both = (bed.browser.text(seen), said);
        if both.0 == both.1 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(both.0, both.1);
    assert_eq!(bed.browser.text("document.querySelector('[data-health]').dataset.health"), "good");

    bed.go("pools", "tank");
    bed.shows("Disks of tank", &["name", "state", "read", "write", "cksum"], |place| {
        let status = place.json(&["pool", "status", "tank"]);
        let row = |name: &Value, state: &Value| json!([name, state, "0", "0", "0"]);
        let vdev = &status["vdevs"][0];
        let mut rows = vec![row(&status["name"], &status["health"])];
        rows.push(row(&vdev["name"], &vdev["health"]));
        let leaves = vdev["leaves"].as_array().unwrap();
        rows.extend(leaves.iter().map(|leaf| row(&leaf["path"], &leaf["state"])));
        json!(rows)
    });

    assert_eq!(bed.browser.complaints, [""; 0]);
}

/// Of a pool and of a file, of a day and of a month: as many steps as the API has.
#[test]
fn charts_of_the_past_have_the_steps_that_the_pool_keeps() {
    let Some(mut bed) = bed() else { return };
    bed.go("pools", "tank");
    bed.browser.wait_for("Number(document.querySelector('[data-past=day]')?.dataset.points) >= 0");
    let known = |place: &Place| {
        let past = place.json(&["iostat", "--history=2h", "tank"]);
        past["tank"]["at_s"].as_array().unwrap().len()
    };
    let points = "document.querySelector('[data-past]').dataset.points";
    // A step of a minute has begun, and the page has asked for it.
    for _ in 0..60 {
        bed.client.write(&bed.file.clone(), 0, &[7; 4096], true);
        if known(&bed.place) > 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    assert!(known(&bed.place) > 0);
    bed.browser.click("[data-act=past-month]");
    bed.browser.wait_for("document.querySelector('[data-past=month]') !== null");
    bed.browser.click("[data-act=past-day]");
    bed.browser.wait_for(&format!("Number({points}) >= 1"));
    let key = "fetch('/v1/nfs').then(answer => answer.json()).then(({ disks }) => { \
               location.hash = `#/disks/${disks[0].fs_guid}%3A${disks[0].object}`; })";
    bed.browser.eval(key);
    bed.browser.wait_for("document.querySelector('[data-view=disks] [data-past=day]') !== null");
    assert_eq!(bed.browser.complaints, [""; 0]);
}

#[test]
fn datasets_have_the_command_lines_numbers() {
    let Some(mut bed) = bed() else { return };
    bed.go("datasets", "tank%2Fvms");
    bed.shows("Datasets", &["used", "avail", "refer", "ratio", "quota", "path"], |place| {
        let columns = "used,available,referenced,compressratio,quota,mountpoint";
        lines(&place.must(&["list", "-H", "-o", columns]), &[0, 1, 2, 3, 4, 5])
    });
    bed.shows("Snapshots", &["name", "used", "refer"], |place| {
        let said = place.must(&["list", "-H", "-t", "snapshot", "-o", "name,used,refer"]);
        lines(&said.replace("tank/vms@", "@"), &[0, 1, 2])
    });
    bed.shows("Properties", &["property", "value", "source"], |place| {
        let said = place.must(&["get", "-H", "-o", "property,value,source", "all", "tank/vms"]);
        lines(&said, &[0, 1, 2])
    });

    bed.browser.eval("document.querySelector('.why input').focus()");
    bed.browser.type_text("10.9.9.9");
    bed.browser.press("Enter");
    let said = bed.place.json(&["share", "why", "10.9.9.9", "tank/vms"]);
    let shown = format!(
        "document.querySelector('.why .said')?.textContent.includes({})",
        said["answers"][0]["why"][0]
    );
    bed.browser.wait_for(&format!("Boolean({shown})"));

    assert_eq!(bed.browser.complaints, [""; 0]);
}

#[test]
fn events_and_lines_to_type_are_the_command_lines() {
    let Some(mut bed) = bed() else { return };
    bed.go("events", "");
    bed.browser.wait_for("document.querySelector('[data-table=Events]') !== null");
    let newest = bed.place.json(&["events"]).as_array().unwrap().last().unwrap().clone();
    let last = json!(newest["message"]);
    bed.browser.wait_for(&format!(
        "document.querySelector('[data-table=Events]').textContent.includes({last})"
    ));

    bed.go("connect", "tank%2Fvms/proxmox");
    bed.browser.wait_for("document.querySelector('.line code') !== null");
    let words = ["connect", "--for", "proxmox", "tank/vms"];
    let said = bed.place.json(&words);
    assert_eq!(
        said["lines"][0],
        bed.browser.eval("document.querySelector('.line code').textContent")
    );
    assert_eq!(bed.browser.complaints, [""; 0]);
}

/// A guest chooses the names of files: they are text, wherever they stand.
#[test]
fn names_of_files_are_text() {
    let Some(mut bed) = bed() else { return };
    bed.go("disks", "");
    bed.browser.wait_for("document.querySelector('[data-table=\"VM disks\"]') !== null");
    for _ in 0..50 {
        bed.client.write(&bed.file, 4096, &[8; 4096], true);
    }
    bed.shows("VM disks", &["file", "dataset", "client"], |place| {
        let said = place.json(&["nfsiostat"]);
        let row = |disk: &Value| json!([disk["file"], disk["dataset"], disk["client"]]);
        json!(said["disks"].as_array().unwrap().iter().map(row).collect::<Vec<_>>())
    });
    let link = "[data-table=\"VM disks\"] a";
    let name = format!("document.querySelector('{link}').textContent");
    assert_eq!(bed.browser.text(&name), format!("/{HOSTILE}"));
    bed.browser.click(link);
    bed.browser.wait_for("document.querySelectorAll('.chart canvas').length === 3");
    let harm = "document.querySelectorAll('main img').length + (globalThis.harm ?? 0)";
    assert_eq!(bed.browser.eval(harm), 0);
    bed.browser.click("[data-act=snapshot]");
    bed.browser.wait_for("document.activeElement?.name === 'short'");
    bed.browser.type_text("page");
    bed.browser.press("Enter");
    let taken = format!("tank/vms:{HOSTILE}@page");
    bed.notice("done", &format!("{taken} is taken"));
    let there = bed.place.must(&["list", "-H", "-t", "snapshot", "-o", "name"]);
    assert!(there.lines().any(|name| name == taken), "{there}");
    assert_eq!(bed.browser.eval(harm), 0);

    assert_eq!(bed.browser.complaints, [""; 0]);
}

/// Sizes and times are written as the command line writes them, and come from the same counts.
#[test]
fn numbers_are_written_as_by_the_command_line() {
    let Some(mut bed) = bed() else { return };
    for _ in 0..50 {
        bed.client.write(&bed.file, 4096, &[8; 4096], true);
    }
    let numbers: Vec<u64> = (0..50).map(|bit| (1u64 << bit) + (1 << (bit / 2)) - 1).collect();
    let sizes: Vec<String> = numbers.iter().map(|number| size::human(*number)).collect();
    let words = "import('/page/words.js')";
    let asked = format!("{words}.then(words => {}.map(words.size))", json!(numbers));
    assert_eq!(bed.browser.eval(&asked), json!(sizes));

    // From the same counts the same times: procedure, calls, mean, p50 and p99.
    let counts = bed.place.json(&["nfsstat"]);
    let said = bed.place.must(&["-H", "nfsstat"]);
    let now = bed.place.json(&["nfsstat"]);
    let writes = |stat: &Value| {
        let all = stat["procedures"].as_array().unwrap().iter();
        all.clone().find(|one| one["name"] == "write").unwrap().clone()
    };
    assert_eq!(writes(&counts), writes(&now), "nobody writes");
    let line = said.lines().find(|line| line.starts_with("write\t")).unwrap();
    let cells: Vec<&str> = line.split('\t').collect();
    let asked = format!(
        "Promise.all([{words}, import('/page/rates.js')]).then(([words, rates]) => {{ \
         const part = {{...{}, bytes: 0}}; \
         return [String(part.count), words.took(rates.mean_ns(part)), \
         words.took(rates.quantile_ns(part, 500)), words.took(rates.quantile_ns(part, 990))] }})",
        writes(&now)["latency"]
    );
    assert_eq!(bed.browser.eval(&asked), json!([cells[1], cells[4], cells[5], cells[6]]));
    assert_eq!(bed.browser.complaints, [""; 0]);
}

#[test]
fn the_page_acts_and_is_refused_as_the_command_line() {
    let Some(mut bed) = bed() else { return };
    bed.go("pools", "tank");
    bed.browser.click("[data-act=scrub-start]");
    bed.notice("done", "A scrub of tank goes on.");
    bed.place.wait_for(|| {
        let status = bed.place.json(&["pool", "status", "tank"]);
        status["scrub"]["state"] == "finished"
    });
    let scrubbed =
        "document.querySelector('[data-scan=scrub]')?.textContent.startsWith('Scrubbed')";
    bed.browser.wait_for(&format!("Boolean({scrubbed})"));

    // One side may leave; the last one may not, in the words of the command line.
    bed.browser.click("[data-act=offline]");
    bed.browser.click("dialog button[type=submit]");
    bed.notice("done", "is offline");
    bed.browser.wait_for("document.querySelector('[data-act=online]') !== null");
    let states = bed.place.states("tank").1;
    assert!(states.contains(&"OFFLINE".to_string()), "{states:?}");
    bed.browser.wait_for("document.querySelector('.fault') !== null");
    bed.browser.click("[data-act=offline]");
    bed.browser.click("dialog button[type=submit]");
    bed.browser.wait_for("document.querySelector('dialog .refusal') !== null");
    let refusal = bed.browser.text("document.querySelector('dialog .refusal').textContent");
    let left = if states[0] == "ONLINE" { &bed.disks[0] } else { &bed.disks[1] };
    // Commands in it stand in a box of their own instead of backticks.
    let said = bed.place.ask(&["pool", "offline", "tank", left]);
    assert_eq!((said.code, said.err.replace('`', "")), (1, format!("aquifer: {refusal}\n")));
    bed.browser.click("dialog button:not([type=submit])");
    bed.browser.click("[data-act=online]");
    bed.notice("done", "is online");

    // A snapshot is made, and destroyed only by an administrator.
    bed.go("datasets", "tank%2Fvms");
    bed.browser.click("[data-act=snapshot]");
    bed.browser.wait_for("document.activeElement?.name === 'short'");
    bed.browser.type_text("page");
    bed.browser.press("Enter");
    bed.notice("done", "tank/vms@page is taken");
    bed.browser.click("[data-row='tank/vms@page'] [data-act=destroy]");
    bed.browser.wait_for("document.activeElement?.closest('dialog') !== null");
    bed.browser.type_text("tank/vms@page");
    bed.browser.press("Enter");
    let refusal = "document.querySelector('dialog .refusal')?.textContent";
    bed.browser.wait_for(&format!("Boolean({refusal})"));
    assert_eq!(bed.browser.text(refusal), "token ci has the role operator; this needs admin");

    // Who only reads is refused, and what is logged out sees nothing.
    bed.browser
        .eval("fetch('/v1/session/end', {method: 'POST', headers: {'x-aquifer-page': '1'}})");
    bed.log_in("eye", "read");
    bed.go("pools", "tank");
    bed.browser.click("[data-act=scrub-start]");
    let said = bed.notice("refusal", "role");
    assert_eq!(said, "token eye has the role read; this needs operator");
    assert_eq!(bed.browser.complaints, [""; 0]);
}

#[test]
fn the_page_outlives_a_restart_and_fits_a_phone() {
    let Some(mut bed) = bed() else { return };
    let url = bed.url.clone();
    // From now on clients are asked for a certificate: a browser without one comes in all the same.
    let bound = ["--role", "receive", "--certificate", &"ab".repeat(32), "store1"];
    bed.place.must(&[&["token", "create"], &bound[..]].concat());
    bed.daemon.kill9();
    bed.browser.wait_for("document.querySelector('.silent') !== null");
    let config = bed.place.text("config");
    let _daemon = bed.place.spawn_as("state", &[], &[], &["--config", &config]);
    // The same session goes on, and pools are in service again.
    bed.browser.wait_for("document.querySelector('.silent') === null");
    bed.browser.wait_for("document.querySelector('[data-view=overview]') !== null");
    bed.browser.open(&url);
    bed.browser.wait_for("document.querySelector('[data-health=good]') !== null");
    bed.browser.set_width(360);
    for view in ["overview", "pools", "datasets", "disks", "clients", "events", "connect"] {
        bed.go(view, "");
        bed.browser.wait_for("document.querySelector('.card:not(:has(.empty)), .card') !== null");
        let width = bed.browser.eval("document.scrollingElement.scrollWidth");
        assert!(width.as_u64().unwrap() <= 360, "{view}: {width}");
    }
    assert_eq!(bed.browser.complaints, [""; 0]);
}
