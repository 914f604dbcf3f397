//! Registration with another machine-wide portmapper (RFC 1833 section 3), over UDP loopback.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use aquifer_rpc::auth::Credential;
use aquifer_rpc::portmap::{Answer, AnswerError, Mapping, Request};
use aquifer_rpc::xdr::EncodeBuf;
use tokio::net::UdpSocket;
use tokio::time::timeout;

use crate::limits::RPCBIND_PATIENCE;
use crate::listen;

/// Sees to it that `programs` are registered. What is registered already costs one question each.
///
/// # Errors
/// What went wrong, for people.
pub(super) async fn register(other: SocketAddr, programs: &[Mapping]) -> Result<(), String> {
    let mut client = Client::open(other).await?;
    for mapping in programs {
        if client.is_registered(*mapping).await? {
            continue;
        }
        if client.done(Request::Set(*mapping)).await? {
            continue;
        }
        // Left over from somebody who is gone: the port that it names would be taken if not.
        client.done(Request::Unset(*mapping)).await?;
        if !client.done(Request::Set(*mapping)).await? {
            let Mapping { prog, vers, .. } = mapping;
            return Err(format!("it refuses program {prog} version {vers}"));
        }
    }
    Ok(())
}

/// Withdraws those of `programs` that are ours still.
///
/// # Errors
/// What went wrong, for people.
pub(super) async fn withdraw(other: SocketAddr, programs: &[Mapping]) -> Result<(), String> {
    let mut client = Client::open(other).await?;
    for mapping in programs {
        if client.is_registered(*mapping).await? {
            client.done(Request::Unset(*mapping)).await?;
        }
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

    async fn is_registered(&mut self, mapping: Mapping) -> Result<bool, String> {
        match self.ask(Request::Dump).await? {
            Answer::Mappings(all) => Ok(all.contains(&mapping)),
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

const ATTEMPTS: u32 = 2;

/// The longest datagram that there is: a table of some thousand programs.
const ANSWER_BYTES_MAX: usize = 65_536;
