//! Several properties at once, and properties that users make up: the real binary.

use crate::send::{receive, send_words};
use crate::support::Place;

/// Returns what `get` says of a property: its value and source.
fn get(place: &Place, property: &str, dataset: &str) -> String {
    place.must(&["get", "-H", "-p", "-o", "value,source", property, dataset]).trim_end().into()
}

/// A command that must fail, with an error that says this.
#[track_caller]
fn fails(place: &Place, words: &[&str], why: &str) {
    let said = place.ask(words);
    assert!(said.code != 0 && said.out.is_empty(), "{words:?}: {}", said.out);
    assert!(said.err.contains(why), "{words:?}: {}", said.err);
}

#[test]
fn several_properties_are_set_together_or_not_at_all() {
    let place = Place::new();
    let disk = place.image("a");
    let daemon = place.serve();
    place.must(&["pool", "create", "-o", "compression=zstd", "-o", "a:b=c", "tank", &disk]);
    assert_eq!(get(&place, "compression,a:b", "tank"), "zstd\tlocal\nc\tlocal");
    place.must(&["create", "tank/vms"]);
    for (words, why) in [
        (&["quota=20M", "compression=lzma"][..], "\"lzma\" is not one of"),
        (&["quota=20M", "a:b=x", "backup=x"], "one of your own has a colon"),
        (&["quota=20M", "A:b=x"], "capital letters"),
        (&["a:b=x", "reservation=10G"], "cannot be kept free"),
        (&["quota=20M", "reservation=30M"], "used or reserved"),
        (&["quota=20M", "freeing=1"], "cannot be set, only read"),
        (&["quota=20M", "quota=30M"], "given twice"),
    ] {
        fails(&place, &[&["set"], words, &["tank/vms"]].concat(), why);
        assert_eq!(get(&place, "quota", "tank/vms"), "none\tdefault", "{words:?}");
        assert_eq!(get(&place, "a:b", "tank/vms"), "c\tinherited from tank");
    }
    place.must(&["set", "quota=20M", "a:b=d", "readonly=on", "tank/vms"]);
    let told = place.must(&["pool", "history", "tank"]);
    assert!(told.contains("set a:b=d quota=20M readonly=on tank/vms"), "{told}");
    // All of it is on disk.
    drop(daemon);
    let _daemon = place.serve();
    assert_eq!(get(&place, "quota,a:b", "tank/vms"), "20971520\tlocal\nd\tlocal");
    assert_eq!(get(&place, "readonly", "tank/vms"), "on\tlocal");
    assert_eq!(get(&place, "freeing", "tank"), "0\t-");
    assert_eq!(place.must(&["list", "-H", "-p", "-o", "name,freeing", "tank"]), "tank\t0\n");
}

#[test]
fn users_note_what_they_like_on_datasets() {
    let (here, there) = (Place::new(), Place::new());
    let (disk, other_disk) = (here.image("a"), there.image("b"));
    let (daemon, other) = (here.serve(), there.serve());
    here.must(&["pool", "create", "tank", &disk]);
    there.must(&["pool", "create", "backup", &other_disk]);
    let long = "x".repeat(8192);
    here.must(&["create", "-o", "com.example:made=1024", "tank/vms"]);
    here.must(&["create", "tank/vms/deep"]);
    here.must(&["set", "com.example:backup=a\nb", &format!("com.example:long={long}"), "tank/vms"]);
    assert_eq!(
        here.must(&["list", "-H", "-r", "-o", "name,com.example:made,com.example:backup", "tank"]),
        "tank\t-\t-\ntank/vms\t1024\ta?b\ntank/vms/deep\t1024\ta?b\n"
    );
    let header = here.must(&["list", "-o", "name,com.example:made", "-s", "a:b", "tank"]);
    assert!(header.contains("COM.EXAMPLE:MADE"), "{header}");
    let told = here.json(&["get", "com.example:backup", "tank/vms/deep"]);
    assert_eq!(
        (told[0]["value"].as_str(), told[0]["source"].as_str()),
        (Some("a\nb"), Some("inherited from tank/vms"))
    );
    let all = here.must(&["get", "-H", "-s", "local", "-o", "property", "all", "tank/vms"]);
    assert_eq!(all, "com.example:backup\ncom.example:long\ncom.example:made\n");
    assert_eq!(get(&here, "com.example:none", "tank/vms"), "-\t-");
    let (long_name, longer) = (format!("a:{}", "b".repeat(255)), format!("a:b={long}x"));
    for (word, why) in [
        ("backup=x", "has a colon"),
        ("-a:b=x", "unexpected argument"),
        ("a b:c=x", "a character other than"),
        (&format!("{long_name}=x"), "longer than 256"),
        (&longer, "8193 bytes, 8192 are allowed"),
    ] {
        fails(&here, &["set", word, "tank/vms"], why);
    }
    // They go with what is sent, and with what changed.
    here.must(&["snapshot", "tank/vms@a"]);
    send_words(&here, &["tank/vms@a"], "one");
    let said = receive(&there, &["backup/vms"], &here, "one");
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert_eq!(get(&there, "com.example:long", "backup/vms"), format!("{long}\tlocal"));
    here.must(&["inherit", "com.example:long", "tank/vms"]);
    here.must(&["set", "com.example:made=now", "tank/vms"]);
    here.must(&["snapshot", "tank/vms@b"]);
    send_words(&here, &["-i", "@a", "tank/vms@b"], "two");
    let said = receive(&there, &["backup/vms"], &here, "two");
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert_eq!(get(&there, "com.example:long", "backup/vms"), "-\t-");
    assert_eq!(get(&there, "com.example:made", "backup/vms"), "now\tlocal");
    // A clone has its own, and a label names the feature.
    here.must(&["clone", "-o", "a:b=c", "tank/vms@a", "tank/clone"]);
    assert_eq!(get(&here, "com.example:made", "tank/clone"), "-\t-");
    here.must(&["destroy", "-f", "tank/clone"]);
    drop((daemon, other));
    here.must(&["inspect", "--deep", "-d", &disk, "tank"]);
    there.must(&["inspect", "--deep", "-d", &other_disk, "backup"]);
}
