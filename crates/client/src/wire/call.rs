//! Sockets and calls of machines that share one loopback interface, each with an address of its
//! own.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use aquifer_nfs::proto::{mount, nlm, v3};
use aquifer_rpc::auth::{AuthSys, Credential, Gids, OpaqueAuth};
use aquifer_rpc::limits::{RECEIVE_BUFFER_BYTES, RECORD_BYTES_MAX};
use aquifer_rpc::message::Call;
use aquifer_rpc::record::{RecordReader, begin_record, end_record};
use aquifer_rpc::xdr::{Encode, EncodeBuf};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

/// Program, version, procedure.
pub type What = (u32, u32, u32);

/// A procedure of NLM.
#[must_use]
pub fn of_nlm(procedure: nlm::Procedure) -> What {
    (nlm::PROGRAM, nlm::VERSION, procedure.wire())
}

/// A procedure of MOUNT.
#[must_use]
pub fn of_mount(procedure: mount::Procedure) -> What {
    (mount::PROGRAM, mount::VERSION, procedure.wire())
}

/// The NFS call that has these arguments.
#[must_use]
pub fn of_nfs(args: &v3::Args3<'_>) -> What {
    (v3::PROGRAM, v3::VERSION, args.procedure().wire())
}

/// The address and the kind of port that a machine calls from.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    address: IpAddr,
    is_root: bool,
}

impl Source {
    /// From any port.
    #[must_use]
    pub fn user(address: impl Into<IpAddr>) -> Self {
        Source { address: address.into(), is_root: false }
    }

    /// From a port below 1024, which only a superuser gets.
    #[must_use]
    pub fn root(address: impl Into<IpAddr>) -> Self {
        Source { address: address.into(), is_root: true }
    }

    /// Ports to try. Each caller begins with another: the last port may be in use for a while.
    fn ports(self) -> impl Iterator<Item = u16> {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let first = NEXT.fetch_add(1, Ordering::Relaxed);
        let low = (0..LOW_PORTS).map(move |n| 1023 - first.wrapping_add(n) % LOW_PORTS);
        let (low, any) = if self.is_root { (Some(low), None) } else { (None, Some(0)) };
        low.into_iter().flatten().chain(any)
    }

    fn family(self) -> AddressFamily {
        if self.address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
    }

    /// A connection from there.
    ///
    /// # Errors
    /// What the system gives.
    pub fn connect(self, to: SocketAddr) -> io::Result<TcpStream> {
        let mut last = io::Error::from(io::ErrorKind::AddrInUse);
        for port in self.ports() {
            let flags = SocketFlags::CLOEXEC;
            let socket = socket_with(self.family(), SocketType::STREAM, flags, None)?;
            sockopt::set_socket_reuseaddr(&socket, true)?;
            // A connection that the server does not accept must not wait.
            sockopt::set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
            sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
            let connected = bind(&socket, &SocketAddr::new(self.address, port))
                .and_then(|()| connect(&socket, &to));
            match connected {
                Ok(()) => {
                    let stream = TcpStream::from(socket);
                    stream.set_nodelay(true)?;
                    return Ok(stream);
                }
                Err(Errno::ADDRINUSE | Errno::ADDRNOTAVAIL) if self.is_root => {}
                Err(errno) => return Err(errno.into()),
            }
            last = io::Error::from(Errno::ADDRINUSE);
        }
        Err(last)
    }

    /// A connection that leaves nothing behind when it is closed: the kernel resets it.
    ///
    /// # Errors
    /// What the system gives.
    pub fn connect_abrupt(self, to: SocketAddr) -> io::Result<TcpStream> {
        let stream = self.connect(to)?;
        sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
        Ok(stream)
    }

    /// A socket for datagrams from there, even if the address is another machine's.
    pub fn datagrams(self, to: SocketAddr) -> io::Result<UdpSocket> {
        let bound = self.ports().find_map(|port| UdpSocket::bind((self.address, port)).ok());
        let socket = bound.ok_or_else(|| io::Error::from(io::ErrorKind::AddrInUse))?;
        socket.connect(to)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }
}

/// A connection on which calls are made one by one.
#[derive(Debug)]
pub struct Caller {
    stream: TcpStream,
    received: RecordReader,
    xid: u32,
}

impl Caller {
    /// A caller on a connection from there.
    ///
    /// # Errors
    /// What the system gives.
    pub fn connect(from: Source, to: SocketAddr) -> io::Result<Self> {
        from.connect(to).map(Caller::new)
    }

    /// A caller on a connection.
    #[must_use]
    pub fn new(stream: TcpStream) -> Self {
        let received = RecordReader::new(RECORD_BYTES_MAX, RECEIVE_BUFFER_BYTES);
        Caller { stream, received, xid: 0 }
    }

    /// Sends a call, without waiting for its reply.
    ///
    /// # Errors
    /// What the system gives.
    pub fn send(&mut self, what: What, args: &impl Encode) -> io::Result<u32> {
        self.xid = self.xid.wrapping_add(1);
        self.stream.write_all(&record(self.xid, what, args))?;
        Ok(self.xid)
    }

    /// The next reply.
    ///
    /// # Errors
    /// What the system gives; no stream of records.
    pub fn receive(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(reply) = self.received.next_record().map_err(io::Error::other)? {
                return Ok(reply.to_vec());
            }
            match self.stream.read(self.received.space())? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => self.received.filled(bytes),
            }
        }
    }

    /// Sends a call and returns its reply.
    pub fn call(&mut self, what: What, args: &impl Encode) -> io::Result<Vec<u8>> {
        self.send(what, args)?;
        self.receive()
    }
}

/// A call as it goes over a stream, with its mark.
#[must_use]
pub fn record(xid: u32, what: What, args: &impl Encode) -> Vec<u8> {
    record_of(superuser(), xid, what, args)
}

/// Returns a call of this caller as it goes over a stream, with its mark.
#[must_use]
pub fn record_of(caller: AuthSys<'_>, xid: u32, what: What, args: &impl Encode) -> Vec<u8> {
    let mut out = EncodeBuf::new();
    put(&mut out, caller, xid, what, args);
    out.to_vec()
}

/// Returns the caller that calls have if nobody else is named.
pub(super) fn superuser() -> AuthSys<'static> {
    AuthSys { stamp: 0, machine_name: b"aquifer-client", uid: 0, gid: 0, gids: Gids::default() }
}

/// Appends a call, with its mark.
pub(super) fn put(
    out: &mut EncodeBuf,
    caller: AuthSys<'_>,
    xid: u32,
    (program, version, procedure): What,
    args: &impl Encode,
) {
    let begun = begin_record(out);
    let (credential, verifier) = (Credential::Sys(caller), OpaqueAuth::NONE);
    out.put(&Call { xid, program, version, procedure, credential, verifier });
    out.put(args);
    end_record(out, begun);
}

/// A call as it goes in a datagram.
#[must_use]
pub fn datagram(xid: u32, what: What, args: &impl Encode) -> Vec<u8> {
    record(xid, what, args).split_off(MARK_BYTES)
}

const LOW_PORTS: u16 = 424;
const MARK_BYTES: usize = 4;
/// Time limit of one call or connect.
const PATIENCE: Duration = Duration::from_secs(3);
