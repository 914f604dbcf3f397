//! Tokens that count for some datasets alone.

use crate::remote::{Far, serve};
use crate::support::Place;

#[test]
fn a_token_of_some_datasets_sees_them_and_acts_on_them_alone() {
    let place = Place::new();
    let (_daemon, port) = serve(&place);
    let far = Far::new(&place, port);
    place.must(&["pool", "create", "tank", &place.image("a.img")]);
    for name in ["tank/vms", "tank/vms/a", "tank/vms2", "tank/secret"] {
        place.must(&["create", name]);
        place.must(&["snapshot", &format!("{name}@s")]);
    }
    let wrong = ["token", "create", "x", "--role", "admin", "--dataset", "tank/vms"];
    let said = place.ask(&wrong);
    assert!(said.code == 1 && said.err.contains("leave out --dataset"), "{said:?}");
    let wrong = ["token", "create", "x", "--role", "read", "--dataset", "tank/vms,tank"];
    let said = place.ask(&wrong);
    assert!(said.code == 2 && said.err.contains("no name of a dataset"), "{said:?}");
    let make = ["token", "create", "tenant", "--role", "operator", "--dataset", "tank/vms"];
    let made = place.ask(&make);
    assert!(made.err.contains("role operator, for tank/vms and what lies below"), "{made:?}");
    let tenant = far.keep("tenant", made.out.trim());
    let listed = place.must(&["-H", "token", "list"]);
    assert!(listed.contains("valid, for tank/vms and what lies below"), "{listed}");
    assert!(place.must(&["--json", "token", "list"]).contains(r#""tank/vms""#));

    let names = |words: &[&str]| {
        let out = far.must(&tenant, words);
        let names = out.lines().map(|line| line.split('\t').next().unwrap().to_string());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(&["-H", "list"]), ["tank/vms", "tank/vms/a"]);
    assert_eq!(names(&["-H", "list", "-t", "snapshot"]), ["tank/vms@s", "tank/vms/a@s"]);
    far.must(&tenant, &["create", "tank/vms/b"]);
    far.must(&tenant, &["snapshot", "-r", "tank/vms@t"]);
    far.must(&tenant, &["clone", "tank/vms@t", "tank/vms/c"]);
    far.must(&tenant, &["set", "compression=zstd", "tank/vms"]);
    for (words, named) in [
        (&["create", "tank/new"][..], "tank/new"),
        (&["create", "tank/vms2/new"], "tank/vms2/new"),
        (&["snapshot", "tank/secret@t"], "tank/secret@t"),
        (&["snapshot", "tank/vms@u", "tank/secret@u"], "tank/secret@u"),
        (&["clone", "tank/secret@s", "tank/vms/d"], "tank/secret@s"),
        (&["clone", "tank/vms@t", "tank/vms:d"], "tank/vms:d"),
        (&["set", "compression=zstd", "tank"], "tank"),
        (&["hold", "x", "tank/vms2@s"], "tank/vms2@s"),
        (&["rename", "tank/secret@s", "@x"], "tank/secret@s"),
    ] {
        let why = format!(
            "there is no {named:?} within tank/vms: this token counts for that and what lies below \
             it alone"
        );
        far.refused(&tenant, words, &why);
    }
    let why = "this token counts for tank/vms and what lies below alone; what was asked for \
               concerns more than that";
    for words in [&["pool", "list"][..], &["token", "list"], &["pool", "scrub", "tank"]] {
        far.refused(&tenant, words, why);
    }
    // A scope is by name: what is renamed into it is in it, and out of it, out of it.
    place.must(&["rename", "tank/vms2", "tank/vms/in"]);
    place.must(&["rename", "tank/vms/a", "tank/out"]);
    let seen = ["tank/vms", "tank/vms/b", "tank/vms/c", "tank/vms/in"];
    assert_eq!(names(&["-H", "list"]), seen);
    // A token that takes its place counts for the same.
    let rotated = far.keep("tenant", place.must(&["token", "rotate", "tenant"]).trim());
    assert_eq!(rotated, tenant);
    assert_eq!(names(&["-H", "list"]), seen);
    let history = place.must(&["pool", "history", "-l", "tank"]);
    let made = "token create --role operator --dataset tank/vms tenant";
    assert!(history.contains(made) && history.contains(", for tank/vms"), "{history}");
}
