//! Registration with another machine-wide portmapper (RFC 1833 section 3), over UDP loopback.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use aquifer_nfs::proto::{nlm, nsm};
use aquifer_rpc::auth::Credential;
use aquifer_rpc::portmap::{Answer, AnswerError, IPPROTO_UDP, Mapping, Request};
use aquifer_rpc::xdr::EncodeBuf;
use tokio::net::UdpSocket;
use tokio::time::timeout;

use crate::limits::RPCBIND_PATIENCE;
use crate::listen;

/// Sees to it that `programs` are registered. What is registered already costs one question.
///
/// # Errors
/// What went wrong, for people.
pub(super) async fn register(other: SocketAddr, programs: &[Mapping]) -> Result<(), String> {
    let mut client = Client::open(other).await?;
    let known = client.mappings().await?;
    let mut versions: Vec<_> = programs.iter().map(|it| (it.prog, it.vers)).collect();
    versions.sort_unstable();
    versions.dedup();
    for (prog, vers) in versions {
        let is_it = |it: &&Mapping| (it.prog, it.vers) == (prog, vers);
        let ours = || programs.iter().filter(is_it);
        if ours().all(|mapping| known.contains(mapping)) {
            continue;
        }
        let mut others = known.iter().filter(is_it).filter(|it| !programs.contains(it));
        if LOCK_PROGRAMS.contains(&prog) && others.any(is_taken) {
            tracing::warn!(
                program = prog,
                "somebody else serves it on this machine: clients will not find our locks, and \
                 are to mount with nolock"
            );
            continue;
        }
        // Left over from somebody who is gone: the port that it names would be taken if not.
        // UNSET takes those of all transports away.
        if known.iter().any(|it| is_it(&it)) {
            client.done(Request::Unset(Mapping { prog, vers, prot: 0, port: 0 })).await?;
        }
        for mapping in ours() {
            if !client.done(Request::Set(*mapping)).await? {
                return Err(format!("it refuses program {prog} version {vers}"));
            }
        }
    }
    Ok(())
}

/// Whether somebody listens at the port of a mapping, on this machine.
fn is_taken(mapping: &Mapping) -> bool {
    let Ok(port) = u16::try_from(mapping.port) else { return false };
    let any = [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()];
    any.into_iter().any(|address| {
        let tried = match mapping.prot {
            IPPROTO_UDP => std::net::UdpSocket::bind((address, port)).err(),
            _ => std::net::TcpListener::bind((address, port)).err(),
        };
        tried.is_some_and(|error| error.kind() == io::ErrorKind::AddrInUse)
    })
}

/// Withdraws those of `programs` that are ours still.
///
/// # Errors
/// What went wrong, for people.
pub(super) async fn withdraw(other: SocketAddr, programs: &[Mapping]) -> Result<(), String> {
    let mut client = Client::open(other).await?;
    let known = client.mappings().await?;
    for mapping in programs.iter().filter(|mapping| known.contains(mapping)) {
        client.done(Request::Unset(*mapping)).await?;
    }
    Ok(())
}

struct Client {
    socket: UdpSocket,
    xid: u32,
}

impl Client {
    async fn open(other: SocketAddr) -> Result<Self, String> {
        let said = |error: io::Error| error.to_string();
        let socket = reserved_port(other).map_err(said)?;
        let socket = UdpSocket::from_std(socket).map_err(said)?;
        socket.connect(other).await.map_err(said)?;
        // Datagrams of an earlier client on this port must not pass for answers.
        let since_boot = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let xid = u32::try_from(since_boot.tv_nsec).unwrap_or(0);
        Ok(Client { socket, xid })
    }

    async fn mappings(&mut self) -> Result<Vec<Mapping>, String> {
        match self.ask(Request::Dump).await? {
            Answer::Mappings(all) => Ok(all),
            other => Err(format!("it answers {other:?} to DUMP")),
        }
    }

    async fn done(&mut self, request: Request) -> Result<bool, String> {
        match self.ask(request).await? {
            Answer::Done(done) => Ok(done),
            other => Err(format!("it answers {other:?} to {request:?}")),
        }
    }

    async fn ask(&mut self, request: Request) -> Result<Answer, String> {
        self.xid = self.xid.wrapping_add(1);
        let mut call = EncodeBuf::new();
        request.encode(self.xid, Credential::None, &mut call);
        let call = call.to_vec();
        let mut failed = "no answer".to_owned();
        for _ in 0..ATTEMPTS {
            if let Err(error) = self.socket.send(&call).await {
                return Err(error.to_string());
            }
            match timeout(RPCBIND_PATIENCE, self.answer_to(request)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => return Err(error),
                Err(_) => failed = format!("no answer to {request:?}"),
            }
        }
        Err(failed)
    }

    async fn answer_to(&self, request: Request) -> Result<Answer, String> {
        let mut reply = vec![0; ANSWER_BYTES_MAX];
        loop {
            let received = self.socket.recv(&mut reply).await;
            let bytes = received.map_err(|error| error.to_string())?;
            match request.decode_answer(self.xid, reply.get(..bytes).unwrap_or_default()) {
                Ok(answer) => return Ok(answer),
                Err(AnswerError::OtherXid { .. }) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

/// A socket at a loopback port below 1024, if we may: rpcbind then takes us for the superuser, and
/// nobody else can withdraw what we register.
fn reserved_port(other: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let local: IpAddr = match other {
        SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    let reserved = (600..1024).rev().find_map(|port| listen::udp((local, port).into()).ok());
    reserved.map_or_else(|| listen::udp((local, 0).into()), Ok)
}

/// Programs of which a machine has one, and not always ours.
const LOCK_PROGRAMS: [u32; 2] = [nlm::PROGRAM, nsm::PROGRAM];

const ATTEMPTS: u32 = 2;

/// The longest datagram that there is: a table of some thousand programs.
const ANSWER_BYTES_MAX: usize = 65_536;
