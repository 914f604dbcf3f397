//! Checks of who listens on the server's ports, and of what firewalls let through.

use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use aquifer_client::wire::call::Source;
use aquifer_nfs::proto::{mount, nlm, v3};
use aquifer_rpc::auth::Credential;
use aquifer_rpc::limits::RECORD_BYTES_MAX;
use aquifer_rpc::message::{Accepted, Call, NULL_PROCEDURE, Reply, ReplyBody};
use aquifer_rpc::portmap::{Answer, IPPROTO_TCP, Mapping, Request};
use aquifer_rpc::record::{RecordReader, begin_record, end_record};
use aquifer_rpc::xdr::{Decode, Decoder, EncodeBuf};

use crate::codes;
use crate::report::{Finding, Report};
use crate::server::{Portmap, Server};
use crate::session::Wrong;

/// Looks at every address at which the server should be heard. Returns those at which NFS answers.
pub(crate) fn check(server: &Server, report: &mut Report) -> Vec<SocketAddr> {
    let open: Vec<SocketAddr> =
        server.nfs.iter().copied().filter(|at| nfs_answers(*at, server, report)).collect();
    let beyond = |at: &SocketAddr| !at.ip().is_loopback();
    if !server.nfs.is_empty() && !server.nfs.iter().any(beyond) {
        let what = "NFS listens on this machine's loopback only: no hypervisor reaches it";
        let mend = "[nfs] listen = [\"[::]:2049\"]   # in /etc/aquifer/aquifer.toml, then: \
                    systemctl restart aquifer";
        report.add(Finding::new(codes::NFS_LOOPBACK, what).mend(mend));
    }
    portmap(server, report);
    open
}

fn nfs_answers(at: SocketAddr, server: &Server, report: &mut Report) -> bool {
    let who = format!("ss -tlnp 'sport = :{}'", at.port());
    match null(at, v3::PROGRAM, v3::VERSION) {
        Ok(Accepted::Success) if server.is_aquifer => {
            report.add(Finding::new(codes::NFS_PORT_OPEN, format!("NFS answers at {at}")));
            true
        }
        Ok(_) => {
            let what = format!(
                "{at}: another NFS server answers there{}",
                if server.is_aquifer { ", without version 3" } else { ", and no Aquifer" }
            );
            report.add(
                Finding::new(codes::NFS_FOREIGN, what).mend(format!(
                    "{who}   # a kernel's server: systemctl disable --now nfs-server"
                )),
            );
            false
        }
        // Of a daemon that is down this is no news.
        Err(Wrong::Silent(_)) if !server.is_aquifer => false,
        Err(Wrong::Silent(error)) => {
            let (what, mend) = match error.kind() {
                io::ErrorKind::ConnectionRefused => {
                    (format!("{at}: nobody listens there, or a firewall refuses"), who)
                }
                _ => (
                    format!("{at}: no connection ({error}): a firewall drops what comes"),
                    format!(
                        "firewall-cmd --permanent --add-port={}/tcp   # and --reload",
                        at.port()
                    ),
                ),
            };
            report.add(Finding::new(codes::NFS_PORT, what).mend(mend));
            false
        }
        Err(wrong) => {
            let what = format!("{at}: what answers there is no NFS server: {wrong}");
            report.add(Finding::new(codes::NFS_FOREIGN, what).mend(who));
            false
        }
    }
}

/// Checks what the portmapper says, which hypervisors ask on port 111.
fn portmap(server: &Server, report: &mut Report) {
    let Some(nfs_port) = server.nfs.first().map(SocketAddr::port) else { return };
    if !server.is_aquifer {
        return;
    }
    let at = match &server.portmap {
        Portmap::None => {
            let what = "no portmapper tells where NFS is: QEMU's own driver, showmount and rpcinfo \
                        do not find it";
            let mend = "[portmap] enabled = true   # in /etc/aquifer/aquifer.toml, then: \
                        systemctl restart aquifer";
            report.add(Finding::new(codes::PORTMAP_OFF, what).mend(mend));
            return;
        }
        Portmap::Own(at) => *at,
        Portmap::Rpcbind(at) => {
            let what = format!("{at} is rpcbind's: Aquifer has registered with it");
            let mend = "systemctl disable --now rpcbind rpcbind.socket   # if nothing else needs \
                        it; then: systemctl restart aquifer";
            report.add(Finding::new(codes::PORTMAP_RPCBIND, what).mend(mend));
            *at
        }
    };
    let mut is_right = true;
    for (name, program, version) in PROGRAMS {
        let asked = Mapping { prog: program, vers: version, prot: IPPROTO_TCP, port: 0 };
        let over = [
            ("TCP", port_of(at, program, version)),
            ("UDP", over_udp(at, Request::Getport(asked)).and_then(port_in)),
        ];
        for (transport, found) in over {
            let firewall = format!("firewall-cmd --permanent --add-port={}/", at.port());
            let finding = match found {
                Ok(port) if port == u32::from(nfs_port) => continue,
                Ok(port) => {
                    let port = if port == 0 { "nowhere".into() } else { format!("port {port}") };
                    let what = format!(
                        "the portmapper at {at} says over {transport} that {name} is at {port}; \
                         Aquifer's is at port {nfs_port}"
                    );
                    Finding::new(codes::PORTMAP_WRONG, what).mend(format!("rpcinfo -p {}", at.ip()))
                }
                Err(wrong) => {
                    let what = format!("the portmapper at {at} over {transport}: {wrong}");
                    let mend = format!("{firewall}{}", transport.to_lowercase());
                    Finding::new(codes::PORTMAP_SILENT, what).mend(mend)
                }
            };
            report.add(finding);
            is_right = false;
            break;
        }
    }
    if is_right {
        let what = format!("the portmapper at {at} tells where NFS, MOUNT and NLM are");
        report.add(Finding::new(codes::PORTMAP_RIGHT, what));
    }
}

/// Programs for which hypervisors ask a portmapper.
const PROGRAMS: [(&str, u32, u32); 3] = [
    ("NFS 3", v3::PROGRAM, v3::VERSION),
    ("MOUNT 3", mount::PROGRAM, mount::VERSION),
    ("NLM 4", nlm::PROGRAM, nlm::VERSION),
];

/// NULL of a program: how it was accepted.
fn null(at: SocketAddr, program: u32, version: u32) -> Result<Accepted, Wrong> {
    let stream = TcpStream::connect_timeout(&at, CONNECT_PATIENCE).map_err(Wrong::Silent)?;
    null_over(stream, program, version)
}

fn null_over(mut stream: TcpStream, program: u32, version: u32) -> Result<Accepted, Wrong> {
    let mut out = EncodeBuf::new();
    let begun = begin_record(&mut out);
    let (credential, verifier) = (Credential::None, aquifer_rpc::auth::OpaqueAuth::NONE);
    let procedure = NULL_PROCEDURE;
    out.put(&Call { xid: XID, program, version, procedure, credential, verifier });
    end_record(&mut out, begun);
    let reply = exchange(&mut stream, &out.to_vec())?;
    let reply = Reply::decode(&mut Decoder::new(&reply));
    match reply.map_err(|error| Wrong::Rpc(error.to_string()))?.body {
        ReplyBody::Accepted { status, .. } => Ok(status),
        ReplyBody::Denied(why) => Err(Wrong::Rpc(format!("{why:?}"))),
    }
}

/// That NFS 4 is refused, and by an answer: hosts that try it first must not wait.
pub(crate) fn refuses_version_4(from: Source, to: SocketAddr) -> Result<(), Wrong> {
    let stream = from.connect(to).map_err(Wrong::Silent)?;
    match null_over(stream, v3::PROGRAM, 4)? {
        Accepted::ProgMismatch { .. } => Ok(()),
        other => Err(Wrong::Differs(format!("version 4 is not refused: {other:?}"))),
    }
}

/// The port of a program on TCP, 0 for none, as a portmapper says over TCP.
pub(crate) fn port_of(at: SocketAddr, program: u32, version: u32) -> Result<u32, Wrong> {
    let asked = Mapping { prog: program, vers: version, prot: IPPROTO_TCP, port: 0 };
    over_tcp(at, Request::Getport(asked)).and_then(port_in)
}

/// All that a portmapper lists.
pub(crate) fn registered(at: SocketAddr) -> Result<Vec<Mapping>, Wrong> {
    match over_tcp(at, Request::Dump)? {
        Answer::Mappings(all) => Ok(all),
        other => Err(Wrong::Rpc(format!("{other:?}"))),
    }
}

fn port_in(answer: Answer) -> Result<u32, Wrong> {
    match answer {
        Answer::Port(port) => Ok(port),
        other => Err(Wrong::Rpc(format!("{other:?}"))),
    }
}

fn over_tcp(at: SocketAddr, request: Request) -> Result<Answer, Wrong> {
    let stream = TcpStream::connect_timeout(&at, CONNECT_PATIENCE);
    let mut stream = stream.map_err(Wrong::Silent)?;
    let mut out = EncodeBuf::new();
    let begun = begin_record(&mut out);
    request.encode(XID, Credential::None, &mut out);
    end_record(&mut out, begun);
    let reply = exchange(&mut stream, &out.to_vec())?;
    request.decode_answer(XID, &reply).map_err(|error| Wrong::Rpc(error.to_string()))
}

fn over_udp(at: SocketAddr, request: Request) -> Result<Answer, Wrong> {
    let mut out = EncodeBuf::new();
    request.encode(XID, Credential::None, &mut out);
    let any: SocketAddr = if at.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
    let asked = || {
        let socket = UdpSocket::bind(any)?;
        socket.connect(at)?;
        socket.set_read_timeout(Some(DATAGRAM_PATIENCE))?;
        let mut reply = vec![0; DATAGRAM_BYTES];
        let mut last = io::Error::from(io::ErrorKind::TimedOut);
        // A datagram may be lost.
        for _ in 0..2 {
            socket.send(&out.to_vec())?;
            match socket.recv(&mut reply) {
                Ok(bytes) => {
                    reply.truncate(bytes);
                    return Ok(reply);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    };
    let reply = asked().map_err(Wrong::Silent)?;
    request.decode_answer(XID, &reply).map_err(|error| Wrong::Rpc(error.to_string()))
}

/// Sends a record, and receives one.
fn exchange(stream: &mut TcpStream, record: &[u8]) -> Result<Vec<u8>, Wrong> {
    use std::io::{Read, Write};
    stream.set_read_timeout(Some(ANSWER_PATIENCE)).map_err(Wrong::Silent)?;
    stream.write_all(record).map_err(Wrong::Silent)?;
    let mut received = RecordReader::new(RECORD_BYTES_MAX, RECEIVE_BYTES);
    loop {
        let next = received.next_record().map_err(|error| Wrong::Rpc(error.to_string()))?;
        if let Some(reply) = next {
            return Ok(reply.to_vec());
        }
        match stream.read(received.space()).map_err(Wrong::Silent)? {
            0 => return Err(Wrong::Silent(io::ErrorKind::UnexpectedEof.into())),
            bytes => received.filled(bytes),
        }
    }
}

const XID: u32 = 0x646f_6374;
const RECEIVE_BYTES: usize = 64 * 1024;
const DATAGRAM_BYTES: usize = 8 * 1024;
/// Hypervisors give up after about as long.
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);
const ANSWER_PATIENCE: Duration = Duration::from_secs(3);
const DATAGRAM_PATIENCE: Duration = Duration::from_secs(1);
