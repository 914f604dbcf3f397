//! Tokens that are bound to the certificate of a client: the real binary, as a peer and by hand.

use std::fs;
use std::process::Command;

use crate::bed::{fill, has as holds, with_file};
use crate::eyes::client::Client;
use crate::replicate::{Pair, done, fails, give_token, replicate, snapshots};
use crate::support::{Place, Said, has};

const TARGET: [&str; 2] = ["tank/vms", "other:backup/vms"];
const NONE_SHOWN: &str = "this token counts only with a certificate of its client, and none was";
const OTHER_SHOWN: &str = "this token is bound to another certificate than the one that was shown";

/// The certificate that a daemon shows, and its key.
fn own(place: &Place) -> [String; 2] {
    ["client.pem", "client-key.pem"].map(|name| place.text(&format!("state/api/{name}")))
}

/// Asks the other daemon from here, over TCP.
fn ask_far(pair: &Pair, token: &str, own: Option<&[String; 2]>, words: &[&str]) -> Said {
    let (url, certificate) = (pair.url_there(), pair.here.text("other.pem"));
    let mut all = vec!["--api", &url, "--api-certificate", &certificate, "--api-token", token];
    if let Some([certificate, key]) = own {
        all.extend(["--api-client-certificate", certificate, "--api-client-key", key]);
    }
    pair.here.ask(&[&all, words].concat())
}

#[test]
fn a_stolen_token_without_the_key_is_worth_nothing() {
    let pair = Pair::new();
    let (here, there) = (&pair.here, &pair.there);
    let (_daemon, other) = pair.both();
    let file = with_file(here, "tank", &[&pair.disks[0]]);
    let mut client = Client::new(here, "127.0.0.1");
    fill(&mut client, &file, 1, 0, 3);
    there.must(&["pool", "create", "backup", &pair.disks[1]]);
    let [mine, theirs] = [own(here), own(there)];
    let create = ["token", "create", "store1", "--role", "receive", "--certificate", &mine[0]];
    let made = there.ask(&create);
    assert!(made.err.contains("it counts only with the client certificate "), "{made:?}");
    give_token(here, &made.out);
    done(&replicate(here, &TARGET));
    assert_eq!(snapshots(there, "backup/vms").len(), 1);
    let bound = there.json(&["token", "list"]);
    let bound = bound.as_array().unwrap().iter().find(|token| token["name"] == "store1").unwrap();
    let fingerprint = bound["certificates"][0].as_str().unwrap().to_string();
    let listed = there.must(&["token", "list"]);
    assert!(listed.contains(&format!("valid, with certificate {}", &fingerprint[..16])));

    // A thief has the token, and perhaps the certificate, but not the key.
    let token = here.text("other.token");
    let list = &["list"][..];
    fails(&ask_far(&pair, &token, None, list), NONE_SHOWN);
    fails(&ask_far(&pair, &token, Some(&theirs), list), OTHER_SHOWN);
    let mixed = [mine[0].clone(), theirs[1].clone()];
    let said = ask_far(&pair, &token, Some(&mixed), list);
    assert!(said.code == 2 && said.err.contains("is no key for"), "{said:?}");
    let half = here.ask(&["--api-client-key", &mine[1], "pool", "list"]);
    assert!(half.code == 2 && half.err.contains("belong together"), "{half:?}");
    let log = there.log();
    let refused: Vec<&str> =
        log.lines().filter(|line| line.contains("bound to another certificate")).collect();
    assert_eq!(refused.len(), 1, "once a minute: {refused:?}");
    assert!(refused[0].contains("api.refused") && refused[0].contains(r#"token="store1""#));
    assert_eq!(ask_far(&pair, &token, Some(&mine), list).code, 0);

    // The other daemon starts again: it is bound as before.
    other.kill9();
    let _other = pair.serve(there);
    there.wait_for(|| there.ask(&["pool", "list"]).out.contains("backup"));
    fails(&ask_far(&pair, &token, None, list), NONE_SHOWN);

    // This machine has another key, which nobody knows there yet.
    let old = here.text("old.pem");
    fs::copy(&mine[0], &old).unwrap();
    for (from, to) in theirs.iter().zip(&mine) {
        fs::copy(from, to).unwrap();
    }
    fill(&mut client, &file, 2, 1, 1);
    let said = replicate(here, &TARGET);
    fails(&said, OTHER_SHOWN);
    assert!(said.err.contains("aquifer token bind"), "{said:?}");
    let to_nothing = there.ask(&["token", "bind", "store1"]);
    assert!(to_nothing.code == 2 && to_nothing.err.contains("--none"), "{to_nothing:?}");
    let bind = ["token", "bind", "store1", "--certificate", &old, "--certificate", &mine[0]];
    assert!(there.must(&bind).contains(&format!("certificates {fingerprint}, ")));
    done(&replicate(here, &TARGET));
    let history = there.must(&["pool", "history", "backup"]);
    assert!(history.contains(&format!("aquifer token bind --certificate {fingerprint} ")));
    pair.inspect();
}

/// The certificate that the configuration names, and when clients are asked for one.
#[test]
fn a_peer_is_shown_the_certificate_of_the_configuration() {
    let pair = Pair::new();
    let (here, there) = (&pair.here, &pair.there);
    let [certificate, key] = ["own.pem", "own.key"].map(|name| here.text(name));
    let more = format!("client_certificate = {certificate:?}\nclient_key = {key:?}\n");
    let config = fs::read_to_string(here.path("config")).unwrap();
    fs::write(here.path("config"), config + &more).unwrap();
    let _daemons = pair.both();
    let file = with_file(here, "tank", &[&pair.disks[0]]);
    let mut client = Client::new(here, "127.0.0.1");
    fill(&mut client, &file, 1, 0, 3);
    there.must(&["pool", "create", "backup", &pair.disks[1]]);
    assert!(!here.path("state/api/client.pem").exists(), "nobody is shown it");
    // The files are read at each run.
    fails(&replicate(here, &TARGET), "peer \"other\" cannot be asked: ");
    for (from, to) in own(there).iter().zip([&certificate, &key]) {
        fs::copy(from, to).unwrap();
    }
    done(&replicate(here, &TARGET));
    there.must(&["token", "bind", "copies", "--certificate", &certificate]);
    fill(&mut client, &file, 2, 1, 1);
    done(&replicate(here, &TARGET));
    there.must(&["set", "standby=off", "sharenfs=insecure", "backup/vms"]);
    holds(&mut Client::new(there, "127.0.0.1"), &file, 2, 1, 1);

    // Other clients are asked now, and need not have one: curl, as scripts and Prometheus.
    if !has("curl") {
        return;
    }
    let url = format!("{}/v1/datasets", pair.url_there());
    let curl = |token: &str, more: &[&str]| {
        let token = fs::read_to_string(token).unwrap();
        let mut command = Command::new("curl");
        command.args(["-sS", "--cacert", &here.text("other.pem"), "-w", "%{http_code}"]);
        let header = format!("Authorization: Bearer {}", token.trim());
        let said = command.args(["-H", &header]).args(more).arg(&url).output().unwrap();
        String::from_utf8_lossy(&said.stdout).into_owned()
    };
    let admins = there.text("state/api/token");
    assert!(curl(&admins, &[]).ends_with("200"));
    let token = here.text("other.token");
    assert!(curl(&token, &[]).ends_with("401"));
    assert!(curl(&token, &["--cert", &certificate, "--key", &key]).ends_with("200"));
}
