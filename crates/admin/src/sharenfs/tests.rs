use aquifer_nfs::limits::CLIENTS_MAX;
use aquifer_nfs::{Access, Client, Exports, Whom};

use super::*;

fn export(value: &str) -> Export {
    parse("tank/vms", value).unwrap_or_else(|why| panic!("{value}: {why}")).unwrap()
}

/// All options of an export, written out.
fn all(value: &str) -> String {
    words(&export(value))
}

/// Compares the `access` part of the line.
#[track_caller]
fn access(value: &str, expected: &str) {
    let words = all(value);
    let end = words.find(",no_root_squash").or_else(|| words.find(",root_squash"));
    assert_eq!(&words[..end.unwrap()], expected, "{value}");
}

#[test]
fn off_is_no_export_and_on_is_one_for_everybody() {
    assert_eq!(parse("tank/vms", "off"), Ok(None));
    for value in ["on", " on ", "rw", "sync,rw,sec=sys,no_subtree_check", "rw, sync"] {
        let all = Export { secure_ports: true, ..Export::new("/tank/vms", "tank/vms") };
        assert_eq!(export(value), all, "{value}");
    }
    assert!(!export("insecure").secure_ports && !export("rw,noresvport").secure_ports);
}

#[test]
fn options_reach_the_export() {
    assert_eq!(export("ro").access, Access::read_only());
    assert_eq!(export("rw,root_squash").squash, Squash::Root);
    assert_eq!(export("no_root_squash").squash, Squash::None);
    let squashed = export("all_squash,anonuid=1000,anongid=100,secure");
    assert_eq!((squashed.squash, squashed.secure_ports), (Squash::All, true));
    assert_eq!((squashed.anon_uid, squashed.anon_gid), (1000, 100));
    assert!(export("nosuid").nosuid && !export("rw").nosuid);
    assert_eq!(export("root=10.0.0.1").squash, Squash::Root, "of all others");
}

#[test]
fn tls_and_certificates_are_asked_for() {
    for (value, least) in [
        ("rw", Xprtsec::None),
        ("xprtsec=none:tls:mtls", Xprtsec::None),
        ("xprtsec=tls", Xprtsec::Tls),
        ("xprtsec=mtls:tls", Xprtsec::Tls),
        ("rw,xprtsec=mtls", Xprtsec::Mtls),
    ] {
        assert_eq!(export(value).xprtsec, least, "{value}");
        assert_eq!(export(&all(value)), export(value), "{value}");
    }
    let certificate = |name: &str| Client::Certificate(name.into());
    let named = export("rw=cert:HV1.example.:@10.1:cert:hv2,root=cert:hv1.example");
    let clients: Vec<_> = named.access.entries().map(|entry| entry.client.clone()).collect();
    assert_eq!(clients[0], certificate("hv1.example"));
    assert_eq!(clients[2..], [certificate("hv2"), certificate("hv1.example")]);
    assert_eq!(export(&words(&named)), named);
    for wrong in ["xprtsec=", "xprtsec=ssl", "xprtsec=tls,xprtsec=tls", "rw=cert:", "rw=cert:@10"] {
        parse("tank/vms", wrong).unwrap_err();
    }
    // Clients could leave the certificate out.
    for open in ["rw,none=cert:hv1", "rw=-cert:hv1:@10.1", "none=10.0.0.1:cert:hv1,rw"] {
        assert!(parse("tank/vms", open).unwrap_err().contains("shuts nobody out"), "{open}");
    }
    assert_eq!(risks(&export("rw")).len(), 1);
    assert!(risks(&export("rw,insecure,xprtsec=mtls")).is_empty());
}

#[test]
fn clients_are_addresses_networks_and_hosts_between_colons() {
    access("rw=10.1.2.3", "rw=10.1.2.3");
    access("ro=@10.1.0.0/16:10.2.0.1,insecure", "ro=10.1.0.0/16:10.2.0.1");
    access("rw=[fd00::1]:@[fd12::]/16:10.0.0.0/8", "rw=[fd00::1]:[fd12::]/16:10.0.0.0/8");
    access("rw=-hv1:@10.1", "rw=-hv1:10.1.0.0/16");
    access("rw=HV1.Example.:3com-host:[::ffff:10.0.0.1]", "rw=hv1.example:3com-host:10.0.0.1");
    access("ro,rw=hv1:-[fd00::1]:-10.0.0.0/8", "rw=hv1:-[fd00::1]:-10.0.0.0/8,ro");
    access("rw,none=10.1.0.1:hv1", "rw,none=10.1.0.1:hv1");
    access("rw=hv1,ro=@10.1,root=hv1", "rw=hv1,ro=10.1.0.0/16,root=hv1");
}

/// share_nfs(1M): a network without its bits has as many bits as its written bytes.
#[test]
fn a_network_behind_an_at_sign_has_the_bytes_that_are_written() {
    for (short, full) in [
        ("@10", "10.0.0.0/8"),
        ("@172.16", "172.16.0.0/16"),
        ("@172.16.132", "172.16.132.0/24"),
        ("@172.16.132/22", "172.16.132.0/22"),
        ("@10.1.2.3", "10.1.2.3"),
        ("@[fd00::1]", "[fd00::1]"),
    ] {
        access(&format!("rw={short}"), &format!("rw={full}"));
    }
    for doubtful in ["@10.1.0.0", "@[fd00::]"] {
        let error = parse("tank", &format!("rw={doubtful}")).unwrap_err();
        assert!(error.contains("say how many bits"), "{error}");
    }
}

/// FreeBSD, exports(5): options with a dash, then hosts.
#[test]
fn words_of_freebsd_mean_what_they_do_there() {
    let same = |theirs, ours| assert_eq!(all(theirs), all(ours), "{theirs}");
    same("-maproot=root -network 10.1.0.0 -mask 255.255.0.0", "rw=10.1.0.0/16,no_root_squash");
    same("-maproot=root,-network=10.1.0.0/16,-alldirs", "rw=10.1.0.0/16,no_root_squash");
    same("-ro,-network=10.1,-maproot=nobody", "ro=10.1.0.0/16,root_squash");
    same(
        "-mapall=1000:100 10.0.0.1 hv1.example",
        "rw=10.0.0.1:hv1.example,all_squash,anonuid=1000,anongid=100",
    );
    same("-maproot=1001 -sec=sys -quiet", "root_squash,anonuid=1001");
    same("-network=[fd00::]/8", "rw=[fd00::]/8");
    same("-ro fd00::1", "ro=[fd00::1]");
}

#[test]
fn words_of_solaris_mean_what_they_do_there() {
    let same = |theirs, ours| assert_eq!(all(theirs), all(ours), "{theirs}");
    same("anon=0", "no_root_squash,anonuid=0,anongid=0");
    same("rw=hv1,anon=1000", "rw=hv1,root_squash,anonuid=1000,anongid=1000");
    assert!(export("rw,anon=-1").refuse_anonymous);
    assert_eq!(export("anon=-1").squash, Squash::Root);
}

/// Listed options can be set again, and mean the same.
#[test]
fn all_options_written_out_are_read_the_same() {
    for value in [
        "on",
        "ro",
        "rw=hv1:-[fd00::1]:@10.1,ro=[fd00::]/8,none=10.1.9.9,root=hv1:10.0.0.1,nosuid,secure",
        "anon=-1,ro",
        "all_squash,anonuid=7,anongid=8",
        "-maproot=1:2 -network 10.0.0.0 -mask 255.0.0.0",
    ] {
        let words = all(value);
        assert_eq!(export(&words), export(value), "{words}");
        assert_eq!(all(&words), words);
    }
}

#[test]
fn what_is_not_understood_is_refused_with_the_reason() {
    for (value, part) in [
        ("async", "loses acknowledged writes"),
        ("rw,on", "stands alone"),
        ("off,rw", "stands alone"),
        ("", "is empty"),
        ("rw,,ro", "is empty"),
        ("crossmnt", "mounted by its own path"),
        ("frobnicate", "there are on, off"),
        ("10.0.0.1(rw,sync)", "is not known"),
        ("rw=10.0.0.1(sync)", "options for single hosts"),
        ("rw=10.0.0.0/33", "prefix length"),
        ("rw=10.0.0", "no IPv4 or IPv6 address"),
        ("rw=", "empty entry"),
        ("rw=10.0.0.1:", "empty entry"),
        ("rw=fd00::1", "IPv6 stands in brackets"),
        ("rw=[fd00::1", "not closed"),
        ("rw=*.example", "trust the name"),
        ("rw=.example", "trust the name"),
        ("rw=host_1.example.10", "ends like an address"),
        ("rw=ho st", "is not known"),
        ("rw=-host-", "letters, digits"),
        ("rw=@storage", "names of networks are not known"),
        ("anonuid=nobody", "no number"),
        ("anonuid", "is not known"),
        ("anon=somebody", "nor root or nobody"),
        ("sec=krb5", "sec=sys"),
        ("-network=10.0.0.0 -mask=255.0.255.0", "is no mask"),
        ("-network=10.0.0.0/8 -mask=255.0.0.0", "so does -mask"),
        ("-mask=255.0.0.0", "needs a -network"),
        ("-index=x", "is not known"),
    ] {
        let error = parse("tank/vms", value).unwrap_err();
        assert!(error.contains(part), "{value}: {error}");
    }
    let many = format!("rw={}", vec!["10.0.0.1"; CLIENTS_MAX + 1].join(":"));
    assert!(parse("tank/vms", &many).unwrap_err().contains("more than 256"));
    let long = format!("rw={}", vec!["a"; 130].join("."));
    assert!(parse("tank/vms", &long).unwrap_err().contains("no name of a host"));
}

#[test]
fn what_contradicts_itself_is_refused() {
    for (value, part) in [
        ("rw,ro", "contradict each other"),
        ("rw,rw", "said twice"),
        ("rw=10.0.0.1,rw=10.0.0.2", "said twice"),
        ("rw,rw=10.0.0.1", "would shut nobody out"),
        ("ro,ro=10.0.0.1", "would shut nobody out"),
        ("rw=-10.0.0.1", "rw,none=10.0.0.1"),
        ("secure,insecure", "contradict each other"),
        ("root_squash,no_root_squash", "contradict each other"),
        ("all_squash,anon=0", "contradict each other"),
        ("root=hv1,no_root_squash", "lets everybody's superuser be one"),
        ("root=hv1,all_squash", "makes everybody anonymous"),
        ("anon=1,anonuid=2", "said twice"),
        ("-network=10.1 -ro rw=hv1", "not by both"),
    ] {
        let error = parse("tank/vms", value).unwrap_err();
        assert!(error.contains(part), "{value}: {error}");
    }
    export("rw,rw=10.0.0.1".replace("rw,", "ro,").as_str());
    assert_eq!(all("root_squash,root_squash"), all("root_squash"));
}

#[test]
fn the_export_table_takes_what_is_accepted() {
    for value in ["on", "ro=[::]/0:10.0.0.0/8,all_squash", "rw=10.0.0.1", "rw=hv1,none=hv2"] {
        assert!(Exports::new(vec![export(value)], |_| None).is_ok(), "{value}");
    }
    let Whom::Listed(entries) = export("rw=HV1").access.read_write else { panic!("a list") };
    assert_eq!(entries[0].client, Client::Host("hv1".into()));
}

/// Exports that admit everybody as root.
#[test]
fn what_lets_in_more_than_hosts_is_a_risk() {
    let count = |value: &str| risks(&export(value)).len();
    for (value, expected) in [
        ("on", 1),
        ("rw", 1),
        ("rw=@0.0.0.0/0", 1),
        ("rw=[::]/0:hv1", 1),
        ("insecure", 2),
        ("rw=hv1,insecure", 1),
        ("rw=@10.1", 0),
        ("rw=hv1", 0),
        ("ro", 0),
        ("rw,root_squash", 0),
        ("rw,root=hv1", 0),
        ("rw,all_squash,insecure", 0),
        ("ro,insecure", 0),
    ] {
        assert_eq!(count(value), expected, "{value}");
    }
}
