//! The options of `sharenfs`, collected word by word and then combined into one export.
//!
//! Invariant: each option is given once. Two words for the same option are refused, since one of
//! the two would not hold.

use aquifer_nfs::limits::CLIENTS_MAX;
use aquifer_nfs::{ANONYMOUS, Access, Client, Entry, Export, Squash, Whom, Xprtsec};

use super::{clients, path_of};

/// The collected words.
#[derive(Debug, Default)]
pub(super) struct Options {
    /// `rw` or `ro` without a list.
    all: Option<&'static str>,
    rw: Option<Vec<Entry>>,
    ro: Option<Vec<Entry>>,
    none: Option<Vec<Entry>>,
    root: Option<Vec<Entry>>,
    squash: Option<(Squash, String)>,
    uid: Option<u32>,
    gid: Option<u32>,
    refuse_anonymous: bool,
    secure: Option<bool>,
    xprtsec: Option<Xprtsec>,
    nosuid: bool,
    freebsd: FreeBsd,
}

/// Words of FreeBSD's exports(5): its clients follow the options without a keyword.
#[derive(Debug, Default)]
struct FreeBsd {
    used: bool,
    network: Option<String>,
    mask: Option<String>,
    hosts: Vec<Entry>,
}

impl Options {
    /// Reads all words, with commas or spaces between them.
    ///
    /// # Errors
    /// The error in a word.
    pub fn read(value: &str) -> Result<Self, String> {
        let mut options = Options::default();
        for part in value.split(',') {
            if part.trim().is_empty() {
                return Err(unknown(""));
            }
            let mut words = part.split_whitespace();
            while let Some(word) = words.next() {
                match word.strip_prefix('-') {
                    Some(word) => options.take_freebsd(word, &mut words)?,
                    None => options.take(word)?,
                }
            }
        }
        Ok(options)
    }

    fn take(&mut self, word: &str) -> Result<(), String> {
        let (name, argument) = match word.split_once('=') {
            Some((name, argument)) => (name, Some(argument)),
            None => (word, None),
        };
        match (name, argument) {
            ("rw", None) => self.take_all("rw")?,
            ("ro", None) => self.take_all("ro")?,
            ("rw", Some(text)) => once(name, &mut self.rw, clients::list(text)?)?,
            ("ro", Some(text)) => once(name, &mut self.ro, clients::list(text)?)?,
            ("none", Some(text)) => {
                let entries = clients::list(text)?;
                let certificate = |entry: &Entry| matches!(entry.client, Client::Certificate(_));
                if let Some(entry) = entries.iter().find(|entry| certificate(entry)) {
                    return Err(clients::shuts_nobody_out(&entry.client));
                }
                once(name, &mut self.none, entries)?;
            }
            ("root", Some(text)) => once(name, &mut self.root, clients::list(text)?)?,
            ("root_squash", None) => self.squash(Squash::Root, word)?,
            ("no_root_squash", None) => self.squash(Squash::None, word)?,
            ("all_squash", None) => self.squash(Squash::All, word)?,
            ("no_all_squash", None) => {}
            ("anonuid", Some(id)) => once(name, &mut self.uid, number(name, id)?)?,
            ("anongid", Some(id)) => once(name, &mut self.gid, number(name, id)?)?,
            ("anon", Some(id)) => self.anon(word, id)?,
            ("secure" | "resvport", None) => self.ports(true)?,
            ("insecure" | "noresvport", None) => self.ports(false)?,
            ("xprtsec", Some(text)) => once(name, &mut self.xprtsec, xprtsec(text)?)?,
            ("nosuid", None) => self.nosuid = true,
            // Words for what always holds are accepted.
            ("sync" | "no_subtree_check" | "no_wdelay", None) | ("sec", Some("sys")) => {}
            _ if self.freebsd.used && argument.is_none() && word.contains(['.', ':']) => {
                let client = match word.parse() {
                    Ok(network) => Client::Network(network),
                    Err(_) => clients::client(word)?,
                };
                self.freebsd.hosts.push(Entry { client, except: false });
            }
            _ => return Err(unknown(word)),
        }
        Ok(())
    }

    /// A word after a dash; its argument follows `=` or is the next word.
    fn take_freebsd<'v>(
        &mut self,
        word: &'v str,
        next: &mut impl Iterator<Item = &'v str>,
    ) -> Result<(), String> {
        self.freebsd.used = true;
        let (name, argument) = match word.split_once('=') {
            Some((name, argument)) => (name, Some(argument)),
            None => (word, None),
        };
        let takes_one = ["network", "mask", "maproot", "mapall", "sec"].contains(&name);
        let argument = match argument {
            None if takes_one => next.next(),
            argument => argument,
        };
        match (name, argument) {
            ("ro" | "o", None) => self.take_all("ro"),
            ("maproot", Some(user)) => self.map_root(word, user),
            ("mapall", Some(user)) => {
                self.squash(Squash::All, &format!("-{word}"))?;
                self.user(name, user)
            }
            ("network", Some(network)) => {
                once("-network", &mut self.freebsd.network, network.to_owned())
            }
            ("mask", Some(mask)) => once("-mask", &mut self.freebsd.mask, mask.to_owned()),
            ("alldirs" | "quiet", None) | ("sec", Some("sys")) => Ok(()),
            _ => Err(unknown(&format!("-{word}"))),
        }
    }

    fn take_all(&mut self, word: &'static str) -> Result<(), String> {
        match self.all.replace(word) {
            None => Ok(()),
            Some(before) if before == word => Err(format!("{word} is said twice")),
            Some(_) => Err("rw and ro contradict each other: say one of them, or who may read \
                            and write and who may only read: rw=CLIENTS,ro=CLIENTS"
                .into()),
        }
    }

    fn squash(&mut self, squash: Squash, word: &str) -> Result<(), String> {
        match self.squash.replace((squash, word.to_owned())) {
            Some((before, other)) if before != squash => {
                Err(format!("{other} and {word} contradict each other"))
            }
            _ => Ok(()),
        }
    }

    fn ports(&mut self, secure: bool) -> Result<(), String> {
        match self.secure.replace(secure) {
            Some(before) if before != secure => {
                Err("secure and insecure contradict each other".into())
            }
            _ => Ok(()),
        }
    }

    /// `anon=` of Solaris: the user for the superuser of clients, and for callers without a user
    /// name.
    fn anon(&mut self, word: &str, id: &str) -> Result<(), String> {
        match id {
            "0" | "root" => self.squash(Squash::None, word)?,
            "-1" => {
                self.refuse_anonymous = true;
                return self.squash(Squash::Root, word);
            }
            _ => self.squash(Squash::Root, word)?,
        }
        self.user("anon", id)?;
        self.gid = self.gid.or(self.uid);
        Ok(())
    }

    /// `-maproot=` of FreeBSD: the user for the superuser of clients.
    fn map_root(&mut self, word: &str, user: &str) -> Result<(), String> {
        let word = format!("-{word}");
        if let Some("root" | "0") = user.split(':').next() {
            // A caller without a user name is anonymous all the same.
            return self.squash(Squash::None, &word);
        }
        self.squash(Squash::Root, &word)?;
        self.user("maproot", user)
    }

    /// `user` or `user:group`. User names would be those of other machines.
    fn user(&mut self, option: &str, text: &str) -> Result<(), String> {
        let id = |text: &str| match text {
            "root" | "wheel" => Ok(0),
            "nobody" | "nogroup" | "-2" => Ok(ANONYMOUS),
            _ => number(option, text).map_err(|error| format!("{error}, nor root or nobody")),
        };
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        once(option, &mut self.uid, id(user)?)?;
        if let Some(group) = group.filter(|group| !group.is_empty()) {
            once(option, &mut self.gid, id(group)?)?;
        }
        Ok(())
    }

    /// The export that all words define together.
    ///
    /// # Errors
    /// Words that contradict each other.
    pub fn export(mut self, dataset: &str) -> Result<Export, String> {
        self.take_freebsd_clients()?;
        let squash = self.whole_squash()?;
        let access = self.access()?;
        let count = access.entries().count();
        if count > CLIENTS_MAX {
            return Err(format!(
                "{count} clients are more than {CLIENTS_MAX}; name networks instead of addresses"
            ));
        }
        Ok(Export {
            access,
            squash,
            anon_uid: self.uid.unwrap_or(ANONYMOUS),
            anon_gid: self.gid.unwrap_or(ANONYMOUS),
            refuse_anonymous: self.refuse_anonymous,
            nosuid: self.nosuid,
            // As in knfsd.
            secure_ports: self.secure.unwrap_or(true),
            xprtsec: self.xprtsec.unwrap_or_default(),
            ..Export::new(path_of(dataset), dataset)
        })
    }

    /// Turns clients in FreeBSD's words into those of `rw` or `ro`.
    fn take_freebsd_clients(&mut self) -> Result<(), String> {
        let FreeBsd { network, mask, hosts, .. } = std::mem::take(&mut self.freebsd);
        let mut clients = hosts;
        match (network, mask) {
            (Some(network), mask) => {
                let client = clients::masked(&network, mask.as_deref())?;
                clients.push(Entry { client, except: false });
            }
            (None, Some(mask)) => return Err(format!("-mask={mask} needs a -network")),
            (None, None) => {}
        }
        if clients.is_empty() {
            return Ok(());
        }
        if self.rw.is_some() || self.ro.is_some() {
            return Err("clients are named by rw= or ro=, or by -network and behind the options, \
                        not by both"
                .into());
        }
        match self.all.take() {
            Some("ro") => self.ro = Some(clients),
            _ => self.rw = Some(clients),
        }
        Ok(())
    }

    fn access(&mut self) -> Result<Access, String> {
        let whom = |name, all, list: Option<Vec<Entry>>| match (all, list) {
            (true, Some(_)) => Err(format!(
                "{name} lets everybody in, so {name}=CLIENTS would shut nobody out; say one of them"
            )),
            (true, None) => Ok(Whom::Everybody),
            (false, Some(entries)) => Ok(Whom::Listed(entries)),
            (false, None) => Ok(Whom::Nobody),
        };
        let lists = self.rw.is_some() || self.ro.is_some();
        let all_rw = self.all == Some("rw") || self.all.is_none() && !lists;
        Ok(Access {
            read_write: whom("rw", all_rw, self.rw.take())?,
            read_only: whom("ro", self.all == Some("ro"), self.ro.take())?,
            none: self.none.take().unwrap_or_default(),
            root: self.root.take().unwrap_or_default(),
            // That is another property's business.
            control: Vec::new(),
        })
    }

    /// The users that are squashed: with `root=`, the superusers of all other clients.
    fn whole_squash(&self) -> Result<Squash, String> {
        match (&self.squash, &self.root) {
            (Some((squash @ (Squash::None | Squash::All), word)), Some(_)) => {
                let why = match squash {
                    Squash::All => "makes everybody anonymous",
                    _ => "lets everybody's superuser be one",
                };
                Err(format!("root= and {word} contradict each other: {word} {why}"))
            }
            (Some((squash, _)), _) => Ok(*squash),
            (None, Some(_)) => Ok(Squash::Root),
            (None, None) => Ok(Squash::None),
        }
    }
}

fn once<T>(name: &str, place: &mut Option<T>, value: T) -> Result<(), String> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("{name} is said twice, by itself or in other words")),
    }
}

/// The lowest of the named levels: a client with a higher one is admitted, too.
fn xprtsec(text: &str) -> Result<Xprtsec, String> {
    let each = text.split(':').map(|word| match word {
        "none" => Ok(Xprtsec::None),
        "tls" => Ok(Xprtsec::Tls),
        "mtls" => Ok(Xprtsec::Mtls),
        _ => Err(format!("xprtsec={text}: {word:?} is none of none, tls and mtls")),
    });
    let each: Result<Vec<_>, _> = each.collect();
    Ok(each?.into_iter().min().unwrap_or_default())
}

fn number(name: &str, text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("{name}={text}: is no number from 0 to 4294967295"))
}

fn unknown(word: &str) -> String {
    let name = word.trim_start_matches('-').split(['=', '(']).next().unwrap_or(word);
    let why = match name {
        "async" => "is not offered: it loses acknowledged writes in a power cut",
        "on" | "off" => "stands alone",
        "" => "is empty",
        "subtree_check" => "is not offered: a handle names a file, wherever it is moved to",
        "crossmnt" | "nohide" | "hide" => {
            "is not offered: each dataset is mounted by its own path, and not seen in its parent"
        }
        "fsid" => "is not needed: a dataset's own id is the same for ever",
        "sec" => "is not offered: there is sec=sys",
        "nosub" => "is not offered: every directory of an export can be mounted",
        _ => {
            "is not known; there are on, off, rw, ro, rw=CLIENTS, ro=CLIENTS, none=CLIENTS, \
             root=CLIENTS, root_squash, no_root_squash, all_squash, anonuid=N, anongid=N, anon=N, \
             nosuid, secure, insecure, xprtsec=none|tls|mtls, -maproot=USER, -mapall=USER, \
             -network=NETWORK, -mask=MASK"
        }
    };
    format!("option {word:?} {why}")
}
