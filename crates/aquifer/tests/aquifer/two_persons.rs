//! `two_persons` with the real binary: what a thief of one administrator's token cannot do, and
//! what two can.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::remote::serve;
use crate::support::{Daemon, PATIENCE, Place, Said};

/// A server with a pool, and tokens in files.
struct Bed {
    place: Place,
    url: String,
    certificate: String,
    image: String,
}

impl Bed {
    fn new() -> (Bed, Daemon) {
        let place = Place::new();
        let (daemon, port) = serve(&place);
        let image = place.image("a.img");
        place.must(&["pool", "create", "tank", &image]);
        place.must(&["create", "tank/vms"]);
        place.must(&["snapshot", "tank/vms@a"]);
        place.must(&["hold", "keep", "tank/vms@a"]);
        let certificate = place.text("state/api/certificate.pem");
        let bed = Bed { place, url: format!("https://127.0.0.1:{port}"), certificate, image };
        bed.token("thief", "admin");
        bed.token("second", "admin");
        (bed, daemon)
    }

    /// Makes a token on the server, and the file of it.
    fn token(&self, name: &str, role: &str) {
        let made = self.place.ask(&["token", "create", name, "--role", role]);
        assert_eq!(made.code, 0, "{made:?}");
        fs::write(self.place.path(name), made.out).unwrap();
        fs::set_permissions(self.place.path(name), PermissionsExt::from_mode(0o600)).unwrap();
    }

    fn ask(&self, token: &str, words: &[&str]) -> Said {
        let token = self.place.text(token);
        let far = ["--api", &self.url, "--api-certificate", &self.certificate];
        self.place.ask(&[&far[..], &["--api-token", &token], words].concat())
    }

    /// Asks for what waits; returns its number.
    #[track_caller]
    fn waits(&self, token: &str, words: &[&str]) -> String {
        let said = self.ask(token, words);
        assert_eq!(said.code, 4, "{words:?}: {said:?}");
        assert!(
            said.err.contains(" waits ") && said.err.contains("Nothing is done yet"),
            "{said:?}"
        );
        let (_, behind) = said.err.split_once("`aquifer confirm ").unwrap();
        behind.split_once('`').unwrap().0.into()
    }
}

#[test]
fn one_stolen_token_empties_no_pool_and_two_persons_may() {
    let (bed, _daemon) = Bed::new();
    let place = &bed.place;
    place.must(&["set", "two_persons=on", "tank"]);
    let thief = |words: &[&str]| bed.waits("thief", words);
    for words in [
        &["destroy", "-f", "-r", "tank/vms"][..],
        &["release", "keep", "tank/vms@a"],
        &["pool", "export", "tank"],
        &["pool", "destroy", "-f", "tank"],
        &["token", "create", "mine", "--role", "admin"],
        &["token", "rotate", "second"],
        &["set", "two_persons=off", "tank"],
    ] {
        let number = thief(words);
        for words in [&["confirm", "-f", &number][..], &["confirm", &number]] {
            let said = bed.ask("thief", words);
            assert!(said.code != 0 && said.code != 4, "{said:?}");
        }
        let said = bed.ask("thief", &["confirm", "-f", &number]);
        assert!(said.err.contains("asked for it itself"), "{said:?}");
    }
    // Nothing is lost, and people hear of it.
    assert_eq!(place.must(&["get", "-H", "-o", "value", "two_persons", "tank"]).trim(), "on");
    assert!(place.must(&["holds", "tank/vms@a"]).contains("keep"));
    assert!(!place.must(&["token", "list"]).contains("mine"));
    place.wait_for(|| place.must(&["alerts"]).contains("waits for a second person until"));
    let waiting = place.json(&["confirm"]);
    let waiting = waiting.as_array().unwrap();
    assert_eq!(waiting.len(), 7);
    assert_eq!(waiting[1]["act"], "release keep tank/vms@a");
    assert!(waiting[1]["who"].as_str().unwrap().starts_with("token thief from "));

    // Somebody else means it.
    let release = waiting[1]["number"].to_string();
    let said = bed.ask("second", &["confirm", "-f", &release]);
    assert_eq!((said.code, said.out.as_str()), (0, "done: release keep tank/vms@a\n"), "{said:?}");
    assert!(!place.must(&["holds", "tank/vms@a"]).contains("keep"));
    let destroy = waiting[0]["number"].to_string();
    let said = bed.ask("second", &["confirm", "--refuse", &destroy]);
    assert_eq!((said.code, said.out.as_str()), (0, "dropped: destroy -r tank/vms\n"), "{said:?}");
    assert!(place.must(&["list"]).contains("tank/vms"));
    let history = place.must(&["pool", "history", "-l", "tank"]);
    for line in [
        format!("ask {release}: release keep tank/vms@a [token thief from 127.0.0.1 on "),
        format!("confirm {release}: release keep tank/vms@a [token second from 127.0.0.1 on "),
        "release keep tank/vms@a [token thief from 127.0.0.1, confirmed by token second from "
            .into(),
        format!("refuse {destroy}: destroy -r tank/vms [token second from 127.0.0.1 on "),
    ] {
        assert!(history.contains(&line), "{line:?} is not in {history}");
    }
    // The token of a confirmed `token create` goes to the one who confirmed.
    let create = waiting[4]["number"].to_string();
    let said = bed.ask("second", &["confirm", "-f", &create]);
    assert!(said.code == 0 && said.out.trim().len() >= 32, "{said:?}");
    assert!(said.err.contains("token mine has the role admin"), "{said:?}");
    // A thief that is found out has nothing left, and root never waits.
    place.must(&["token", "revoke", "thief"]);
    assert_eq!(place.json(&["confirm"]).as_array().unwrap().len(), 0);
    place.must(&["set", "two_persons=off", "tank"]);
    place.must(&["set", "two_persons=on", "tank"]);
    place.must(&["destroy", "-f", "-r", "tank/vms"]);
}

/// Until its pools are in service, and while one of them is not, the daemon knows what they had.
#[test]
fn a_pool_that_is_not_in_service_lets_no_thief_become_two() {
    let (bed, daemon) = Bed::new();
    let place = &bed.place;
    place.must(&["set", "two_persons=on", "tank"]);
    // What waits keeps nobody from stopping, and is forgotten.
    bed.waits("thief", &["pool", "export", "tank"]);
    assert!(daemon.terminate(PATIENCE).unwrap().success(), "{}", place.log());
    let aside = place.text("aside.img");
    fs::rename(&bed.image, &aside).unwrap();
    let config = place.text("config");
    let _daemon =
        place.spawn_as("state", &[], &[], &["--config", &config, "--wait-for-disks", "1"]);
    place.wait_for(|| place.ask(&["pool", "list"]).out.contains("UNAVAIL"));
    assert_eq!(place.json(&["confirm"]).as_array().unwrap().len(), 0);
    for words in [
        &["token", "create", "mine", "--role", "admin"][..],
        &["pool", "export", "tank"],
        &["pool", "import", "--rewind", "1", "tank"],
        &["pool", "create", "-f", "tub", &aside],
    ] {
        bed.waits("thief", words);
    }
    assert!(!place.must(&["token", "list"]).contains("mine"));
}

#[test]
fn with_a_delay_an_act_happens_by_itself_unless_somebody_refuses() {
    let (bed, _daemon) = Bed::new();
    let place = &bed.place;
    place.must(&["release", "keep", "tank/vms@a"]);
    place.refuses(
        &["set", "two_persons=delay=31d", "tank"],
        "property two_persons: \"delay=31d\" is more than 30 days: a restart forgets what waits",
    );
    place.refuses(
        &["set", "two_persons=on", "tank/vms"],
        "property two_persons: belongs to the pool: set it on tank",
    );
    place.must(&["set", "two_persons=delay=3s", "tank"]);
    let number = bed.waits("thief", &["destroy", "-f", "-r", "tank/vms"]);
    assert!(place.must(&["confirm"]).contains("carried out"));
    place.must(&["confirm", "--refuse", &number]);
    bed.waits("thief", &["destroy", "-f", "-r", "tank/vms"]);
    place.wait_for(|| !place.must(&["list"]).contains("tank/vms"));
    let history = place.must(&["pool", "history", "-l", "tank"]);
    let line = "destroy -r tank/vms [token thief from 127.0.0.1, waited, as delay=3s on ";
    assert!(history.contains(line), "{history}");
}
