//! A load generator made from `proto`: `load ADDRESS OPERATION CONNECTIONS DEPTH SECONDS`.
//!
//! OPERATION is one of `null getattr read write commitwrite stable bulkread bulkwrite`: 4 KiB at
//! random places of a file of 64 MiB (`bulk`: 1 MiB), unstable unless it says so. Each connection
//! is a thread that keeps DEPTH calls outstanding. Prints calls per second and latencies.

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use aquifer_nfs::proto::mount::{self, DirPath, MountRes3, Path};
use aquifer_nfs::proto::v3::{
    Args3, Create3Args, Create3Res, CreateHow3, DirOpArgs3, Getattr3Args, NfsFh3, PROGRAM,
    Read3Args, Res3, Sattr3, StableHow, VERSION, Write3Args, Write3Head,
};
use aquifer_rpc::auth::{AuthSys, Credential, Gids, OpaqueAuth};
use aquifer_rpc::message::{Call, Reply};
use aquifer_rpc::xdr::{Decode, Decoder, Encode, EncodeBuf, Span};

const FILE_BYTES: u64 = 64 << 20;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, operation, connections, depth, seconds] = args.as_slice() else {
        return Err("usage: load ADDRESS OPERATION CONNECTIONS DEPTH SECONDS".into());
    };
    let (connections, depth): (u64, u32) = (connections.parse()?, depth.parse()?);
    let length = Duration::from_secs(seconds.parse()?);
    let mut first = Connection::open(address)?;
    let root = first.mount("/vms")?;
    let file = first.file(root, "load")?;
    if operation != "null" && operation != "getattr" {
        first.fill(file)?;
    }
    let begun = Instant::now();
    let each = |number| {
        let mut connection = Connection::open(address)?;
        connection.load(operation, file, depth, length, number)
    };
    let latencies = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..connections).map(|number| scope.spawn(move || each(number))).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|joined| joined.unwrap_or_else(|_| Err("a thread panicked".into()))).collect()
    });
    let latencies: Result<Vec<Vec<Duration>>, Failure> = latencies;
    let mut latencies = latencies?.concat();
    latencies.sort_unstable();
    let took = begun.elapsed().as_secs_f64();
    let calls = u32::try_from(latencies.len())?;
    let at = |share: usize| latencies.get((latencies.len() - 1) * share / 1000).copied();
    println!(
        "{operation} x{connections} depth {depth}: {:.0}/s, p50 {:?} p99 {:?} p99.9 {:?} max {:?}",
        f64::from(calls) / took,
        at(500).unwrap_or_default(),
        at(990).unwrap_or_default(),
        at(999).unwrap_or_default(),
        at(1000).unwrap_or_default(),
    );
    Ok(())
}

struct Connection {
    stream: TcpStream,
    xid: u32,
    received: Vec<u8>,
}

impl Connection {
    fn open(address: &str) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, xid: 0, received: Vec::new() })
    }

    fn record(&self, what: (u32, u32, u32), args: &impl Encode) -> Vec<u8> {
        let gids = Gids::default();
        let sys = AuthSys { stamp: 0, machine_name: b"load", uid: 0, gid: 0, gids };
        let (program, version, procedure) = what;
        let mut to = EncodeBuf::new();
        to.u32(0);
        to.put(&Call {
            xid: self.xid,
            program,
            version,
            procedure,
            credential: Credential::Sys(sys),
            verifier: OpaqueAuth::NONE,
        });
        to.put(args);
        let mut record = to.to_vec();
        let mark = u32::try_from(record.len() - 4).unwrap_or(0) | 0x8000_0000;
        if let Some(word) = record.first_chunk_mut() {
            *word = mark.to_be_bytes();
        }
        record
    }

    fn call<T>(
        &mut self,
        what: (u32, u32, u32),
        args: &impl Encode,
        read: impl FnOnce(&mut Decoder<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.xid += 1;
        let record = self.record(what, args);
        self.stream.write_all(&record)?;
        loop {
            if let Some((reply, _)) = next(&self.received) {
                let mut from = Decoder::new(reply);
                Reply::decode(&mut from)?;
                let value = read(&mut from)?;
                self.received.clear();
                return Ok(value);
            }
            self.receive()?;
        }
    }

    fn nfs(&self, args: &Args3<'_>) -> Vec<u8> {
        self.record((PROGRAM, VERSION, args.procedure().wire()), args)
    }

    fn mount(&mut self, path: &str) -> Result<NfsFh3, Failure> {
        let what = (mount::PROGRAM, mount::VERSION, mount::Procedure::Mnt.wire());
        self.call(what, &DirPath { path: Path(path.as_bytes()) }, |from| {
            match MountRes3::decode(from)? {
                MountRes3::Ok { fhandle, .. } => Ok(fhandle),
                MountRes3::Fail(status) => Err(format!("MNT: {status:?}").into()),
            }
        })
    }

    fn file(&mut self, dir: NfsFh3, name: &str) -> Result<NfsFh3, Failure> {
        let place = DirOpArgs3 { dir, name: name.as_bytes() };
        let args = Create3Args { place, how: CreateHow3::Unchecked(Sattr3::NONE) };
        self.call((PROGRAM, VERSION, 8), &args, |from| match Create3Res::decode(from)? {
            Res3::Ok(made) => made.obj.ok_or_else(|| "no handle".into()),
            Res3::Fail { status, .. } => Err(format!("CREATE: {status:?}").into()),
        })
    }

    fn fill(&mut self, file: NfsFh3) -> Result<(), Failure> {
        let data = noise(1 << 20);
        for offset in (0..FILE_BYTES).step_by(1 << 20) {
            let args = write(file, offset, &data, StableHow::FileSync);
            self.call((PROGRAM, VERSION, 7), &args, |_| Ok(()))?;
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<(), Failure> {
        let mut chunk = [0; 65_536];
        let bytes = self.stream.read(&mut chunk)?;
        if bytes == 0 {
            return Err("the server has closed the connection".into());
        }
        self.received.extend_from_slice(chunk.get(..bytes).unwrap_or_default());
        Ok(())
    }

    /// Keeps `depth` calls outstanding for `length`. The latency of each.
    fn load(
        &mut self,
        operation: &str,
        file: NfsFh3,
        depth: u32,
        length: Duration,
        number: u64,
    ) -> Result<Vec<Duration>, Failure> {
        let data = noise(1 << 20);
        let small = data.get(..4096).unwrap_or_default();
        let mut random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let (mut sent, mut latencies) = (std::collections::HashMap::new(), Vec::new());
        let begun = Instant::now();
        let mut outgoing = Vec::new();
        loop {
            let over = begun.elapsed() >= length;
            while !over && sent.len() < usize::try_from(depth)? {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let large = operation.starts_with("bulk");
                let unit = if large { 1 << 20 } else { 4096 };
                let offset = random % (FILE_BYTES / unit) * unit;
                let (count, data) = if large { (1 << 20, &data[..]) } else { (4096, small) };
                let args = match operation {
                    "null" => Args3::Null,
                    "getattr" => Args3::Getattr(Getattr3Args { object: file }),
                    "read" | "bulkread" => Args3::Read(Read3Args { file, offset, count }),
                    "write" | "bulkwrite" => {
                        Args3::Write(write(file, offset, data, StableHow::Unstable))
                    }
                    "stable" => Args3::Write(write(file, offset, data, StableHow::FileSync)),
                    other => return Err(format!("no operation {other}").into()),
                };
                self.xid += 1;
                outgoing.extend(self.nfs(&args));
                sent.insert(self.xid, Instant::now());
            }
            if !outgoing.is_empty() {
                self.stream.write_all(&outgoing)?;
                outgoing.clear();
            }
            if sent.is_empty() {
                return Ok(latencies);
            }
            self.receive()?;
            let mut at = 0;
            while let Some((reply, bytes)) = next(self.received.get(at..).unwrap_or_default()) {
                let xid = reply.first_chunk().map_or(0, |word| u32::from_be_bytes(*word));
                let at_sending = sent.remove(&xid).ok_or("a reply to no call")?;
                if reply.get(24..28) != Some(&[0; 4]) && operation != "null" {
                    return Err(format!("{operation} failed: {:?}", reply.get(24..28)).into());
                }
                latencies.push(at_sending.elapsed());
                at += bytes;
            }
            self.received.drain(..at);
        }
    }
}

fn write(file: NfsFh3, offset: u64, data: &[u8], stable: StableHow) -> Write3Args<'_> {
    let count = u32::try_from(data.len()).unwrap_or(0);
    let head = Write3Head { file, offset, count, stable };
    Write3Args { head, data: Span { offset: 0, bytes: data } }
}

/// The first record in `bytes`, and how many it takes with its mark.
fn next(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let mark = u32::from_be_bytes(*bytes.first_chunk()?);
    let end = 4 + usize::try_from(mark & 0x7fff_ffff).ok()?;
    Some((bytes.get(4..end)?, end))
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x1234_5678_9abc_def1_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..bytes / 8).flat_map(|_| next()).collect()
}
