//! Which rule admits which client.

use super::*;

/// `name:-10.0.0.0/8`: entries between spaces, with a minus sign for exceptions.
fn entries(text: &str) -> Vec<Entry> {
    let each = text.split_whitespace().map(|word| {
        let (except, word) = match word.strip_prefix('-') {
            Some(word) => (true, word),
            None => (false, word),
        };
        let network = word.parse().map(Client::Network);
        Entry { client: network.unwrap_or_else(|_| Client::Host(word.into())), except }
    });
    each.collect()
}

fn whom(text: &str) -> Whom {
    match text {
        "nobody" => Whom::Nobody,
        "everybody" => Whom::Everybody,
        list => Whom::Listed(entries(list)),
    }
}

fn access(rw: &str, ro: &str, none: &str) -> Access {
    let (read_write, read_only) = (whom(rw), whom(ro));
    Access { read_write, read_only, none: entries(none), ..Access::default() }
}

fn known() -> Addresses {
    let addresses = |texts: &[&str]| {
        let addresses = texts.iter().map(|text| text.parse().unwrap());
        HostAddresses::from(addresses.collect::<Vec<IpAddr>>())
    };
    [
        ("hv1".to_owned(), addresses(&["10.1.0.1", "fd00::1"])),
        ("hv2".to_owned(), addresses(&["10.1.0.2"])),
        ("gone".to_owned(), addresses(&[])),
    ]
    .into()
}

/// Checks the verdict for a client, and the rule behind it.
#[track_caller]
fn judged(access: &Access, client: &str, verdict: Verdict, rule: Option<&str>) {
    let judgement = Rules::new(access, &known()).judge(client.parse().unwrap(), &[]);
    let said = judgement.rule(access);
    assert_eq!((judgement.verdict, said.as_deref()), (verdict, rule), "{client} by {access:?}");
}

use Verdict::{ReadOnly, ReadWrite, Refused, Waiting};

#[test]
fn everybody_is_let_in_by_an_option_without_a_list() {
    judged(&access("everybody", "nobody", ""), "10.1.0.1", ReadWrite, Some("rw"));
    judged(&access("nobody", "everybody", ""), "fd00::9", ReadOnly, Some("ro"));
    judged(&access("nobody", "nobody", ""), "10.1.0.1", Refused, None);
}

#[test]
fn the_narrower_entry_of_two_lists_holds_and_ro_of_equals() {
    let rules = access("10.1.0.1 fd00::1", "10.1.0.0/16 fd00::/8", "");
    judged(&rules, "10.1.0.1", ReadWrite, Some("rw=10.1.0.1"));
    judged(&rules, "::ffff:10.1.0.1", ReadWrite, Some("rw=10.1.0.1"));
    judged(&rules, "10.1.0.2", ReadOnly, Some("ro=10.1.0.0/16"));
    judged(&rules, "fd00::1", ReadWrite, Some("rw=fd00::1"));
    judged(&rules, "fd00::2", ReadOnly, Some("ro=fd00::/8"));
    judged(&rules, "10.2.0.1", Refused, None);
    let rules = access("10.1.0.0/16", "10.1.0.1", "");
    judged(&rules, "10.1.0.1", ReadOnly, Some("ro=10.1.0.1"));
    judged(&rules, "10.1.0.2", ReadWrite, Some("rw=10.1.0.0/16"));
    judged(&access("10.1.0.1", "10.1.0.1", ""), "10.1.0.1", ReadOnly, Some("ro=10.1.0.1"));
    judged(&access("everybody", "10.0.0.0/8", ""), "10.1.0.1", ReadOnly, Some("ro=10.0.0.0/8"));
    judged(&access("everybody", "0.0.0.0/0", ""), "10.1.0.1", ReadOnly, Some("ro=0.0.0.0/0"));
    judged(&access("10.0.0.0/8", "everybody", ""), "10.1.0.1", ReadWrite, Some("rw=10.0.0.0/8"));
    judged(&access("10.0.0.0/8", "everybody", ""), "11.1.0.1", ReadOnly, Some("ro"));
}

#[test]
fn none_goes_before_everything() {
    let rules = access("10.1.0.1", "everybody", "10.1.0.0/24");
    judged(&rules, "10.1.0.1", Refused, Some("none=10.1.0.0/24"));
    judged(&rules, "10.1.1.1", ReadOnly, Some("ro"));
    let rules = access("everybody", "nobody", "-10.1.0.1 10.0.0.0/8");
    judged(&rules, "10.1.0.1", ReadWrite, Some("rw"));
    judged(&rules, "10.1.0.2", Refused, Some("none=10.0.0.0/8"));
}

/// share_nfs(1M): "the list is searched sequentially until a match is found that either grants or
/// denies access".
#[test]
fn an_exception_counts_if_it_comes_first() {
    judged(&access("-10.1.0.1 10.1.0.0/16", "nobody", ""), "10.1.0.1", Refused, None);
    let late = access("10.1.0.0/16 -10.1.0.1", "nobody", "");
    judged(&late, "10.1.0.1", ReadWrite, Some("rw=10.1.0.0/16"));
    let rules = access("-hv1 10.1.0.0/16", "10.0.0.0/8", "");
    judged(&rules, "10.1.0.1", ReadOnly, Some("ro=10.0.0.0/8"));
    judged(&rules, "10.1.0.2", ReadWrite, Some("rw=10.1.0.0/16"));
}

#[test]
fn a_host_is_each_of_its_addresses() {
    let rules = access("hv1", "hv2 gone", "");
    judged(&rules, "10.1.0.1", ReadWrite, Some("rw=hv1"));
    judged(&rules, "fd00::1", ReadWrite, Some("rw=hv1"));
    judged(&rules, "10.1.0.2", ReadOnly, Some("ro=hv2"));
    judged(&rules, "10.1.0.3", Refused, None);
}

/// A client that an unknown name could mean has to wait; any other client is judged at once.
#[test]
fn who_is_named_nowhere_waits_for_names_that_were_not_looked_up() {
    let rules = access("new 10.1.0.0/24", "nobody", "10.9.0.0/16");
    judged(&rules, "10.1.0.1", ReadWrite, Some("rw=10.1.0.0/24"));
    judged(&rules, "10.2.0.1", Waiting, None);
    judged(&rules, "10.9.0.1", Refused, Some("none=10.9.0.0/16"));
}

/// A rule that admits must not hold before one that shuts out is known.
#[test]
fn a_name_that_shuts_out_lets_nobody_in_before_it_is_known() {
    for rules in [
        access("everybody", "nobody", "new"),
        access("-new 10.1.0.0/16", "nobody", ""),
        access("10.1.0.1", "-new 10.1.0.0/16", ""),
        access("everybody", "new", ""),
    ] {
        judged(&rules, "10.1.0.1", Waiting, None);
    }
    judged(&access("nobody", "new 10.1.0.0/16", ""), "10.1.0.1", ReadOnly, Some("ro=10.1.0.0/16"));
    judged(&access("everybody", "nobody", "-new 10.1.0.0/16"), "10.2.0.1", ReadWrite, Some("rw"));
    let root = Access { root: entries("-new 10.1.0.0/16"), ..Access::read_write() };
    assert!(!Rules::new(&root, &known()).judge("10.1.0.1".parse().unwrap(), &[]).keeps_root());
}

#[test]
fn root_is_kept_for_those_that_are_named() {
    let access = Access { root: entries("hv1 -10.1.0.2 10.1.0.0/24"), ..Access::read_write() };
    let rules = Rules::new(&access, &known());
    let rule = |client: &str| {
        let judgement = rules.judge(client.parse().unwrap(), &[]);
        assert_eq!(judgement.keeps_root(), judgement.root_rule(&access).is_some());
        judgement.root_rule(&access)
    };
    assert_eq!(rule("fd00::1").as_deref(), Some("root=hv1"));
    assert_eq!(rule("10.1.0.3").as_deref(), Some("root=10.1.0.0/24"));
    assert_eq!((rule("10.1.0.2"), rule("10.2.0.1")), (None, None));
}

#[test]
fn export_lists_who_is_let_in_and_nobody_for_everybody() {
    for (rules, groups) in [
        (access("everybody", "nobody", ""), vec![]),
        (access("everybody", "10.0.0.1", ""), vec![]),
        (access("everybody", "nobody", "10.0.0.1"), vec!["-10.0.0.1", "*"]),
        (access("hv1 -10.0.0.1 10.0.0.0/8", "hv1", ""), vec!["hv1", "-10.0.0.1", "10.0.0.0/8"]),
        (access("hv1", "nobody", "hv2"), vec!["-hv2", "hv1"]),
    ] {
        assert_eq!(rules.groups(), groups);
        let bytes: usize = groups.iter().map(|group| 8 + group.len().next_multiple_of(4)).sum();
        assert!(bytes <= rules.groups_bytes_max());
    }
}

/// DNS has answered for IPv4 and not yet for IPv6. A host that is shut out does not come in by its
/// other address. A host that is admitted is not refused.
#[test]
fn each_family_is_known_by_itself() {
    let half = |v4: &[&str], v6: Option<&[&str]>| {
        let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        HostAddresses { v4: Some(parse(v4)), v6: v6.map(parse) }
    };
    let entry = |except| Entry { client: Client::Host("hv1".into()), except };
    let shut_out = Access { none: vec![entry(false)], ..Access::read_write() };
    let let_in = Access { read_write: Whom::Listed(vec![entry(false)]), ..Access::default() };
    let no_root = Access {
        root: vec![
            entry(true),
            Entry { client: Client::Network("::/0".parse().unwrap()), except: false },
        ],
        ..Access::read_write()
    };
    let judge = |access: &Access, v6, client: &str| {
        let known = [("hv1".to_owned(), half(&["10.1.0.1"], v6))].into();
        Rules::new(access, &known).judge(client.parse().unwrap(), &[])
    };
    let verdict = |access, v6, client| judge(access, v6, client).verdict;
    assert_eq!(verdict(&shut_out, None, "fd00::1"), Verdict::Waiting);
    assert_eq!(verdict(&shut_out, Some(&["fd00::1"]), "fd00::1"), Verdict::Refused);
    assert_eq!(verdict(&shut_out, Some(&[]), "fd00::1"), Verdict::ReadWrite);
    assert_eq!(verdict(&shut_out, None, "10.1.0.1"), Verdict::Refused);
    assert_eq!(verdict(&shut_out, None, "10.1.0.2"), Verdict::ReadWrite, "IPv4 is known");
    assert_eq!(verdict(&let_in, None, "fd00::1"), Verdict::Waiting);
    assert_eq!(verdict(&let_in, None, "10.1.0.2"), Verdict::Refused);
    assert!(!judge(&no_root, None, "fd00::1").keeps_root());
    assert!(judge(&no_root, Some(&[]), "fd00::1").keeps_root());
}

/// A certificate names its client at any address, and is as narrow as a host.
#[test]
fn a_certificate_is_one_host() {
    let certificate =
        |name: &str| Entry { client: Client::Certificate(name.into()), except: false };
    let rules = Access {
        read_write: Whom::Listed(vec![certificate("hv1")]),
        read_only: whom("10.0.0.0/8"),
        none: entries("10.9.0.0/16"),
        root: vec![certificate("hv2")],
        control: vec![certificate("hv2")],
    };
    let judge = |names: &[&str], client: &str| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Rules::new(&rules, &known()).judge(client.parse().unwrap(), &names)
    };
    assert_eq!(judge(&["hv1"], "192.168.0.1").verdict, ReadWrite);
    assert_eq!(judge(&["x", "hv1"], "10.1.0.1").rule(&rules).as_deref(), Some("rw=cert:hv1"));
    assert_eq!(judge(&["hv1"], "10.9.0.1").verdict, Refused, "none goes before");
    assert_eq!(judge(&["hv2"], "10.1.0.1").verdict, ReadOnly);
    assert_eq!(judge(&["hv2"], "10.1.0.1").root_rule(&rules).as_deref(), Some("root=cert:hv2"));
    assert_eq!(judge(&[], "192.168.0.1").verdict, Refused);
    let control = judge(&["hv2"], "10.1.0.1").control_rule(&rules);
    assert_eq!(control.as_deref(), Some("snapcontrol=cert:hv2"));
    assert!(!judge(&["hv1"], "192.168.0.1").controls());
    assert!(!judge(&["hv1"], "192.168.0.1").keeps_root());
    assert!(Rules::new(&rules, &known()).takes_certificates());
    let bytes: usize = rules.groups().iter().map(|group| 8 + group.len().next_multiple_of(4)).sum();
    assert!(bytes <= rules.groups_bytes_max());
}
