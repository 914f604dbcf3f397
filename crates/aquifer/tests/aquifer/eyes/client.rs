//! A client that measures: how often, how much, how long by its own clock.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use crate::support::Place;

/// A client's figures for one procedure.
#[derive(Clone, Debug, Default)]
pub struct Spent {
    times_ns: Vec<u64>,
    pub bytes: u64,
    pub errors: u64,
}

impl Spent {
    pub fn calls(&self) -> u64 {
        self.times_ns.len() as u64
    }

    pub fn total_ns(&self) -> u64 {
        self.times_ns.iter().sum()
    }

    pub fn slowest_ns(&self) -> u64 {
        self.times_ns.iter().copied().max().unwrap_or(0)
    }

    pub fn and(&self, other: &Spent) -> Spent {
        let times_ns = self.times_ns.iter().chain(&other.times_ns).copied().collect();
        let (bytes, errors) = (self.bytes + other.bytes, self.errors + other.errors);
        Spent { times_ns, bytes, errors }
    }
}

/// One connection, one call at a time, as the superuser.
pub struct Client {
    stream: TcpStream,
    pub sent_bytes: u64,
    pub got_bytes: u64,
    spent: BTreeMap<&'static str, Spent>,
}

impl Client {
    /// Connects to the daemon from one of this machine's own addresses. A daemon that has just
    /// started may not listen yet.
    pub fn new(place: &Place, from: &str) -> Client {
        let connected = OnceCell::new();
        place.wait_for(|| {
            let log = place.log();
            let line = log.rsplit_once("serving NFS addresses=[");
            let Some((address, _)) = line.and_then(|(_, rest)| rest.split_once(']')) else {
                return false;
            };
            let address: SocketAddr = address.parse().unwrap();
            let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            bind(&socket, &SocketAddr::new(from.parse().unwrap(), 0)).unwrap();
            connect(&socket, &address).is_ok() && connected.set(socket).is_ok()
        });
        let stream = TcpStream::from(connected.into_inner().unwrap());
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Client { stream, sent_bytes: 0, got_bytes: 0, spent: BTreeMap::new() }
    }

    /// The figures of an NFS procedure.
    pub fn spent(&self, name: &str) -> &Spent {
        &self.spent[name]
    }

    pub fn mount(&mut self, path: &str) -> Vec<u8> {
        let (mut reply, _) = self.call(100_005, 1, &opaque(path.as_bytes()));
        assert_eq!(reply.word(), 0, "{path}");
        reply.opaque()
    }

    pub fn create(&mut self, dir: &[u8], name: &str) -> Vec<u8> {
        // UNCHECKED, and of the attributes only the mode.
        let how = words(&[0, 1, 0o644, 0, 0, 0, 0, 0]);
        self.make("create", 8, dir, name, &how)
    }

    pub fn mkdir(&mut self, dir: &[u8], name: &str) -> Vec<u8> {
        self.try_mkdir(dir, name).unwrap()
    }

    /// Makes a directory, or returns the status.
    pub fn try_mkdir(&mut self, dir: &[u8], name: &str) -> Result<Vec<u8>, u32> {
        let how = words(&[1, 0o755, 0, 0, 0, 0, 0]);
        let args = [opaque(dir), opaque(name.as_bytes()), how].concat();
        let mut reply = self.nfs("mkdir", 9, &args)?;
        assert_eq!(reply.word(), 1, "a handle follows");
        Ok(reply.opaque())
    }

    /// The handle of a name, or the status.
    pub fn lookup(&mut self, dir: &[u8], name: &str) -> Result<Vec<u8>, u32> {
        let args = [opaque(dir), opaque(name.as_bytes())].concat();
        Ok(self.nfs("lookup", 3, &args)?.opaque())
    }

    pub fn remove(&mut self, dir: &[u8], name: &str) {
        self.nfs("remove", 12, &[opaque(dir), opaque(name.as_bytes())].concat()).unwrap();
    }

    fn make(
        &mut self,
        what: &'static str,
        procedure: u32,
        dir: &[u8],
        name: &str,
        how: &[u8],
    ) -> Vec<u8> {
        let args = [opaque(dir), opaque(name.as_bytes()), how.to_vec()].concat();
        let mut reply = self.nfs(what, procedure, &args).unwrap();
        assert_eq!(reply.word(), 1, "a handle follows");
        reply.opaque()
    }

    pub fn write(&mut self, file: &[u8], offset: u64, data: &[u8], stable: bool) {
        let count = u32::try_from(data.len()).unwrap();
        let half = |offset: u64| u32::try_from(offset & u64::from(u32::MAX)).unwrap();
        let (high, low) = (half(offset >> 32), half(offset));
        let head = words(&[high, low, count, u32::from(stable) * 2]);
        let args = [opaque(file), head, opaque(data)].concat();
        self.nfs("write", 7, &args).unwrap();
        self.spent.get_mut("write").unwrap().bytes += u64::from(count);
    }

    /// Writes, or returns the status. The write verifier.
    pub fn try_write(
        &mut self,
        file: &[u8],
        offset: u64,
        data: &[u8],
        stable: bool,
    ) -> Result<Vec<u8>, u32> {
        let count = u32::try_from(data.len()).unwrap();
        let head = words(&[0, u32::try_from(offset).unwrap(), count, u32::from(stable) * 2]);
        let mut reply = self.nfs("write", 7, &[opaque(file), head, opaque(data)].concat())?;
        reply.wcc();
        assert_eq!(reply.word(), count);
        reply.skip(4);
        Ok(reply.body[reply.at..].to_vec())
    }

    /// Commits, or returns the status. The write verifier.
    pub fn try_commit(&mut self, file: &[u8]) -> Result<Vec<u8>, u32> {
        let mut reply = self.nfs("commit", 21, &[opaque(file), words(&[0, 0, 0])].concat())?;
        reply.wcc();
        Ok(reply.body[reply.at..].to_vec())
    }

    /// The content, or the status.
    pub fn content(&mut self, file: &[u8], offset: u64, count: u32) -> Result<Vec<u8>, u32> {
        let head = words(&[0, u32::try_from(offset).unwrap(), count]);
        let mut reply = self.nfs("read", 6, &[opaque(file), head].concat())?;
        assert_eq!(reply.word(), 1, "attributes follow");
        // Attributes, count, end of file.
        reply.skip(84 + 8);
        Ok(reply.opaque())
    }

    /// The bytes that were read, or the error.
    pub fn read(&mut self, file: &[u8], offset: u64, count: u32) -> Result<u32, u32> {
        let bytes = self.read_bytes(file, offset, count)?;
        Ok(u32::try_from(bytes.len()).unwrap())
    }

    pub fn read_bytes(&mut self, file: &[u8], offset: u64, count: u32) -> Result<Vec<u8>, u32> {
        let head = words(&[0, u32::try_from(offset).unwrap(), count]);
        let mut reply = self.nfs("read", 6, &[opaque(file), head].concat())?;
        assert_eq!(reply.word(), 1, "attributes follow");
        reply.skip(84);
        let (count, _end) = (reply.word(), reply.word());
        let bytes = reply.opaque();
        assert_eq!(bytes.len(), count as usize);
        self.spent.get_mut("read").unwrap().bytes += u64::from(count);
        Ok(bytes)
    }

    pub fn commit(&mut self, file: &[u8]) {
        self.nfs("commit", 21, &[opaque(file), words(&[0, 0, 0])].concat()).unwrap();
    }

    /// The results behind the status, if that is OK.
    fn nfs(&mut self, what: &'static str, procedure: u32, args: &[u8]) -> Result<Reply, u32> {
        let (mut reply, took) = self.call(100_003, procedure, args);
        let status = reply.word();
        let spent = self.spent.entry(what).or_default();
        spent.times_ns.push(u64::try_from(took.as_nanos()).unwrap());
        spent.errors += u64::from(status != 0);
        if status == 0 { Ok(reply) } else { Err(status) }
    }

    fn call(&mut self, program: u32, procedure: u32, args: &[u8]) -> (Reply, Duration) {
        // xid, CALL, RPC 2, program, version, procedure; AUTH_SYS: stamp, no machine, user and
        // group 0, no more groups; verifier AUTH_NONE.
        let head = [7, 0, 2, program, 3, procedure, 1, 20, 0, 0, 0, 0, 0, 0, 0];
        let body = [words(&head), args.to_vec()].concat();
        let mark = 0x8000_0000 | u32::try_from(body.len()).unwrap();
        let call = [mark.to_be_bytes().to_vec(), body].concat();
        let begun = Instant::now();
        self.stream.write_all(&call).unwrap();
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark).unwrap();
        let mut body = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        self.stream.read_exact(&mut body).unwrap();
        let took = begun.elapsed();
        self.sent_bytes += call.len() as u64;
        self.got_bytes += 4 + body.len() as u64;
        // xid, REPLY, accepted, verifier (flavor, length), SUCCESS.
        assert_eq!(body[..24], words(&[7, 1, 0, 0, 0, 0]));
        (Reply { body, at: 24 }, took)
    }
}

struct Reply {
    body: Vec<u8>,
    at: usize,
}

impl Reply {
    fn word(&mut self) -> u32 {
        self.skip(4);
        u32::from_be_bytes(self.body[self.at - 4..self.at].try_into().unwrap())
    }

    fn skip(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// Passes over attributes before and after a change.
    fn wcc(&mut self) {
        if self.word() == 1 {
            self.skip(24);
        }
        if self.word() == 1 {
            self.skip(84);
        }
    }

    fn opaque(&mut self) -> Vec<u8> {
        let length = self.word() as usize;
        let bytes = self.body[self.at..self.at + length].to_vec();
        self.skip(length.next_multiple_of(4));
        bytes
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut encoded = words(&[u32::try_from(bytes.len()).unwrap()]);
    encoded.extend(bytes);
    encoded.resize(encoded.len().next_multiple_of(4), 0);
    encoded
}
