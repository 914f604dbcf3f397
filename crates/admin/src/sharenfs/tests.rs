use aquifer_nfs::{Exports, Squash};

use super::*;

fn export(value: &str) -> Export {
    parse("tank/vms", value).unwrap().unwrap()
}

fn clients(value: &str) -> Vec<String> {
    match export(value).clients {
        Clients::Everybody => Vec::new(),
        Clients::Only(networks) => networks.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn off_is_no_export_and_on_is_one_for_everybody() {
    assert_eq!(parse("tank/vms", "off"), Ok(None));
    for value in ["on", "rw", "sync,rw,sec=sys,no_subtree_check"] {
        assert_eq!(export(value), Export::new("/tank/vms", "tank/vms"), "{value}");
    }
}

#[test]
fn options_reach_the_export() {
    assert!(export("ro").read_only);
    assert_eq!(export("rw,root_squash").squash, Squash::Root);
    assert_eq!(export("no_root_squash").squash, Squash::None);
    let squashed = export("all_squash,anonuid=1000,anongid=100,secure");
    assert_eq!((squashed.squash, squashed.secure_ports), (Squash::All, true));
    assert_eq!((squashed.anon_uid, squashed.anon_gid), (1000, 100));
    assert!(!export("secure,insecure").secure_ports);
}

#[test]
fn clients_are_networks_between_colons() {
    assert_eq!(clients("rw=10.1.2.3"), ["10.1.2.3"]);
    assert_eq!(clients("ro=@10.1.0.0/16:10.2.0.1,secure"), ["10.1.0.0/16", "10.2.0.1"]);
    assert_eq!(
        clients("rw=[fd00::1]:@[fd12::]/16:10.0.0.0/8"),
        ["fd00::1", "fd12::/16", "10.0.0.0/8"]
    );
    assert!(export("ro=10.1.2.3").read_only);
}

#[test]
fn what_is_not_understood_is_refused_with_the_reason() {
    for (value, part) in [
        ("async", "loses acknowledged writes"),
        ("rw,on", "stands alone"),
        ("off,rw", "stands alone"),
        ("", "is empty"),
        ("rw,,ro", "is empty"),
        ("rw,ro", "twice"),
        ("rw=10.0.0.1,ro=10.0.0.2", "twice"),
        ("crossmnt", "there are on, off"),
        ("rw=host1", "no IPv4 or IPv6 address"),
        ("rw=10.0.0.0/33", "prefix length"),
        ("rw=", "no IPv4 or IPv6 address"),
        ("rw=10.0.0.1:", "no IPv4 or IPv6 address"),
        ("rw=[fd00::1", "not closed"),
        ("anonuid=nobody", "no number"),
        ("anonuid", "is not known"),
        ("sec=krb5", "is not known"),
    ] {
        let error = parse("tank/vms", value).unwrap_err();
        assert!(error.contains(part), "{value}: {error}");
    }
    let many = format!("rw={}", vec!["10.0.0.1"; 257].join(":"));
    assert!(parse("tank/vms", &many).unwrap_err().contains("more than 256"));
}

#[test]
fn the_export_table_takes_what_is_accepted() {
    for value in ["on", "ro=[::]/0:10.0.0.0/8,all_squash", "rw=10.0.0.1"] {
        assert!(Exports::new(vec![export(value)], |_| None).is_ok(), "{value}");
    }
}
