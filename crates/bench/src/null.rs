//! A server that decodes every call and answers it, and stores nothing. It shows the cost of the
//! wire, the codecs and the generator: no server can have better figures.
//!
//! READ returns generation 0 of each page, whatever was written. It can also return wrong data, so
//! that a test shows that the generator notices.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use aquifer_nfs::proto::mount::{self, MountRes3};
use aquifer_nfs::proto::v3::{
    Args3, Commit3Res, Commit3ResOk, Create3Res, Create3ResOk, Fattr3, Ftype3, Getattr3Res, NfsFh3,
    Nfsstat3, Nfstime3, Procedure3, Read3Head, Read3Res, Read3ResOk, SpecData3, WccData, Write3Res,
    Write3ResOk,
};
use aquifer_rpc::limits::{PAYLOAD_BYTES_MAX, RECEIVE_BUFFER_BYTES, RECORD_BYTES_MAX};
use aquifer_rpc::message::{Accepted, Call, Reply};
use aquifer_rpc::record::{RecordReader, begin_record, end_record};
use aquifer_rpc::xdr::{Decoder, EncodeBuf, Span};

use crate::pattern::{self, PAGE_BYTES};
use crate::{Error, Result};

/// The behaviour of the server.
#[derive(Clone, Copy, Debug)]
pub struct Behaviour {
    /// Size of its only file.
    pub file_bytes: u64,
    /// Its fault.
    pub fault: Fault,
}

/// A fault of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Every 100th READ has one wrong bit.
    Bit,
    /// Every 100th READ returns the bytes of the next page.
    Misplaced,
    /// Every 100th WRITE returns another verifier.
    Verifier,
    /// READ returns data that was never written there.
    Lost,
}

/// Serves on `listener` for ever, a thread for each connection.
///
/// # Errors
/// [`Error::Io`] if no more connections can be accepted.
pub fn serve(listener: &TcpListener, behaviour: Behaviour) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().map_err(Error::io("accept"))?;
        // The end of a connection is not worth a message.
        std::thread::spawn(move || Server::new(behaviour).connection(stream));
    }
}

struct Server {
    behaviour: Behaviour,
    calls: u64,
    data: Vec<u8>,
}

impl Server {
    fn new(behaviour: Behaviour) -> Self {
        Server { behaviour, calls: 0, data: Vec::new() }
    }

    fn connection(mut self, mut stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true).map_err(Error::io("set TCP_NODELAY"))?;
        let mut received = RecordReader::new(RECORD_BYTES_MAX, RECEIVE_BUFFER_BYTES);
        let mut out = EncodeBuf::new();
        loop {
            let bytes = stream.read(received.space()).map_err(Error::io("receive"))?;
            if bytes == 0 {
                return Ok(());
            }
            received.filled(bytes);
            let malformed = |what: &dyn std::fmt::Display| Error::Malformed(what.to_string());
            while let Some(call) = received.next_record().map_err(|error| malformed(&error))? {
                let record = begin_record(&mut out);
                self.answer(call, &mut out)?;
                end_record(&mut out, record);
                if out.len() > RECEIVE_BUFFER_BYTES {
                    send(&mut stream, &mut out)?;
                }
            }
            send(&mut stream, &mut out)?;
        }
    }

    fn answer(&mut self, record: &[u8], out: &mut EncodeBuf) -> Result<()> {
        let mut from = Decoder::new(record);
        let call = Call::decode(&mut from).map_err(|error| Error::Malformed(error.to_string()))?;
        if call.program == mount::PROGRAM {
            out.put(&Reply::accepted(call.xid, Accepted::Success));
            if call.procedure == mount::Procedure::Mnt.wire() {
                out.put(&MountRes3::Ok { fhandle: handle(), auth_flavors: vec![1] });
            }
            return Ok(());
        }
        let args = Procedure3::from_wire(call.procedure)
            .and_then(|procedure| Args3::decode(procedure, &mut from).ok());
        let status = args.map_or(Accepted::GarbageArgs, |_| Accepted::Success);
        self.calls += 1;
        match args {
            Some(Args3::Null) | None => out.put(&Reply::accepted(call.xid, status)),
            Some(args) => {
                out.put(&Reply::accepted(call.xid, status));
                self.results(&args, out);
            }
        }
        Ok(())
    }

    fn results(&mut self, args: &Args3<'_>, out: &mut EncodeBuf) {
        let attributes = Some(self.attributes());
        let file_wcc = WccData { before: None, after: attributes };
        let lies = self.calls.is_multiple_of(100);
        let fault = self.behaviour.fault;
        match args {
            Args3::Create(_) => out.put(&Create3Res::Ok(Create3ResOk {
                obj: Some(handle()),
                obj_attributes: attributes,
                dir_wcc: WccData::NONE,
            })),
            Args3::Read(read) => {
                let wanted = usize::try_from(read.count).unwrap_or(usize::MAX);
                self.data.resize(wanted.min(PAYLOAD_BYTES_MAX), 0);
                let misplaced = u64::from(lies && fault == Fault::Misplaced);
                let first = read.offset / PAGE_BYTES as u64 + misplaced;
                pattern::fill(first, u32::from(fault == Fault::Lost), &mut self.data);
                if let Some(byte) = self.data.last_mut().filter(|_| lies && fault == Fault::Bit) {
                    *byte ^= 0x10;
                }
                let head = Read3Head { file_attributes: attributes, eof: false };
                let data = Span { offset: 0, bytes: &self.data };
                out.put(&Read3Res::Ok(Read3ResOk { head, data }));
            }
            Args3::Write(write) => out.put(&Write3Res::Ok(Write3ResOk {
                file_wcc,
                count: write.head.count,
                committed: write.head.stable,
                verf: [u8::from(lies && fault == Fault::Verifier); 8],
            })),
            Args3::Commit(_) => {
                out.put(&Commit3Res::Ok(Commit3ResOk { file_wcc, verf: [0; 8] }));
            }
            // No client needs more; one that asks gets "not supported".
            Args3::Getattr(_) => out.put(&Getattr3Res::Ok(self.attributes())),
            _ => out.put(&Getattr3Res::Fail { status: Nfsstat3::NotSupp, resfail: () }),
        }
    }

    fn attributes(&self) -> Fattr3 {
        let time = Nfstime3 { seconds: 1, nseconds: 0 };
        Fattr3 {
            ftype: Ftype3::Reg,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            size: self.behaviour.file_bytes,
            used: self.behaviour.file_bytes,
            rdev: SpecData3 { specdata1: 0, specdata2: 0 },
            fsid: 1,
            fileid: 1,
            atime: time,
            mtime: time,
            ctime: time,
        }
    }
}

fn send(stream: &mut TcpStream, out: &mut EncodeBuf) -> Result<()> {
    for segment in out.segments(0) {
        stream.write_all(segment).map_err(Error::io("send"))?;
    }
    out.clear();
    Ok(())
}

/// As long as Aquifer's handle.
fn handle() -> NfsFh3 {
    NfsFh3::new(&[7; 32]).expect("32 bytes are a handle")
}
