//! One connection to an NFSv3 server: calls out, replies in.
//!
//! Sending never blocks while replies wait to be read, so two sides that both have much to send
//! cannot block each other.

pub mod call;
mod session;

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use aquifer_nfs::proto::mount::{self, DirPath, MountRes3, Path};
use aquifer_nfs::proto::v3::{
    Args3, Create3Args, Create3Res, CreateHow3, DirOpArgs3, Fsstat3Res, Getattr3Args, Lookup3Res,
    NfsFh3, Remove3Res, Res3, Sattr3, Setattr3Args, Setattr3Res,
};
use aquifer_rpc::limits::{RECEIVE_BUFFER_BYTES, RECORD_BYTES_MAX};
use aquifer_rpc::message::{Accepted, Reply, ReplyBody};
use aquifer_rpc::record::RecordReader;
use aquifer_rpc::xdr::{Decode, Decoder, Encode, EncodeBuf};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::ClientConfig;

use crate::starttls::ask;
use crate::{Error, Result};
use call::{What, of_mount, of_nfs, superuser};
pub use session::SERVER;
use session::Session;

/// A connection. Its buffers are reused.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    tls: Option<Box<Session>>,
    received: RecordReader,
    out: EncodeBuf,
    sent: usize,
}

impl Connection {
    /// Takes over a stream that is connected.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn new(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true).map_err(Error::io("set TCP_NODELAY"))?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(Error::io("set a timeout"))?;
        let received = RecordReader::new(RECORD_BYTES_MAX, RECEIVE_BUFFER_BYTES);
        Ok(Connection { stream, tls: None, received, out: EncodeBuf::new(), sent: 0 })
    }

    /// Takes over a stream that is connected, and goes on over TLS.
    ///
    /// # Errors
    /// [`Error::Io`], also if the server does not offer TLS.
    pub fn over_tls(mut stream: TcpStream, config: Arc<ClientConfig>) -> Result<Self> {
        ask(&mut stream).map_err(Error::io("ask for TLS"))?;
        let session = Session::begin(&mut stream, config).map_err(Error::io("shake hands"))?;
        Ok(Connection { tls: Some(Box::new(session)), ..Connection::new(stream)? })
    }

    /// Bytes of calls that wait to be sent.
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Appends a call to the send buffer.
    pub fn put_nfs(&mut self, xid: u32, args: &Args3<'_>) {
        self.put(xid, of_nfs(args), args);
    }

    fn put(&mut self, xid: u32, what: What, args: &impl Encode) {
        call::put(&mut self.out, superuser(), xid, what, args);
    }

    /// Sends as much as the socket takes at once.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn send_some(&mut self) -> Result<()> {
        while self.unsent() > 0 {
            // Payloads are copied into the buffer, so there is one segment.
            let rest = self.out.segments(self.sent).next().unwrap_or_default();
            if let Some(tls) = &mut self.tls {
                match tls.send(&self.stream, rest).map_err(Error::io("send"))? {
                    0 => return Ok(()),
                    bytes => self.sent += bytes,
                }
                continue;
            }
            match send(&self.stream, rest, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(bytes) => self.sent += bytes,
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(Error::io("send")(error.into())),
            }
        }
        self.out.clear();
        self.sent = 0;
        match &mut self.tls {
            Some(tls) => tls.flush(&self.stream).map(drop).map_err(Error::io("send")),
            None => Ok(()),
        }
    }

    /// Makes progress: sends as much as the socket takes, and receives something unless it only
    /// sent. Call it when [`Connection::next_reply`] has returned `None`.
    ///
    /// # Errors
    /// [`Error::Io`], also if the server closes the connection or is silent for half a minute.
    pub fn exchange(&mut self) -> Result<()> {
        self.send_some()?;
        let in_session = self.tls.as_ref().is_some_and(|tls| tls.has_unsent());
        if self.unsent() == 0 && !in_session {
            return self.receive(RecvFlags::empty());
        }
        if self.tls.as_ref().is_some_and(|tls| tls.has_ahead()) {
            return self.receive(RecvFlags::DONTWAIT);
        }
        let wanted = PollFlags::IN | PollFlags::OUT;
        let mut fds = [PollFd::new(&self.stream, wanted)];
        let limit = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
        let ready = poll(&mut fds, Some(&limit)).map_err(io::Error::from);
        if ready.map_err(Error::io("poll"))? == 0 {
            return Err(Error::io("send")(io::ErrorKind::TimedOut.into()));
        }
        let [fd] = fds;
        match fd.revents().contains(PollFlags::IN) {
            true => self.receive(RecvFlags::DONTWAIT),
            false => Ok(()),
        }
    }

    fn receive(&mut self, flags: RecvFlags) -> Result<()> {
        let space = self.received.space();
        let received = match &mut self.tls {
            Some(tls) => tls.receive(&self.stream, space, flags),
            None => recv(&self.stream, space, flags).map(|(_, bytes)| bytes).map_err(Into::into),
        };
        let bytes = match received {
            // Only a part of a record has arrived.
            Err(error) if flags == RecvFlags::DONTWAIT && is_early(&error) => return Ok(()),
            received => received.map_err(Error::io("receive"))?,
        };
        if bytes == 0 {
            let closed = io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed");
            return Err(Error::io("receive")(closed));
        }
        self.received.filled(bytes);
        Ok(())
    }

    /// The next whole reply in the received bytes.
    ///
    /// # Errors
    /// [`Error::Malformed`]: no stream of records.
    pub fn next_reply(&mut self) -> Result<Option<&[u8]>> {
        self.received.next_record().map_err(|error| Error::Malformed(error.to_string()))
    }

    /// Makes one call and reads its reply, with nothing else outstanding.
    fn call<T>(
        &mut self,
        what: What,
        args: &impl Encode,
        read: impl FnOnce(&mut Decoder<'_>) -> Result<T>,
    ) -> Result<T> {
        self.put(ONLY_XID, what, args);
        loop {
            if let Some(reply) = self.next_reply()? {
                let (xid, mut from) = results(reply)?;
                return match xid {
                    ONLY_XID => read(&mut from),
                    other => Err(Error::Malformed(format!("a reply to no call: {other:#x}"))),
                };
            }
            self.exchange()?;
        }
    }

    /// MNT: the handle of the export.
    ///
    /// # Errors
    /// [`Error::Failed`] with the status.
    pub fn mount(&mut self, path: &str) -> Result<NfsFh3> {
        self.call(
            of_mount(mount::Procedure::Mnt),
            &DirPath { path: Path(path.as_bytes()) },
            |from| match decode(from)? {
                MountRes3::Ok { fhandle, .. } => Ok(fhandle),
                MountRes3::Fail(status) => Err(failed("MNT", format!("{status:?}"))),
            },
        )
    }

    /// Makes one NFS call, with nothing else outstanding. Returns what `read` makes of its results.
    ///
    /// # Errors
    /// Those of sending and receiving; those of `read`.
    pub fn call_nfs<T>(
        &mut self,
        args: &Args3<'_>,
        read: impl FnOnce(&mut Decoder<'_>) -> Result<T>,
    ) -> Result<T> {
        self.call(of_nfs(args), args, read)
    }

    /// CREATE, unless the file exists: returns the file's handle.
    ///
    /// # Errors
    /// [`Error::Failed`] with the status.
    pub fn create(&mut self, dir: NfsFh3, name: &str) -> Result<NfsFh3> {
        let place = DirOpArgs3 { dir, name: name.as_bytes() };
        let attributes = Sattr3 { mode: Some(0o644), ..Sattr3::NONE };
        let args = Args3::Create(Create3Args { place, how: CreateHow3::Unchecked(attributes) });
        self.call_nfs(&args, |from| {
            let made = granted("CREATE", decode::<Create3Res>(from)?)?;
            made.obj.ok_or_else(|| failed("CREATE", "no handle".into()))
        })
    }

    /// LOOKUP: returns the file's handle.
    ///
    /// # Errors
    /// [`Error::Failed`] with the status.
    pub fn lookup(&mut self, dir: NfsFh3, name: &str) -> Result<NfsFh3> {
        let args = Args3::Lookup(DirOpArgs3 { dir, name: name.as_bytes() });
        self.call_nfs(&args, |from| {
            granted("LOOKUP", decode::<Lookup3Res>(from)?).map(|found| found.object)
        })
    }

    /// REMOVE.
    ///
    /// # Errors
    /// [`Error::Failed`] with the status.
    pub fn remove(&mut self, dir: NfsFh3, name: &str) -> Result<()> {
        let args = Args3::Remove(DirOpArgs3 { dir, name: name.as_bytes() });
        self.call_nfs(&args, |from| granted("REMOVE", decode::<Remove3Res>(from)?).map(drop))
    }

    /// SETATTR of the size.
    ///
    /// # Errors
    /// [`Error::Failed`] with the status.
    pub fn resize(&mut self, object: NfsFh3, bytes: u64) -> Result<()> {
        let new_attributes = Sattr3 { size: Some(bytes), ..Sattr3::NONE };
        let args = Args3::Setattr(Setattr3Args { object, new_attributes, guard: None });
        self.call_nfs(&args, |from| granted("SETATTR", decode::<Setattr3Res>(from)?).map(drop))
    }

    /// FSSTAT.
    ///
    /// # Errors
    /// [`Error::Failed`] with the status.
    pub fn space(&mut self, root: NfsFh3) -> Result<Space> {
        self.call_nfs(&Args3::Fsstat(Getattr3Args { object: root }), |from| {
            let found = granted("FSSTAT", decode::<Fsstat3Res>(from)?)?;
            Ok(Space { total_bytes: found.tbytes, free_bytes: found.fbytes })
        })
    }
}

fn is_early(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// The space of a file system, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// Total space.
    pub total_bytes: u64,
    /// Free space.
    pub free_bytes: u64,
}

/// The xid of a reply, and a decoder at its results.
///
/// # Errors
/// [`Error::Malformed`]; [`Error::Failed`] if the call was not carried out.
pub fn results(reply: &[u8]) -> Result<(u32, Decoder<'_>)> {
    let mut from = Decoder::new(reply);
    match decode(&mut from)? {
        Reply { xid, body: ReplyBody::Accepted { status: Accepted::Success, .. } } => {
            Ok((xid, from))
        }
        Reply { body, .. } => Err(failed("a call", format!("{body:?}"))),
    }
}

/// Reads one value.
///
/// # Errors
/// [`Error::Malformed`].
pub fn decode<'a, T: Decode<'a>>(from: &mut Decoder<'a>) -> Result<T> {
    T::decode(from).map_err(|error| Error::Malformed(error.to_string()))
}

/// The results of a procedure that succeeded.
///
/// # Errors
/// [`Error::Failed`] with the status.
pub fn granted<T, F>(procedure: &str, results: Res3<T, F>) -> Result<T> {
    match results {
        Res3::Ok(done) => Ok(done),
        Res3::Fail { status, .. } => Err(failed(procedure, format!("{status:?}"))),
    }
}

/// The error of a procedure that did not succeed.
#[must_use]
fn failed(what: &str, said: String) -> Error {
    Error::Failed { what: what.to_owned(), said }
}

const ONLY_XID: u32 = 1;

/// A server that moves no bytes for this long has failed.
const PATIENCE: Duration = Duration::from_secs(30);
