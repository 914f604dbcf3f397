//! MOUNT and the portmapper.

use super::*;
use crate::proto::mount::{DirPath, ExportNode, Exports as ExportList, MountBody, MountList};
use crate::proto::mount::{MountRes3, MountStat3, Name, PROGRAM, Path, Procedure, VERSION};

async fn results(nfs: &Nfs, from: u8, version: u32, what: Procedure, path: &[u8]) -> Vec<u8> {
    results_at(nfs, client(from), version, what, path).await
}

async fn results_at(
    nfs: &Nfs,
    peer: SocketAddr,
    version: u32,
    what: Procedure,
    path: &[u8],
) -> Vec<u8> {
    let record = call(PROGRAM, version, what.wire(), &DirPath { path: Path(path) });
    let body = answer(nfs, peer, &record).await;
    let (reply, results) = reply_of(&body);
    assert!(matches!(reply, ReplyBody::Accepted { status: Accepted::Success, .. }));
    results.remaining().to_vec()
}

pub(super) async fn mnt(nfs: &Nfs, from: u8, path: &[u8]) -> MountStat3 {
    let results = results(nfs, from, VERSION, Procedure::Mnt, path).await;
    match MountRes3::decode(&mut Decoder::new(&results)).unwrap() {
        MountRes3::Ok { .. } => MountStat3::Ok,
        MountRes3::Fail(status) => status,
    }
}

#[tokio::test]
async fn what_is_not_exported_is_not_mounted() {
    let nfs = nfs().await;
    for path in [&b""[..], b"rw", b"/", b"/other", b"/r", b"/rwx", b"\xff"] {
        assert_eq!(mnt(&nfs, 1, path).await, MountStat3::NoEnt, "{path:?}");
    }
    assert_eq!(mnt(&nfs, 2, b"/one").await, MountStat3::Acces);
    assert_eq!(mnt(&nfs, 2, b"/one/sub").await, MountStat3::Acces);
    assert_eq!(mnt(&nfs, 1, b"/rw/../one").await, MountStat3::Inval);
    let dump = results(&nfs, 1, VERSION, Procedure::Dump, b"").await;
    assert_eq!(dump, [0; 4], "nobody has mounted anything");
}

#[tokio::test]
async fn export_says_what_and_by_whom() {
    let nfs = nfs().await;
    let here = SocketAddr::from(([127, 0, 0, 1], 700));
    for (version, (peer, count)) in (1..=3)
        .flat_map(|version| [(here, 3), (client(1), 3), (client(9), 2)].map(|at| (version, at)))
    {
        let list = results_at(&nfs, peer, version, Procedure::Export, b"").await;
        let export = |dir, groups| ExportNode { dir: Path(dir), groups };
        let mut expected = vec![
            export(b"/rw", vec![]),
            export(b"/ro", vec![]),
            export(b"/one", vec![Name(b"10.0.0.1")]),
        ];
        // A client does not learn of an export that does not admit it.
        expected.truncate(count);
        assert_eq!(ExportList::decode(&mut Decoder::new(&list)), Ok(ExportList(expected)));
    }
}

#[tokio::test]
async fn dump_says_who_mounted_what_and_umnt_of_any_version_ends_it() {
    let nfs = nfs().await;
    let host = |last| client(last).ip();
    for (last, path) in [(1, "/rw"), (1, "/one"), (2, "/rw"), (2, "/rw/a")] {
        nfs.mounts.add(host(last), path.into());
    }
    let here = SocketAddr::from(([127, 0, 0, 1], 700));
    let dump_at = async |peer| {
        let bytes = results_at(&nfs, peer, VERSION, Procedure::Dump, b"").await;
        let list = MountList::decode(&mut Decoder::new(&bytes)).unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let line = |body: &MountBody<'_>| text(body.hostname.0) + ":" + &text(body.directory.0);
        list.0.iter().map(line).collect::<Vec<_>>()
    };
    let dump = || dump_at(here);
    let all = ["10.0.0.1:/rw", "10.0.0.1:/one", "10.0.0.2:/rw", "10.0.0.2:/rw/a"];
    assert_eq!(dump().await, all);
    assert_eq!(dump_at(client(2)).await, all[2..], "its own");
    assert!(dump_at(client(9)).await.is_empty());
    assert!(results(&nfs, 1, 1, Procedure::Umnt, b"//rw/").await.is_empty());
    assert_eq!(dump().await, all[1..]);
    results(&nfs, 2, 3, Procedure::Umntall, b"").await;
    assert_eq!(dump().await, all[1..2]);
}

/// The longest possible lists fit the reserved size (checked by `answer`).
#[tokio::test]
async fn the_longest_lists_are_announced() {
    let nfs = nfs().await;
    let network = |number: usize| format!("fd00:1234:5678:9abc:def0:1234:{number:x}::/127");
    let networks: Vec<_> = (0..256).map(|number| network(number).parse().unwrap()).collect();
    let export = |number| {
        let access = Access::read_write_for(networks.clone());
        Export { access, ..Export::new(format!("/{number}"), "rw") }
    };
    nfs.exports().replace((0..35).map(export).collect()).unwrap();
    let here = SocketAddr::from(([127, 0, 0, 1], 700));
    let list = results_at(&nfs, here, VERSION, Procedure::Export, b"").await;
    let list = ExportList::decode(&mut Decoder::new(&list)).unwrap();
    assert_eq!((list.0.len(), list.0[34].groups.len()), (35, 256));
    // More than a reply should hold: only the first exports are listed.
    nfs.exports().replace((0..50).map(export).collect()).unwrap();
    let list = results_at(&nfs, here, VERSION, Procedure::Export, b"").await;
    let list = ExportList::decode(&mut Decoder::new(&list)).unwrap();
    assert!((35..50).contains(&list.0.len()), "{}", list.0.len());
    for number in 0..2000 {
        nfs.mounts.add(client(1).ip(), format!("/{number}").into());
    }
    results(&nfs, 1, VERSION, Procedure::Dump, b"").await;
}

#[tokio::test]
async fn the_portmapper_answers_on_the_same_port() {
    use aquifer_rpc::portmap::rpcb::{self, Rpcb};
    use aquifer_rpc::portmap::{Answer, IPPROTO_TCP, Mapping, Request, Service};
    let nfs = nfs().await;
    let mapping = |prog, port| Mapping { prog, vers: 3, prot: IPPROTO_TCP, port };
    let service =
        |prog| Service { prog, vers: 3, prot: IPPROTO_TCP, at: "[::]:2049".parse().unwrap() };
    let over_v4 = |prog| Service { at: "0.0.0.0:2049".parse().unwrap(), ..service(prog) };
    let both = [100_003, 100_005].map(|prog| [over_v4(prog), service(prog)]);
    nfs.set_portmap(both.concat());
    for (request, expected) in [
        (Request::Null, Answer::Null),
        (Request::Getport(mapping(100_005, 0)), Answer::Port(2049)),
        (Request::Getport(mapping(100_021, 0)), Answer::Port(0)),
        (Request::Set(mapping(100_021, 1)), Answer::Done(false)),
        (Request::Dump, Answer::Mappings(vec![mapping(100_003, 2049), mapping(100_005, 2049)])),
    ] {
        let mut record = EncodeBuf::new();
        request.encode(XID, credential(), &mut record);
        let body = answer(&nfs, client(1), &record.to_vec()).await;
        assert_eq!(request.decode_answer(XID, &body), Ok(expected));
    }
    // The longest lists fit the reserved size (checked by `answer`).
    let address = "[fd00:1234:5678:9abc:def0:1234:5678:9abc]:65535".parse().unwrap();
    let many = (0..50).map(|_| Service { at: address, ..service(100_003) });
    nfs.set_portmap(many.collect());
    let what = Rpcb::of(&service(100_003));
    for procedure in [rpcb::Procedure::Dump, rpcb::Procedure::Getaddrlist] {
        let mut record = EncodeBuf::new();
        rpcb::encode_call(procedure, Some(&what), XID, &mut record);
        let body = answer(&nfs, client(1), &record.to_vec()).await;
        assert!(body.len() > 50 * 60, "{procedure:?}: {} bytes", body.len());
    }
}
