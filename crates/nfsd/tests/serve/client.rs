//! A small NFS client made from `proto`: calls, or bytes of any kind, over one connection.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use aquifer_nfs::proto::mount::{self, DirPath, MountRes3, MountStat3, Path};
use aquifer_nfs::proto::v3::*;
use aquifer_rig::wire::call::{What, of_mount, of_nfs, record_of};
use aquifer_rpc::auth::{AuthSys, Gids};
use aquifer_rpc::message::{Accepted, Rejection, Reply, ReplyBody};
use aquifer_rpc::xdr::{Decode, Decoder, Encode};
use tokio::net::TcpSocket;

/// Longer than anything may take, except on a stalled machine.
const PATIENCE: Duration = Duration::from_secs(20);

static NEXT_XID: AtomicU32 = AtomicU32::new(1000);

/// A connection to the server.
pub struct Client {
    pub stream: TcpStream,
    pub uid: u32,
    pub xid: u32,
}

/// The results of an accepted call.
pub struct Results {
    record: Vec<u8>,
    at: usize,
}

impl Results {
    /// The results, which must be a `T` to their last byte.
    #[track_caller]
    pub fn decode<'a, T: Decode<'a>>(&'a self) -> T {
        let mut from = Decoder::new(&self.record[self.at..]);
        let value = T::decode(&mut from).unwrap();
        assert!(from.remaining().is_empty(), "{} bytes left over", from.remaining().len());
        value
    }
}

impl Client {
    pub fn connect(server: SocketAddr) -> Self {
        Client::over(TcpStream::connect(server).unwrap())
    }

    /// From an address, and a port of a range that is free.
    pub fn connect_from(address: &str, ports: Range<u16>, server: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let stream = runtime.block_on(async {
            for port in ports.rev().filter(|port| *port > 0) {
                let socket = TcpSocket::new_v4().unwrap();
                if socket.bind((address.parse::<IpAddr>().unwrap(), port).into()).is_ok()
                    && let Ok(stream) = socket.connect(server).await
                {
                    return stream.into_std().unwrap();
                }
            }
            panic!("no port is free");
        });
        stream.set_nonblocking(false).unwrap();
        Client::over(stream)
    }

    fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        // As with real clients, no two connections use the same transaction ids.
        let xid = NEXT_XID.fetch_add(1 << 16, Ordering::Relaxed);
        Client { stream, uid: 0, xid }
    }

    /// Returns the same connection, for use from another thread.
    pub fn another_half(&self) -> Self {
        Client { stream: self.stream.try_clone().unwrap(), ..*self }
    }

    /// A whole record: mark, call, arguments.
    pub fn record(&mut self, what: What, args: &impl Encode) -> Vec<u8> {
        self.xid += 1;
        let (uid, gid, gids) = (self.uid, self.uid, Gids::default());
        record_of(AuthSys { stamp: 0, machine_name: b"test", uid, gid, gids }, self.xid, what, args)
    }

    pub fn nfs_record(&mut self, args: &Args3<'_>) -> Vec<u8> {
        self.record(of_nfs(args), args)
    }

    pub fn null_record(&mut self) -> Vec<u8> {
        self.nfs_record(&Args3::Null)
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends a NULL and receives its reply.
    #[track_caller]
    pub fn ping(&mut self) {
        let record = self.null_record();
        self.send(&record);
        assert_eq!(self.receive_xid(), self.xid);
    }

    /// The next record, without its mark.
    #[track_caller]
    pub fn receive(&mut self) -> Vec<u8> {
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark).unwrap();
        let mark = u32::from_be_bytes(mark);
        assert!(mark & 0x8000_0000 != 0, "replies come in one fragment");
        let mut record = vec![0; (mark & 0x7fff_ffff) as usize];
        self.stream.read_exact(&mut record).unwrap();
        record
    }

    /// Receives a reply and returns the xid of its call.
    #[track_caller]
    pub fn receive_xid(&mut self) -> u32 {
        let record = self.receive();
        Reply::decode(&mut Decoder::new(&record)).unwrap().xid
    }

    /// Waits until the server closes; earlier bytes are an error.
    #[track_caller]
    pub fn closed(&mut self) {
        let mut byte = [0];
        loop {
            match self.stream.read(&mut byte) {
                Ok(0) => return,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
                // This thread has begun reads of the pool's disks, too: what the kernel does when
                // they end interrupts it.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => panic!("the connection should be closed: {other:?} {byte:?}"),
            }
        }
    }

    pub fn shutdown(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Calls a procedure; returns the results or RPC's refusal.
    #[track_caller]
    pub fn call(&mut self, what: What, args: &impl Encode) -> Result<Results, Refusal> {
        let record = self.record(what, args);
        self.send(&record);
        let (xid, answer) = self.answer();
        assert_eq!(xid, self.xid);
        answer
    }

    /// The next reply: the xid of its call, and the results or RPC's refusal.
    #[track_caller]
    pub fn answer(&mut self) -> (u32, Result<Results, Refusal>) {
        let record = self.receive();
        let mut from = Decoder::new(&record);
        let reply = Reply::decode(&mut from).unwrap();
        let (xid, at) = (reply.xid, from.position());
        let answer = match reply.body {
            ReplyBody::Accepted { status: Accepted::Success, .. } => Ok(Results { record, at }),
            ReplyBody::Accepted { status, .. } => Err(Refusal::Accepted(status)),
            ReplyBody::Denied(why) => Err(Refusal::Denied(why)),
        };
        (xid, answer)
    }

    #[track_caller]
    pub fn nfs(&mut self, args: &Args3<'_>) -> Results {
        self.call(of_nfs(args), args).unwrap()
    }

    #[track_caller]
    pub fn mount_call(&mut self, procedure: mount::Procedure, path: &str) -> Results {
        self.call(of_mount(procedure), &DirPath { path: Path(path.as_bytes()) }).unwrap()
    }

    #[track_caller]
    pub fn mount(&mut self, path: &str) -> Result<NfsFh3, MountStat3> {
        match self.mount_call(mount::Procedure::Mnt, path).decode() {
            MountRes3::Ok { fhandle, auth_flavors } => {
                assert_eq!(auth_flavors, [1, 0]);
                Ok(fhandle)
            }
            MountRes3::Fail(status) => Err(status),
        }
    }
}

/// How RPC refused a call.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    Accepted(Accepted),
    Denied(Rejection),
}
