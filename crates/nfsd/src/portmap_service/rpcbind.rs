//! Registration with another machine-wide portmapper (RFC 1833), over UDP loopback: IPv4 services
//! by version 2, IPv6 services by version 4.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use aquifer_nfs::proto::{nlm, nsm};
use aquifer_rpc::auth::Credential;
use aquifer_rpc::message::{Accepted, Reply, ReplyBody};
use aquifer_rpc::portmap::rpcb::{self, Rpcb};
use aquifer_rpc::portmap::{Answer, AnswerError, IPPROTO_UDP, Mapping, Request, Service};
use aquifer_rpc::xdr::{Decode, Decoder, EncodeBuf, XdrError};
use tokio::net::UdpSocket;
use tokio::time::timeout;

use crate::limits::RPCBIND_PATIENCE;
use crate::listen;

/// Ensures that `programs` are registered. For registered ones that costs one question.
///
/// # Errors
/// A message for people.
pub(super) async fn register(other: SocketAddr, programs: &[Service]) -> Result<(), String> {
    let mut client = Client::open(other).await?;
    let mappings: Vec<Mapping> = programs.iter().filter_map(Service::mapping).collect();
    let known = client.mappings().await?;
    let mut versions: Vec<_> = mappings.iter().map(|it| (it.prog, it.vers)).collect();
    versions.sort_unstable();
    versions.dedup();
    for (prog, vers) in versions {
        let is_it = |it: &&Mapping| (it.prog, it.vers) == (prog, vers);
        let ours = || mappings.iter().filter(is_it);
        if ours().all(|mapping| known.contains(mapping)) {
            continue;
        }
        let mut others = known.iter().filter(is_it).filter(|it| !mappings.contains(it));
        if LOCK_PROGRAMS.contains(&prog) && others.any(is_taken) {
            tracing::warn!(
                program = prog,
                "somebody else serves it on this machine: clients will not find our locks, and \
                 are to mount with nolock"
            );
            continue;
        }
        // A stale entry: if its program still ran, it would hold the port. UNSET removes those of
        // all transports.
        if known.iter().any(|it| is_it(&it)) {
            client.done(Request::Unset(Mapping { prog, vers, prot: 0, port: 0 })).await?;
        }
        for mapping in ours() {
            if !client.done(Request::Set(*mapping)).await? {
                return Err(format!("it refuses program {prog} version {vers}"));
            }
        }
    }
    if let Err(error) = client.register_v6(programs).await {
        // An old portmapper knows no IPv6; clients find us over IPv4.
        tracing::debug!(%other, error, "not registered for IPv6");
    }
    Ok(())
}

/// Whether a program listens at the port of a mapping, on this machine.
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

/// Withdraws those of `programs` that are still ours.
///
/// # Errors
/// A message for people.
pub(super) async fn withdraw(other: SocketAddr, programs: &[Service]) -> Result<(), String> {
    let mut client = Client::open(other).await?;
    // First: with some portmappers, withdrawing from version 2 removes other transports too.
    if let Err(error) = client.withdraw_v6(programs).await {
        tracing::debug!(%other, error, "not withdrawn for IPv6");
    }
    let known = client.mappings().await?;
    for mapping in programs.iter().filter_map(Service::mapping) {
        if known.contains(&mapping) {
            client.done(Request::Unset(mapping)).await?;
        }
    }
    Ok(())
}

/// IPv6 services, as rpcbind describes them.
fn over_v6(programs: &[Service]) -> Vec<Rpcb> {
    programs.iter().filter(|service| service.at.is_ipv6()).map(Rpcb::of).collect()
}

fn is_among(one: &Rpcb, all: &[Rpcb]) -> bool {
    all.iter().any(|other| other.is_at_place_of(one))
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

    async fn register_v6(&mut self, programs: &[Service]) -> Result<(), String> {
        let wanted = over_v6(programs);
        let present = self.places(&wanted).await?;
        for wanted in wanted.iter().filter(|wanted| !is_among(wanted, &present)) {
            if self.change(rpcb::Procedure::Set, wanted).await? {
                continue;
            }
            if LOCK_PROGRAMS.contains(&wanted.prog) {
                // Another program's, which keeps it; reported above, if it is so over IPv4.
                continue;
            }
            // A stale entry of a program that is gone.
            self.change(rpcb::Procedure::Unset, wanted).await?;
            if !self.change(rpcb::Procedure::Set, wanted).await? {
                let Rpcb { prog, vers, netid, .. } = wanted;
                return Err(format!("it refuses program {prog} version {vers} on {netid}"));
            }
        }
        Ok(())
    }

    async fn withdraw_v6(&mut self, programs: &[Service]) -> Result<(), String> {
        let ours = over_v6(programs);
        let present = self.places(&ours).await?;
        for ours in ours.iter().filter(|ours| is_among(ours, &present)) {
            self.change(rpcb::Procedure::Unset, ours).await?;
        }
        Ok(())
    }

    /// All its entries; none, if there is nothing to look for.
    async fn places(&mut self, wanted: &[Rpcb]) -> Result<Vec<Rpcb>, String> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        self.ask_rpcb(rpcb::Procedure::Dump, None, |from| from.list()).await
    }

    async fn change(&mut self, procedure: rpcb::Procedure, what: &Rpcb) -> Result<bool, String> {
        self.ask_rpcb(procedure, Some(what), |from| from.bool()).await
    }

    async fn ask_rpcb<T>(
        &mut self,
        procedure: rpcb::Procedure,
        what: Option<&Rpcb>,
        read: impl Fn(&mut Decoder<'_>) -> Result<T, XdrError>,
    ) -> Result<T, String> {
        self.xid = self.xid.wrapping_add(1);
        let mut call = EncodeBuf::new();
        rpcb::encode_call(procedure, what, self.xid, &mut call);
        let xid = self.xid;
        self.exchange(&call.to_vec(), &format!("{procedure:?}"), |message| {
            let mut from = Decoder::new(message);
            let reply = Reply::decode(&mut from).map_err(|error| error.to_string())?;
            if reply.xid != xid {
                return Ok(None);
            }
            match reply.body {
                ReplyBody::Accepted { status: Accepted::Success, .. } => {
                    read(&mut from).map(Some).map_err(|error| error.to_string())
                }
                refused => Err(format!("it answers {refused:?} to {procedure:?}")),
            }
        })
        .await
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
        let xid = self.xid;
        let read = |message: &[u8]| match request.decode_answer(xid, message) {
            Ok(answer) => Ok(Some(answer)),
            Err(AnswerError::OtherXid { .. }) => Ok(None),
            Err(error) => Err(error.to_string()),
        };
        self.exchange(&call.to_vec(), &format!("{request:?}"), read).await
    }

    /// Sends a call until it is answered; `read` decodes an answer, or says that it answers another
    /// call.
    async fn exchange<T>(
        &mut self,
        call: &[u8],
        what: &str,
        read: impl Fn(&[u8]) -> Result<Option<T>, String>,
    ) -> Result<T, String> {
        let mut reply = vec![0; ANSWER_BYTES_MAX];
        for _ in 0..ATTEMPTS {
            if let Err(error) = self.socket.send(call).await {
                return Err(error.to_string());
            }
            let answered = async {
                loop {
                    let received = self.socket.recv(&mut reply).await;
                    let bytes = received.map_err(|error| error.to_string())?;
                    if let Some(answer) = read(reply.get(..bytes).unwrap_or_default())? {
                        return Ok(answer);
                    }
                }
            };
            if let Ok(answered) = timeout(RPCBIND_PATIENCE, answered).await {
                return answered;
            }
        }
        Err(format!("no answer to {what}"))
    }
}

/// A socket at a loopback port below 1024, if we may. Then rpcbind takes us for the superuser, and
/// nobody else can withdraw our registrations.
fn reserved_port(other: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let local: IpAddr = match other {
        SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    let reserved = (600..1024).rev().find_map(|port| listen::udp((local, port).into()).ok());
    reserved.map_or_else(|| listen::udp((local, 0).into()), Ok)
}

/// Programs of which a machine has only one, and not always ours.
const LOCK_PROGRAMS: [u32; 2] = [nlm::PROGRAM, nsm::PROGRAM];

const ATTEMPTS: u32 = 2;

/// The longest possible datagram: a table of some thousand programs.
const ANSWER_BYTES_MAX: usize = 65_536;
