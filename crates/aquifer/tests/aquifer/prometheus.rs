//! Files shipped for Prometheus and Grafana: `promtool` takes them, and what they ask for is on the
//! page of a daemon in service.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::bed::with_file;
use crate::eyes::client::Client;
use crate::support::Place;

fn shipped(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../dist").join(name)
}

/// Runs promtool. `None`: it is not installed.
fn promtool(words: &[&str], dir: &str, input: &str) -> Option<(bool, String)> {
    let input_at = tempfile::NamedTempFile::new().unwrap();
    fs::write(input_at.path(), input).unwrap();
    let said = Command::new("promtool")
        .args(words)
        .current_dir(shipped(dir))
        .stdin(Stdio::from(fs::File::open(input_at.path()).unwrap()))
        .output();
    let said = match said {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("SKIPPED: promtool (package prometheus) is not installed");
            return None;
        }
        said => said.unwrap(),
    };
    let text = [said.stdout, said.stderr].concat();
    Some((said.status.success(), String::from_utf8_lossy(&text).into_owned()))
}

/// The names of Aquifer's series in a text.
fn series(text: &str) -> BTreeSet<String> {
    let is_name = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '_';
    let words = text.split(|char| !is_name(char));
    words.filter(|word| word.starts_with("aquifer_")).map(str::to_string).collect()
}

#[test]
fn prometheus_takes_the_page_the_rules_and_the_dashboard() {
    let place = Place::new();
    let [a, b] = ["a", "b"].map(|name| place.image(name));
    let daemon = place.serve();
    let file = with_file(&place, "tank", &["mirror", &a, &b]);
    Client::new(&place, "127.0.0.1").write(&file, 0, &[7; 4096], true);
    place.must(&["pool", "offline", "tank", &b]);
    place.wait_for(|| !place.json(&["alerts"])["active"].as_array().unwrap().is_empty());
    let page = place.get("/metrics").1;
    daemon.kill9();
    assert!(page.contains("aquifer_alert_active{pool=\"tank\",code=\"disk-offline\""), "{page}");

    if let Some((is_right, said)) = promtool(&["check", "metrics"], "prometheus", &page) {
        assert!(is_right && said.is_empty(), "{said}");
    }
    let rules = "aquifer.rules.yml";
    if let Some((is_right, said)) = promtool(&["check", "rules", rules], "prometheus", "") {
        assert!(is_right, "{said}");
    }
    let tests = "aquifer.rules.test.yml";
    if let Some((is_right, said)) = promtool(&["test", "rules", tests], "prometheus", "") {
        assert!(is_right, "{said}");
    }

    // No rule and no panel asks for what is not there.
    let there = series(&page);
    let rules = fs::read_to_string(shipped("prometheus/aquifer.rules.yml")).unwrap();
    let rules = rules.lines().filter(|line| !line.trim_start().starts_with('#'));
    let dashboard = fs::read_to_string(shipped("grafana/aquifer.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let queries: Vec<&str> = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap())
        .map(|target| target["expr"].as_str().unwrap())
        .collect();
    assert!(queries.len() >= 10);
    // Of an outlet there are none here; none was configured.
    let of_outlets = ["aquifer_alert_failed_total".to_string()];
    for name in series(&rules.collect::<String>()).into_iter().chain(series(&queries.join(" "))) {
        assert!(there.contains(&name) || of_outlets.contains(&name), "{name} is not on the page");
    }
}
