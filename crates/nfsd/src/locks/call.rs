//! Calls of programs on other machines: found by their portmapper, over UDP or TCP.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use aquifer_rpc::auth::{AuthSys, Credential, Gids, OpaqueAuth};
use aquifer_rpc::message::Call;
use aquifer_rpc::portmap::{self, IPPROTO_TCP, IPPROTO_UDP, Mapping};
use aquifer_rpc::record::{RecordReader, begin_record, end_record};
use aquifer_rpc::xdr::EncodeBuf;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::answers;
use crate::limits::{CALL_ATTEMPTS, CALL_PATIENCE, CALL_REPLY_BYTES_MAX};

/// The transport of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Udp,
    Tcp,
}

/// The called program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    pub number: u32,
    pub version: u32,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// No answer from that address.
    #[error("{0}")]
    Silent(String),
    /// An answer, but not to this call.
    #[error("{0}")]
    Refused(String),
}

/// Calls programs of one machine.
#[derive(Debug)]
pub(super) struct Caller<'a> {
    /// The machine, and the port of its portmapper.
    pub portmap: SocketAddr,
    /// The address of ours to call from.
    pub via: Option<IpAddr>,
    /// How many calls there may be at a time. A call that waits for the next try holds no slot.
    pub slots: &'a Semaphore,
}

impl Caller<'_> {
    /// Calls a procedure, by the first of `transports` that works. Returns its results.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call(
        &self,
        program: Program,
        transports: [Transport; 2],
        procedure: u32,
        args: &[u8],
    ) -> Result<Vec<u8>, CallError> {
        // Never closed.
        let _slot = self.slots.acquire().await;
        let mut failed = String::new();
        for transport in transports {
            let called = match self.port_of(program, transport).await? {
                Some(port) => {
                    let to = SocketAddr::new(self.portmap.ip(), port);
                    self.exchange(to, transport, program, procedure, args).await
                }
                None => Err(format!("its portmapper knows no {program:?}")),
            };
            match called {
                Ok(results) => return Ok(results),
                Err(error) => failed = format!("{transport:?}: {error}; {failed}"),
            }
        }
        Err(CallError::Refused(failed))
    }

    /// The port of a program, from its machine's portmapper; `None` if that does not know it.
    async fn port_of(
        &self,
        program: Program,
        transport: Transport,
    ) -> Result<Option<u16>, CallError> {
        let prot = match transport {
            Transport::Udp => IPPROTO_UDP,
            Transport::Tcp => IPPROTO_TCP,
        };
        let Program { number: prog, version: vers } = program;
        let mut args = EncodeBuf::new();
        args.put(&Mapping { prog, vers, prot, port: 0 });
        let args = args.to_vec();
        let mapper = Program { number: portmap::PROGRAM, version: portmap::VERSION };
        let procedure = portmap::Procedure::Getport.wire();
        let mut asked = Err(String::new());
        for by in [Transport::Udp, Transport::Tcp] {
            asked = self.exchange(self.portmap, by, mapper, procedure, &args).await;
            if asked.is_ok() {
                break;
            }
        }
        let results =
            asked.map_err(|error| CallError::Silent(format!("its portmapper: {error}")))?;
        Ok(answers::port(&results))
    }

    async fn exchange(
        &self,
        to: SocketAddr,
        transport: Transport,
        program: Program,
        procedure: u32,
        args: &[u8],
    ) -> Result<Vec<u8>, String> {
        let xid = new_xid();
        let credential = root();
        let (program, version) = (program.number, program.version);
        let verifier = OpaqueAuth::NONE;
        let mut message = EncodeBuf::new();
        let mark = begin_record(&mut message);
        message.put(&Call { xid, program, version, procedure, credential, verifier });
        // Arguments are whole words, as all XDR.
        for word in args.chunks_exact(4) {
            message.u32(u32::from_be_bytes(word.try_into().unwrap_or_default()));
        }
        end_record(&mut message, mark);
        let message = message.to_vec();
        match transport {
            Transport::Udp => {
                let datagram = message.get(4..).unwrap_or_default();
                self.by_datagram(to, datagram, xid).await
            }
            Transport::Tcp => {
                let answered = timeout(CALL_PATIENCE, self.by_stream(to, &message, xid)).await;
                answered.unwrap_or_else(|_| Err("no answer".into()))
            }
        }
    }

    async fn by_datagram(&self, to: SocketAddr, call: &[u8], xid: u32) -> Result<Vec<u8>, String> {
        let said = |error: io::Error| error.to_string();
        let socket = UdpSocket::bind(SocketAddr::new(self.from(to), 0)).await.map_err(said)?;
        socket.connect(to).await.map_err(said)?;
        let mut reply = vec![0; CALL_REPLY_BYTES_MAX];
        for _ in 0..CALL_ATTEMPTS {
            socket.send(call).await.map_err(said)?;
            let answered = timeout(CALL_PATIENCE / CALL_ATTEMPTS, async {
                loop {
                    let bytes = socket.recv(&mut reply).await.map_err(said)?;
                    if let Some(results) =
                        answers::results(reply.get(..bytes).unwrap_or_default(), xid)
                    {
                        return results;
                    }
                }
            });
            if let Ok(answered) = answered.await {
                return answered;
            }
        }
        Err("no answer".into())
    }

    async fn by_stream(&self, to: SocketAddr, call: &[u8], xid: u32) -> Result<Vec<u8>, String> {
        let said = |error: io::Error| error.to_string();
        let socket = if to.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
        let socket = socket.map_err(said)?;
        socket.bind(SocketAddr::new(self.from(to), 0)).map_err(said)?;
        let mut stream = socket.connect(to).await.map_err(said)?;
        stream.write_all(call).await.map_err(said)?;
        let mut reader = RecordReader::new(CALL_REPLY_BYTES_MAX, CALL_REPLY_BYTES_MAX);
        loop {
            let bytes = stream.read(reader.space()).await.map_err(said)?;
            if bytes == 0 {
                return Err("the connection was closed".into());
            }
            reader.filled(bytes);
            while let Some(record) = reader.next_record().map_err(|error| error.to_string())? {
                if let Some(results) = answers::results(record, xid) {
                    return results;
                }
            }
        }
    }

    /// The address to call from: the one that the client called, if there is one and it is of the
    /// same family.
    fn from(&self, to: SocketAddr) -> IpAddr {
        let any: IpAddr = match to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        self.via.filter(|via| via.is_ipv4() == to.is_ipv4()).unwrap_or(any)
    }
}

/// The credential with which lock managers call each other.
fn root() -> Credential<'static> {
    let gids = Gids::default();
    Credential::Sys(AuthSys { stamp: 0, machine_name: b"aquifer", uid: 0, gid: 0, gids })
}

/// A new one each time: answers to earlier calls must not pass for answers to this one.
fn new_xid() -> u32 {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let since_boot = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_nsec;
    let next = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    u32::try_from(since_boot).unwrap_or(0).wrapping_add(next)
}
