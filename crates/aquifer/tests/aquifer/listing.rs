//! `list` and `get` with columns and orders of one's own; words of zpool and zfs; usage errors in
//! JSON.

use serde_json::Value;

use crate::support::Place;

#[test]
fn lists_have_the_columns_order_and_depth_that_are_asked_for() {
    let place = Place::new();
    let a = place.image("a");
    let _daemon = place.serve();
    place.must(&["pool", "create", "tank", &a]);
    for name in ["tank/b", "tank/a", "tank/a/deep", "tank/a/deep/er"] {
        place.must(&["create", name]);
    }
    place.must(&["set", "quota=2G", "tank/b"]);
    place.must(&["set", "compression=off", "tank/a"]);
    place.must(&["snapshot", "tank/a@one", "tank/b@two"]);

    let list = |words: &[&str]| place.must(&[&["list", "-H"], words].concat());
    assert_eq!(list(&["-d", "1", "-o", "name", "tank"]), "tank\ntank/a\ntank/b\n");
    assert_eq!(list(&["-d", "0", "-o", "name"]), "tank\n");
    assert_eq!(
        list(&["-r", "-o", "name,compression", "-S", "name", "tank/a"]),
        "tank/a/deep/er\toff\ntank/a/deep\toff\ntank/a\toff\n"
    );
    assert_eq!(list(&["-r", "-p", "-o", "quota,name", "-S", "quota", "-s", "name", "tank"]), {
        let none = ["tank", "tank/a", "tank/a/deep", "tank/a/deep/er"];
        none.map(|name| format!("none\t{name}\n")).concat() + "2147483648\ttank/b\n"
    });
    assert_eq!(
        list(&["-t", "all", "-d", "1", "-o", "name,type,avail", "-s", "type", "-s", "name"])
            .lines()
            .map(|line| line.split('\t').next().unwrap())
            .collect::<Vec<_>>(),
        ["tank", "tank/a", "tank/b", "tank/a@one", "tank/b@two"]
    );
    let header = place.must(&["list", "-o", "refer,name", "tank/a"]);
    assert!(header.starts_with("REFER  NAME\n"), "{header}");
    let unknown = place.ask(&["list", "-o", "name,size"]);
    assert!(unknown.code == 2 && unknown.err.contains("no column \"size\""), "{}", unknown.err);
    assert!(unknown.out.is_empty() && unknown.err.contains("compression"), "{}", unknown.err);
    let unknown = place.ask(&["list", "-s", "size"]);
    assert!(unknown.code == 2 && unknown.out.is_empty(), "{}", unknown.out);

    let get = |words: &[&str]| place.must(&[&["get", "-H"], words].concat());
    assert_eq!(
        get(&["-r", "-s", "local", "-o", "name,property,value", "all", "tank/a"]),
        "tank/a\tcompression\toff\n"
    );
    let inherited = get(&["-s", "inherited", "-o", "source", "all", "tank/a/deep"]);
    assert_eq!(inherited, "inherited from tank/a\n");
    assert_eq!(get(&["-s", "inherited", "quota", "tank/b"]), "");
    let wrong = place.ask(&["get", "-s", "elsewhere", "all", "tank"]);
    assert!(wrong.code == 2 && wrong.err.contains("inherited"), "{}", wrong.err);
}

#[test]
fn words_of_zfs_are_answered_with_ours_and_errors_come_in_json_if_asked() {
    let place = Place::new();
    for (words, hint) in [
        (&["pool", "iostat"][..], "note: `aquifer iostat"),
        (&["zpool", "status"], "note: zpool's commands are those of `aquifer pool`"),
        (&["mount", "tank/vms"], "note: nothing is mounted here"),
        (&["status"], "note: `aquifer pool status`"),
    ] {
        let said = place.ask(words);
        assert!(said.code == 2 && said.err.contains(hint), "{words:?}: {}", said.err);
    }
    let said = place.ask(&["--json", "pool", "create", "tank"]);
    assert_eq!((said.code, said.err.as_str()), (2, ""));
    let told: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(told["error"]["kind"], "invalid");
    assert!(told["error"]["message"].as_str().unwrap().contains("required"), "{told}");
    let said = place.ask(&["list", "--nonsense", "--json"]);
    let told: Value = serde_json::from_str(&said.out).unwrap();
    assert!(told["error"]["message"].as_str().unwrap().contains("--nonsense"), "{told}");
    // Help is no error.
    let said = place.ask(&["list", "--json", "--help"]);
    assert!(said.code == 0 && said.out.contains("-s <COLUMN>"), "{}", said.out);
}
