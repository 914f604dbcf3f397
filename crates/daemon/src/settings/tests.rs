use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    serve: ServeArgs,
}

fn serve(words: &[&str]) -> ServeArgs {
    Line::try_parse_from(["serve"].iter().chain(words)).unwrap().serve
}

fn read(text: &str) -> Result<Settings, String> {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("aquifer.toml");
    std::fs::write(&path, text).unwrap();
    Settings::of(&serve(&["--config", path.to_str().unwrap()]))
        .map_err(|error| format!("{error:?}"))
}

/// The shipped file lists every default, and is a valid configuration.
#[test]
fn the_shipped_configuration_is_the_default() {
    let shipped = include_str!("../../../../dist/aquifer.toml");
    let told: Settings = toml::from_str(shipped).unwrap();
    assert_eq!(told, Settings::default());
    let all = toml::to_string(&Settings::default()).unwrap();
    for name in all.lines().filter_map(|line| line.split_once(" = ")).map(|(name, _)| name) {
        let line = format!("\n{name} = ");
        assert!(shipped.contains(&line), "{name} is not in the shipped configuration");
    }
}

#[test]
fn a_part_is_enough_and_the_command_line_goes_before() {
    let settings = read("memory = \"4G\"\nwait_for_disks_s = 5\n[nfs]\nthreads = 3\n").unwrap();
    assert_eq!((settings.memory, settings.nfs.threads), (Some(4 << 30), 3));
    assert_eq!(settings.wait_for_disks_s, 5);
    assert_eq!(settings.nfs.listen, Nfs::default().listen);
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("c");
    std::fs::write(&path, "memory = \"4G\"\nstate_dir = \"/a\"\n[portmap]\nenabled = false\n")
        .unwrap();
    let path = path.to_str().unwrap();
    let args = ["--config", path, "--memory=2G", "--nfs-addr=[::1]:7", "--portmap-addr=[::1]:8"];
    let settings = Settings::of(&serve(&args)).unwrap();
    assert_eq!((settings.memory, settings.state_dir), (Some(2 << 30), PathBuf::from("/a")));
    assert_eq!(settings.nfs.listen, ["[::1]:7".parse().unwrap()]);
    assert_eq!(
        settings.portmap,
        Portmap { enabled: true, listen: vec!["[::1]:8".parse().unwrap()] }
    );
}

#[test]
fn tls_needs_a_certificate_and_its_key() {
    let settings = read("[nfs.tls]\ncertificate = \"/c\"\nkey = \"/k\"\n").unwrap();
    let files = settings.nfs.tls.files().unwrap();
    assert_eq!((files.certificate, files.key, files.clients), ("/c".into(), "/k".into(), None));
    assert_eq!(Settings::default().nfs.tls.files(), None);
    for part in ["certificate = \"/c\"", "key = \"/k\"", "clients = \"/a\""] {
        assert!(read(&format!("[nfs.tls]\n{part}\n")).unwrap_err().contains("nfs.tls"), "{part}");
    }
}

#[test]
fn what_is_not_understood_is_refused_with_its_place() {
    for (text, part) in [
        ("recordsize = 4096", "recordsize"),
        ("[nfs]\nport = 2049", "port"),
        ("memory = \"1M\"", "64M or more"),
        ("memory = \"500T\"", "this machine, or its container, has"),
        ("memory = \"much\"", "no size"),
        ("memory = 5", "string"),
        ("wait_for_disks_s = 3601", "at most 3600"),
        ("wait_for_disks_s = -1", "wait_for_disks_s"),
        ("[nfs]\nlisten = []", "no address"),
        ("[nfs]\nlisten = [\"here\"]", "socket address"),
        ("log = \"a=b=c\"", "a=b=c"),
        ("log = \"*=debug\"", "*=debug"),
        ("state_dir = \"here\"", "absolute"),
        ("state_dir = ", "line 1"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
    let missing = Settings::of(&serve(&["--config", "/no/such"])).unwrap_err();
    assert!(format!("{missing:?}").contains("configuration /no/such: No such file"));
}

#[test]
fn memory_is_half_of_the_machines_by_default() {
    assert_eq!(half(Some(16 << 30)), 8 << 30);
    assert_eq!(half(Some(100 << 20)), 64 << 20, "the least that a pool needs");
    assert_eq!(half(None), 1 << 30);
    let of_machine = machine::memory_bytes().unwrap() / 2;
    assert_eq!(Settings::default().memory_bytes(), of_machine);
    assert_eq!(read("memory = \"half\"").unwrap().memory_bytes(), of_machine);
}

#[test]
fn a_level_that_is_misspelt_and_an_address_of_nobody_are_found() {
    let refusal = |text: &str| read(text).unwrap_err();
    assert!(refusal("log = \"inof\"").contains("is no level"));
    for fine in ["warn,aquifer_pool=debug", "aquifer_pool", "OFF", "info,aquifer_nfsd=trace"] {
        assert!(read(&format!("log = {fine:?}")).is_ok(), "{fine}");
    }
    // A network for documentation (RFC 5737).
    let elsewhere = read("[nfs]\nlisten = [\"192.0.2.7:2049\"]\n").unwrap();
    let said = format!("{:?}", elsewhere.check_addresses().unwrap_err());
    assert!(said.contains("nfs.listen: 192.0.2.7: this machine has no such address"), "{said}");
    assert!(Settings::default().check_addresses().is_ok());
}

#[test]
fn a_peer_has_an_address_and_two_files() {
    let peer = |name: &str, url: &str, token: &str| {
        let rest = format!("url = {url:?}\ncertificate = \"/c\"\ntoken = {token:?}\n");
        read(&format!("[peers.{name}]\n{rest}"))
    };
    let settings = peer("backup", "https://10.0.0.6:9443", "/t").unwrap();
    assert_eq!(settings.peers["backup"].token, PathBuf::from("/t"));
    for (name, url, token, why) in [
        ("backup", "http://10.0.0.6:9443", "/t", "peers.backup.url: "),
        ("backup", "https://10.0.0.6:9443", "t", "by an absolute path"),
        ("backup", "https://10.0.0.6:9443", "", "by an absolute path"),
        ("\"a/b\"", "https://10.0.0.6:9443", "/t", "no name of a peer"),
    ] {
        let error = peer(name, url, token).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
    assert!(read("[peers.backup]\nurl = \"https://10.0.0.6:9443\"\n").is_err());
    // A certificate of our own goes with its key.
    let own = |more: &str| {
        let start = "url = \"https://10.0.0.6:9443\"\ncertificate = \"/c\"\ntoken = \"/t\"\n";
        read(&format!("[peers.backup]\n{start}{more}"))
    };
    let peer = own("client_certificate = \"/o\"\nclient_key = \"/k\"\n").unwrap();
    assert_eq!(peer.peers["backup"].client_key, Some(PathBuf::from("/k")));
    assert!(own("client_certificate = \"/o\"\n").unwrap_err().contains("belong together"));
    assert!(own("client_key = \"/k\"\n").unwrap_err().contains("belong together"));
    let near = own("client_certificate = \"o\"\nclient_key = \"/k\"\n");
    assert!(near.unwrap_err().contains("by an absolute path"));
}
