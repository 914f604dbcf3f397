//! `aquifer rename` of datasets that clients use, and of snapshots in all of them.

use crate::bed::noise;
use crate::eyes::client::Client;
use crate::support::Place;

#[test]
fn a_renamed_dataset_is_exported_at_its_new_place_and_clients_go_on() {
    let place = Place::new();
    let image = place.image("a");
    let daemon = place.serve();
    place.must(&["pool", "create", "tank", &image]);
    place.must(&["create", "-o", "sharenfs=insecure", "tank/vms"]);
    place.must(&["create", "tank/vms/below"]);
    place.must(&["create", "tank/site"]);
    let mut client = Client::new(&place, "127.0.0.1");
    let root = client.mount("/tank/vms");
    let file = client.create(&root, "disk");
    client.write(&file, 0, &noise(1, 4096), true);
    place.must(&["snapshot", "-r", "tank@old"]);
    place.must(&["rename", "tank/vms", "tank/site/vms"]);
    client.write(&file, 4096, &noise(2, 4096), true);
    assert_eq!(client.content(&file, 0, 4096).as_ref(), Ok(&noise(1, 4096)));
    let again = client.mount("/tank/site/vms");
    assert_eq!(again, root, "the handle is the same");
    place.must(&["rename", "-r", "tank@old", "@new"]);
    for (words, why) in [
        (&["rename", "tank/site", "tank/site/vms/x"][..], "below the dataset itself"),
        (&["rename", "-r", "tank/site", "tank/x"], "-r is for snapshots"),
        (&["rename", "tank/site/vms", "tank/site"], "exists already"),
        (&["rename", "tank/site", "tank/x@y"], "may hold letters"),
        (&["rename", "tank@none", "@x"], "does not exist"),
        (&["rename", "tank@new", "tank/site@x"], "stays with its dataset or file"),
    ] {
        let said = place.ask(words);
        assert!(said.code != 0 && said.err.contains(why), "{words:?}: {said:?}");
    }
    daemon.kill9();
    let _daemon = place.serve();
    let all = place.must(&["-H", "list", "-t", "all", "-r", "tank"]);
    let all: Vec<&str> = all.lines().filter_map(|line| line.split('\t').next()).collect();
    let expected = [
        "tank",
        "tank@new",
        "tank/site",
        "tank/site@new",
        "tank/site/vms",
        "tank/site/vms@new",
        "tank/site/vms/below",
        "tank/site/vms/below@new",
    ];
    assert_eq!(all, expected);
    let mut client = Client::new(&place, "127.0.0.1");
    assert_eq!(client.mount("/tank/site/vms"), root);
    assert_eq!(client.content(&file, 4096, 4096).as_ref(), Ok(&noise(2, 4096)));
    let history = place.must(&["pool", "history", "tank"]);
    for line in ["aquifer rename tank/vms tank/site/vms", "aquifer rename -r tank@old @new"] {
        assert!(history.contains(line), "{line}: {history}");
    }
    place.must(&["destroy", "-rf", "tank/site"]);
    assert_eq!(place.must(&["-H", "list"]).lines().count(), 1);
}
