//! Whether one export lets in more than another one: other hosts, to more, with less proof.
//!
//! The answer errs to one side: "wider" also where only a look at all addresses could tell. So a
//! change that is called no wider lets nobody do what they could not do before.

use aquifer_nfs::{Access, Client, Entry, Export, Squash, Whom, Xprtsec};

/// Why content that is exported so would reach further than where it is exported `now`; `None`: it
/// would not.
pub fn wider(now: Option<&Export>, then: Option<&Export>) -> Option<&'static str> {
    let then = then?;
    let Some(now) = now else { return Some("it is not exported now") };
    let (of_now, of_then) = (&now.access, &then.access);
    let lists = [
        (!lets_in_no_more(of_now, of_then), "to other hosts, or to write"),
        (
            squash(then.squash) > squash(now.squash) || !covered(&of_then.root, &of_now.root),
            "with their superuser",
        ),
        (!covered(&of_then.control, &of_now.control), "with snapcontrol"),
        (
            anonymous(then) != anonymous(now) && !then.refuse_anonymous,
            "with another anonymous user",
        ),
        (now.nosuid && !then.nosuid, "with setuid"),
        (now.secure_ports && !then.secure_ports, "to all ports (insecure)"),
        (proof(then.xprtsec) < proof(now.xprtsec), "without TLS or certificates"),
    ];
    lists.into_iter().find_map(|(is_so, why)| is_so.then_some(why))
}

fn lets_in_no_more(now: &Access, then: &Access) -> bool {
    let same = |a: &Access, b: &Access| {
        (&a.read_write, &a.read_only, &a.none) == (&b.read_write, &b.read_only, &b.none)
    };
    if same(now, then) {
        return true;
    }
    let excepts = |access: &Access| {
        let all = access.read_write.entries().iter().chain(access.read_only.entries());
        all.chain(&access.none).any(|entry| entry.except)
    };
    if excepts(now) || excepts(then) {
        return false;
    }
    // A narrower entry in `ro` takes the right to write away.
    let keeps_ro = then.read_write == Whom::Nobody || within(&now.read_only, &then.read_only);
    let reads = within(&then.read_only, &now.read_only)
        || within(&then.read_only, &now.read_write) && now.read_only == Whom::Nobody;
    within(&then.read_write, &now.read_write) && reads && keeps_ro && covered(&now.none, &then.none)
}

/// Whether all clients of one are clients of the other.
fn within(one: &Whom, other: &Whom) -> bool {
    match (one, other) {
        (Whom::Nobody, _) | (_, Whom::Everybody) => true,
        (Whom::Listed(one), Whom::Listed(other)) => covered(one, other),
        (Whom::Everybody | Whom::Listed(_), _) => false,
    }
}

/// Whether each entry of one list is in another, or in a network there.
fn covered(one: &[Entry], other: &[Entry]) -> bool {
    if one == other {
        return true;
    }
    let is_plain = other.iter().chain(one).all(|entry| !entry.except);
    is_plain && one.iter().all(|entry| other.iter().any(|of| covers(&of.client, &entry.client)))
}

fn covers(one: &Client, other: &Client) -> bool {
    match (one, other) {
        (Client::Network(one), Client::Network(other)) => one.covers(other),
        _ => one == other,
    }
}

fn squash(squash: Squash) -> u8 {
    match squash {
        Squash::All => 0,
        Squash::Root => 1,
        Squash::None => 2,
    }
}

fn proof(xprtsec: Xprtsec) -> u8 {
    match xprtsec {
        Xprtsec::None => 0,
        Xprtsec::Tls => 1,
        Xprtsec::Mtls => 2,
    }
}

fn anonymous(export: &Export) -> Option<(u32, u32)> {
    (!export.refuse_anonymous).then_some((export.anon_uid, export.anon_gid))
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn is_wider(now: &str, then: &str) -> bool {
        let export = |value: &str| parse("tank/a", value).unwrap();
        wider(export(now).as_ref(), export(then).as_ref()).is_some()
    }

    #[test]
    fn an_export_is_wider_if_anybody_may_do_more() {
        for (now, then) in [
            ("off", "ro=10.0.0.1"),
            ("rw=10.0.0.1", "on"),
            ("rw=10.0.0.1", "rw=10.0.0.2"),
            ("rw=10.0.0.1", "rw=10.0.0.1:10.0.0.2"),
            ("rw=10.0.0.1", "rw=@10.0.0.0/24"),
            ("ro=10.0.0.1", "rw=10.0.0.1"),
            ("rw=10.0.0.1", "rw=10.0.0.1,ro=10.0.0.2"),
            ("rw=@10.0.0.0/24,ro=10.0.0.1", "rw=@10.0.0.0/24"),
            ("rw,none=10.0.0.1", "rw"),
            ("rw=10.0.0.1,root_squash", "rw=10.0.0.1"),
            ("rw=10.0.0.1,root_squash", "rw=10.0.0.1,root_squash,root=10.0.0.1"),
            ("rw=10.0.0.1,all_squash", "rw=10.0.0.1,root_squash"),
            ("rw=10.0.0.1,anon=-1", "rw=10.0.0.1"),
            ("rw=10.0.0.1,nosuid", "rw=10.0.0.1"),
            ("rw=10.0.0.1,secure", "rw=10.0.0.1,insecure"),
            ("rw=10.0.0.1,xprtsec=mtls", "rw=10.0.0.1,xprtsec=tls:mtls"),
            ("rw=10.0.0.1,xprtsec=tls:mtls", "rw=10.0.0.1"),
            ("rw=a.example", "rw=b.example"),
        ] {
            assert!(is_wider(now, then), "{now} {then}");
        }
    }

    #[test]
    fn an_export_is_no_wider_if_it_is_the_same_or_takes_away() {
        for (now, then) in [
            ("off", "off"),
            ("on", "off"),
            ("on", "on"),
            ("on", "rw=10.0.0.1"),
            ("rw=@10.0.0.0/24", "rw=10.0.0.7"),
            ("rw=@10.0.0.0/24", "rw=@10.0.0.128/25"),
            ("rw=10.0.0.1:10.0.0.2", "rw=10.0.0.2"),
            ("rw=10.0.0.1", "ro=10.0.0.1"),
            ("rw", "rw,none=10.0.0.1"),
            ("rw=10.0.0.1", "rw=10.0.0.1,root_squash"),
            ("rw=10.0.0.1", "rw=10.0.0.1,xprtsec=mtls"),
            ("rw=a.example:b.example", "rw=b.example"),
        ] {
            assert!(!is_wider(now, then), "{now} {then}");
        }
    }
}
