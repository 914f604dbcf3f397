//! Two hosts on one export, as in every pool of hosts. Each has its own virtual disks, both in the
//! same directories.

use aquifer_conformance::Result;
use aquifer_conformance::capture::MOUNT;
use aquifer_conformance::guest::{Guest, Job};

use crate::hosts::{self, Host, SERVER};
use crate::place::{Aquifer, EXPORT, LONG, SOON, Setup, is_long};

/// Directories are not cached, as on XCP-ng's hosts: a host sees a name once it exists.
const OPTIONS: &str = "hard,proto=tcp,vers=3,acdirmin=0,acdirmax=0,timeo=20";
const NAMES: u32 = 150;
const LINES: u32 = 150;

#[test]
fn guest_two_hosts_share_an_export() -> Result<()> {
    let aquifer = Aquifer::start("shared", Setup::default())?;
    let capture = hosts::network(&aquifer)?;
    let (one, two) = hosts::both(|number, name| {
        let guest = hosts::boot(&aquifer, &Host { number, name, programs: &[], monitored: None })?;
        guest.check(&format!("nfstest mount {SERVER}:{EXPORT} /mnt {OPTIONS}"), SOON)?;
        Ok(guest)
    })?;
    let disks = [("one", &one), ("two", &two)].map(|(name, guest)| Disks::start(name, guest));
    for round in 0..10 {
        names_are_seen(&one, &two, round)?;
        names_are_seen(&two, &one, round)?;
    }
    exclusive_creates_have_one_winner(&one, &two)?;
    appended_lines_are_read_whole(&one, &two)?;
    let [of_one, of_two] = disks;
    let (of_one, of_two) = (of_one?, of_two?);
    of_one.verify(&two)?;
    of_two.verify(&one)?;
    one.power_off(LONG)?;
    two.power_off(LONG)?;
    let talk = capture.finish()?;
    eprintln!("{talk}");
    let nfs = (100_003, &[0, 1, 2, 3, 4, 6, 7, 8, 9, 12, 13, 14, 15, 17, 19, 20][..]);
    talk.is_sound_with(&[nfs, (MOUNT, &[1])])?;
    aquifer.finish()
}

/// The virtual disks of a host, written around the page cache. Random I/O on one is verified
/// against a model as it goes. The other host verifies the records on the second in the end.
struct Disks<'a> {
    name: &'a str,
    random: Job<'a>,
    ring: Job<'a>,
}

impl<'a> Disks<'a> {
    fn start(name: &'a str, guest: &'a Guest) -> Result<Self> {
        let (operations, records) = if is_long() { (5000, 5000) } else { (500, 400) };
        let seed = name.len() + usize::from(name.as_bytes()[0]);
        let random = format!(
            "nfstest fsx /mnt/disk-{name} --seed {seed} --ops {operations} --length 4194304 \
             --direct 1"
        );
        let ring =
            format!("nfstest journal /mnt/ring-{name} --records {records} --slots 64 --direct 1");
        Ok(Self { name, random: guest.start(&random)?, ring: guest.start(&ring)? })
    }

    fn verify(self, other: &Guest) -> Result<()> {
        eprintln!("{}", self.random.wait(LONG)?.success()?.output);
        let written = self.ring.wait(LONG)?.success()?.output;
        let acked = written.lines().rev().find_map(|line| line.strip_prefix("ack "));
        let (name, acked) = (self.name, acked.unwrap_or("none"));
        let check = format!("nfstest journal-check /mnt/ring-{name} --acked {acked} --slots 64");
        other.check(&check, LONG).map(|_| ())
    }
}

/// One host's changes of names are visible to the other at its next look.
fn names_are_seen(one: &Guest, two: &Guest, round: u32) -> Result<()> {
    let made = format!(
        "rm -rf /mnt/names && mkdir /mnt/names && cd /mnt/names && echo {round} >a && mv a b && \
         ln b c && ln -s b s && mkdir d && mv d e && echo old >f && echo new >g && mv g f"
    );
    one.check(&made, SOON)?;
    let seen = "cd /mnt/names && ls && cat b c s f && [ b -ef c ] && stat -c %h c && [ ! -e a ] && \
        rm b && mv c e/c && rmdir e 2>/dev/null || echo full";
    let found = two.check(seen, SOON)?.output;
    assert_eq!(found, format!("b\nc\ne\nf\ns\n{round}\n{round}\n{round}\nnew\n2\nfull\n"));
    let left = "cd /mnt/names && ls . e && cat e/c && stat -c %h e/c && [ ! -e b ] && ! cat s";
    let found = one.check(&format!("{left} 2>/dev/null"), SOON)?.output;
    assert!(found.starts_with(&format!(".:\ne\nf\ns\n\ne:\nc\n{round}\n")), "{found}");
    Ok(())
}

/// Both hosts try to create the same lock files, as for a virtual machine that may run only once.
fn exclusive_creates_have_one_winner(one: &Guest, two: &Guest) -> Result<()> {
    one.check("mkdir /mnt/locks", SOON)?;
    let race = |name: &str| {
        format!(
            "won=0; set -C; until [ -e /mnt/go ]; do usleep 20000; done; \
             for lock in $(seq {NAMES}); do \
             (echo {name} >/mnt/locks/$lock) 2>/dev/null && won=$((won + 1)); done; echo $won"
        )
    };
    let jobs = [one.start(&race("one"))?, two.start(&race("two"))?];
    one.check("sleep 1; touch /mnt/go", SOON)?;
    let mut all = 0;
    for (job, name) in jobs.into_iter().zip(["one", "two"]) {
        let said = job.wait(LONG)?.success()?.output;
        let won: u32 = said.trim().parse().unwrap();
        // The host that was told to have won is named in the file, for both hosts.
        for guest in [one, two] {
            let count = format!("cat $(printf '/mnt/locks/%s ' $(seq {NAMES})) | grep -cx {name}");
            let found = guest.run(&count, SOON)?.output;
            assert_eq!(found.trim(), won.to_string(), "{name} by its files");
        }
        eprintln!("of {NAMES} names, {name} won {won}");
        all += won;
    }
    assert_eq!(all, NAMES);
    Ok(())
}

/// One host appends (O_APPEND) and the other reads meanwhile: it always sees whole lines from the
/// first on, and all of them in the end.
fn appended_lines_are_read_whole(one: &Guest, two: &Guest) -> Result<()> {
    let append =
        format!("for line in $(seq {LINES}); do echo line $line >>/mnt/log || exit 1; done");
    let read = format!(
        "touch /mnt/log; looks=0 lines=0; while [ $lines -lt {LINES} ]; do \
         lines=$(awk '$0 != \"line \" NR {{ print \"line \" NR \": \" $0; exit }} \
         END {{ print NR }}' /mnt/log) && [ -n \"$lines\" ] || exit 1; looks=$((looks + 1)); \
         usleep 50000; done; echo looks $looks lines $lines"
    );
    let reads = two.start(&read)?;
    one.check(&append, LONG)?;
    let said = reads.wait(LONG)?.success()?.output;
    eprintln!("appended: {}", said.trim());
    assert!(said.ends_with(&format!("lines {LINES}\n")), "{said}");
    Ok(())
}
