//! RPC-with-TLS (RFC 9289): calls over TLS, and the requirements of exports.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use aquifer_nfs::proto::nlm::{self, Nlm4Stats};
use aquifer_nfs::proto::v3::*;
use aquifer_nfs::{Access, Client as Named, Entry, Export, Whom, Xprtsec};
use aquifer_nfsd::{Config, KeyFiles};
use aquifer_rig::tls::{Authority, Certified, Relay, Shown};
use aquifer_rpc::auth::{AuthStat, Credential, OpaqueAuth};
use aquifer_rpc::message::{Call, Rejection, Reply, ReplyBody};
use aquifer_rpc::xdr::{Decode, Decoder, EncodeBuf, Span};

use crate::client::{Client, Refusal};
use crate::fixture::{Fixture, config};
use crate::locks::{lock, lock_args, locked};

/// A server with a certificate, and clients of one authority.
struct Place {
    fixture: Fixture,
    authority: Authority,
    home: tempfile::TempDir,
}

/// NLM version 4, procedure 2.
const LOCK: (u32, u32, u32) = (nlm::PROGRAM, nlm::VERSION, 2);

const SERVER: &str = "pool.example";

fn files(home: &Path) -> KeyFiles {
    KeyFiles {
        certificate: home.join("server.pem"),
        key: home.join("server.key"),
        clients: Some(home.join("authority.pem")),
        revoked: None,
    }
}

impl Place {
    fn with(exports: Vec<Export>) -> Self {
        Place::with_files(exports, |_, files| files)
    }

    /// `change` makes more files, and says which are used.
    fn with_files(
        exports: Vec<Export>,
        change: impl FnOnce(&Authority, KeyFiles) -> KeyFiles,
    ) -> Self {
        let home = tempfile::tempdir().unwrap();
        let authority = Authority::new(home.path(), "authority").unwrap();
        authority.certify("server", &[SERVER]).unwrap();
        let files = change(&authority, files(home.path()));
        let config = Config { tls: Some(files), ..config() };
        Place { fixture: Fixture::with(config, exports), authority, home }
    }

    /// A client over TLS that shows this certificate.
    fn relay(&self, own: Option<Certified>) -> Relay {
        let (authority, server) = (self.home.path().join("authority.pem"), SERVER.to_owned());
        Relay::start(self.fixture.address(), &Shown { authority, server, own }).unwrap()
    }

    fn handle(&self) -> NfsFh3 {
        NfsFh3::new(&self.fixture.root().encode()).unwrap()
    }
}

fn vms(access: Access, xprtsec: Xprtsec) -> Vec<Export> {
    vec![Export { access, xprtsec, ..Export::new("/vms", "tank/vms") }]
}

fn status(client: &mut Client, object: NfsFh3) -> Nfsstat3 {
    match client.nfs(&Args3::Getattr(Getattr3Args { object })).decode::<Getattr3Res>() {
        Res3::Ok(_) => Nfsstat3::Ok,
        Res3::Fail { status, .. } => status,
    }
}

/// Small and large, both ways, and many at once: as in clear text.
#[test]
fn calls_travel_over_tls_as_in_the_clear() {
    let place = Place::with(vms(Access::read_write(), Xprtsec::Tls));
    let relay = place.relay(None);
    let mut client = Client::connect(relay.address);
    client.ping();
    let root = client.mount("/vms").unwrap();
    let mut records = Vec::new();
    for _ in 0..500 {
        records.extend(client.null_record());
    }
    client.send(&records);
    for _ in 0..500 {
        client.receive_xid();
    }
    let how = CreateHow3::Guarded(Sattr3::NONE);
    let place_of = DirOpArgs3 { dir: root, name: b"disk" };
    let made = client.nfs(&Args3::Create(Create3Args { place: place_of, how }));
    let Res3::Ok(made) = made.decode::<Create3Res>() else { panic!("it is made") };
    let file = made.obj.unwrap();
    for (offset, len) in [(0, 1), (5, 4096), (8192, 4096), (65536, 65536), (1 << 20, 1 << 20)] {
        let bytes: Vec<u8> = (0..len).map(|at: u64| u8::try_from(at % 251).unwrap()).collect();
        let count = u32::try_from(len).unwrap();
        let head = Write3Head { file, offset, count, stable: StableHow::FileSync };
        let data = Span { offset: 0, bytes: &bytes };
        let written = client.nfs(&Args3::Write(Write3Args { head, data }));
        assert!(matches!(written.decode::<Write3Res>(), Res3::Ok(ok) if ok.count == count));
        let read = client.nfs(&Args3::Read(Read3Args { file, offset, count }));
        let Res3::Ok(read) = read.decode::<Read3Res<'_>>() else { panic!("it is read") };
        assert!(read.data.bytes == bytes, "{len} bytes at {offset}");
    }
}

/// An export's requirement holds for every call except MOUNT's. Over TLS, all calls are taken that
/// are taken in clear text.
#[test]
fn an_export_is_used_as_it_asks() {
    let certificate = |place: &Place| Some(place.authority.certify("hv1", &["hv1"]).unwrap());
    for (xprtsec, expected) in [
        (Xprtsec::None, [Nfsstat3::Ok; 3]),
        (Xprtsec::Tls, [Nfsstat3::Acces, Nfsstat3::Ok, Nfsstat3::Ok]),
        (Xprtsec::Mtls, [Nfsstat3::Acces, Nfsstat3::Acces, Nfsstat3::Ok]),
    ] {
        let place = Place::with(vms(Access::read_write(), xprtsec));
        let (tls, mtls) = (place.relay(None), place.relay(certificate(&place)));
        let at = [place.fixture.address(), tls.address, mtls.address];
        for (address, expected) in at.into_iter().zip(expected) {
            let mut client = Client::connect(address);
            let handle = client.mount("/vms").unwrap();
            assert_eq!(status(&mut client, handle), expected, "{xprtsec:?}");
            if expected == Nfsstat3::Ok {
                assert_eq!(locked(&mut client, &handle, 1), Nlm4Stats::Granted, "{xprtsec:?}");
            } else {
                let refused =
                    client.call(LOCK, &lock_args(lock(&handle, 1, 0, 0), false, false)).err();
                let too_weak = Rejection::AuthError(AuthStat::TooWeak);
                assert_eq!(refused, Some(Refusal::Denied(too_weak)), "{xprtsec:?}");
            }
        }
    }
}

/// A certificate admits a client by its name, from any address. Without it, or with another one, no
/// client is admitted.
#[test]
fn a_client_is_known_by_its_certificate() {
    let entry = Entry { client: Named::Certificate("hv1.example".into()), except: false };
    let access = Access { read_write: Whom::Listed(vec![entry]), ..Access::default() };
    let place = Place::with(vms(access, Xprtsec::None));
    let handle = place.handle();
    let certified = |file, names: &[&str]| Some(place.authority.certify(file, names).unwrap());
    let stranger = tempfile::tempdir().unwrap();
    let other = Authority::new(stranger.path(), "other").unwrap();
    for (own, expected) in [
        (certified("hv1", &["HV1.example", "10.0.0.1"]), Nfsstat3::Ok),
        (certified("both", &["a.example", "hv1.example"]), Nfsstat3::Ok),
        (certified("hv2", &["hv2.example"]), Nfsstat3::Acces),
        (certified("all", &["*.example"]), Nfsstat3::Acces),
        (None, Nfsstat3::Acces),
    ] {
        let relay = place.relay(own);
        let mut client = Client::connect(relay.address);
        assert_eq!(status(&mut client, handle), expected);
        // A client with a proven identity is served as a client.
        let strangers = usize::from(expected != Nfsstat3::Ok);
        place.fixture.until("it is where it belongs", |fixture| {
            let load = fixture.server().load();
            (load.connections, load.in_lobby) == (1, strangers)
        });
        assert_eq!(status(&mut client, handle), expected);
    }
    assert_eq!(status(&mut place.fixture.client(), handle), Nfsstat3::Acces);
    // Signed by an authority that the server does not know: there is no connection.
    let relay = place.relay(Some(other.certify("hv1", &["hv1.example"]).unwrap()));
    let mut client = Client::connect(relay.address);
    let record = client.null_record();
    let _ = client.stream.write_all(&record);
    client.closed();
}

/// Clear text before the handshake does not pass for TLS data.
#[test]
fn nothing_is_smuggled_in_before_the_handshake() {
    let place = Place::with(vms(Access::read_write(), Xprtsec::Tls));
    let mut client = place.fixture.client();
    let object = place.handle();
    let call = client.nfs_record(&Args3::Getattr(Getattr3Args { object }));
    let together = [probe(1), call].concat();
    client.send(&together);
    // The probe is answered, and then the connection ends.
    assert_eq!(client.receive_xid(), 1);
    client.closed();
    // Half a call behind it is no better, nor are bytes other than a handshake.
    for behind in [&[0x80, 0, 0, 40, 1][..], &[0x16, 3, 1, 0, 4, 1, 2, 3, 4], &[0xff; 64]] {
        let mut client = place.fixture.client();
        client.send(&probe(2));
        assert_eq!(client.receive_xid(), 2);
        client.send(behind);
        client.shutdown();
        let mut rest = Vec::new();
        let _ = std::io::Read::read_to_end(&mut client.stream, &mut rest);
        assert!(rest.len() <= 7, "an alert at most: {rest:?}");
    }
    // A second probe is refused: over TLS there is no further TLS.
    let relay = place.relay(None);
    let mut client = Client::connect(relay.address);
    client.send(&probe(3));
    refused(&client.receive());
    place.fixture.until("all connections have ended", |fixture| {
        drop(client.stream.shutdown(std::net::Shutdown::Both));
        fixture.server().load().connections == 0
    });
}

/// A server without a certificate answers that it knows no TLS.
#[test]
fn a_server_without_certificates_refuses_the_probe() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    client.send(&probe(4));
    refused(&client.receive());
    client.ping();
}

/// A renewed certificate is used without a restart, and old connections go on.
#[test]
fn certificates_are_renewed_in_service() {
    let place = Place::with(vms(Access::read_write(), Xprtsec::Tls));
    let old = place.relay(None);
    let mut client = Client::connect(old.address);
    client.ping();
    place.authority.certify("server", &["new.example"]).unwrap();
    let authority = place.home.path().join("authority.pem");
    let shown = Shown { authority, server: "new.example".into(), own: None };
    let new = Relay::start(place.fixture.address(), &shown).unwrap();
    let is_shown = || {
        let mut client = Client::connect(new.address);
        let record = client.null_record();
        client.stream.write_all(&record).is_ok()
            && std::io::Read::read_exact(&mut client.stream, &mut [0; 28]).is_ok()
    };
    let mut rounds = 0;
    while !is_shown() {
        rounds += 1;
        assert!(rounds < 100, "the new certificate is not shown");
        std::thread::sleep(Duration::from_millis(200));
    }
    client.ping();
}

/// A client whose certificate is revoked or at its end is not served any more, on no connection;
/// others are.
#[test]
fn a_certificate_that_is_not_good_any_more_ends_its_connections() {
    let place = Place::with_files(vms(Access::read_write(), Xprtsec::Mtls), |authority, files| {
        KeyFiles { revoked: Some(authority.revoke("revoked", &[]).unwrap()), ..files }
    });
    let soon = std::time::SystemTime::now() + Duration::from_secs(8);
    let certify = |name: &str, until| place.authority.certify_until(name, &[name], until).unwrap();
    let (stays, revoked, ends) =
        (certify("stays", None), certify("revoked", None), certify("ends", Some(soon)));
    let relay_of = |certified: &Certified| place.relay(Some(certified.clone()));
    let relays = [&stays, &revoked, &ends].map(relay_of);
    let mut clients = relays.each_ref().map(|relay| Client::connect(relay.address));
    for client in &mut clients {
        assert_eq!(status(client, place.handle()), Nfsstat3::Ok);
    }
    let [mut stays, mut revoked_client, mut ends] = clients;
    // Connections that have gone quiet end, too.
    place.authority.revoke("revoked", &[&revoked]).unwrap();
    revoked_client.closed();
    assert_eq!(status(&mut stays, place.handle()), Nfsstat3::Ok);
    ends.closed();
    assert!(std::time::SystemTime::now() >= soon);
    assert_eq!(status(&mut stays, place.handle()), Nfsstat3::Ok);
    for relay in &relays[1..] {
        let mut client = Client::connect(relay.address);
        let record = client.null_record();
        let _ = client.stream.write_all(&record);
        client.closed();
    }
}

/// Nobody knows whether a certificate was revoked whose authority has no list.
#[test]
fn a_certificate_without_a_list_of_its_authority_is_refused() {
    let place = Place::with_files(vms(Access::read_write(), Xprtsec::None), |_, files| {
        let elsewhere = tempfile::tempdir().unwrap();
        let other = Authority::new(elsewhere.path(), "other").unwrap();
        let list = other.revoke("other", &[]).unwrap();
        let kept = files.certificate.with_file_name("other.crl");
        std::fs::copy(list, &kept).unwrap();
        KeyFiles { revoked: Some(kept), ..files }
    });
    let relay = place.relay(Some(place.authority.certify("hv1", &["hv1"]).unwrap()));
    let mut client = Client::connect(relay.address);
    let record = client.null_record();
    let _ = client.stream.write_all(&record);
    client.closed();
    // One that shows none is served as before.
    let relay = place.relay(None);
    assert_eq!(status(&mut Client::connect(relay.address), place.handle()), Nfsstat3::Ok);
}

fn probe(xid: u32) -> Vec<u8> {
    let credential = Credential::Other(OpaqueAuth { flavor: 7, body: &[] });
    let verifier = OpaqueAuth::NONE;
    let mut to = EncodeBuf::new();
    to.put(&Call { xid, program: PROGRAM, version: VERSION, procedure: 0, credential, verifier });
    let call = to.to_vec();
    let mark = 0x8000_0000 | u32::try_from(call.len()).unwrap();
    [&mark.to_be_bytes()[..], &call].concat()
}

fn refused(record: &[u8]) {
    let body = Reply::decode(&mut Decoder::new(record)).unwrap().body;
    assert_eq!(body, ReplyBody::Denied(Rejection::AuthError(AuthStat::BadCred)));
}
