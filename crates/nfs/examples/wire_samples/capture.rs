//! A packet capture in memory: RPC messages as TCP segments over IPv4.

use std::collections::HashMap;

use aquifer_rpc::auth::{AuthSys, Credential, Gids, OpaqueAuth};
use aquifer_rpc::message::{Accepted, Call, Reply};
use aquifer_rpc::record::{begin_record, end_record};
use aquifer_rpc::xdr::{Encode, EncodeBuf};

/// A capture of TCP segments over IPv4, link type "raw IP", in the classic pcap format.
#[derive(Default)]
pub struct Capture {
    packets: Vec<u8>,
    /// Next sequence number per sending port.
    sequence: HashMap<u16, u32>,
}

impl Capture {
    /// A call with these arguments and its accepted reply with this result.
    pub fn exchange(
        &mut self,
        ports: (u16, u16),
        xid: u32,
        (program, version, procedure): (u32, u32, u32),
        args: &impl Encode,
        result: &EncodeBuf,
    ) {
        let (credential, verifier) = (credential(), OpaqueAuth::NONE);
        let mut call = EncodeBuf::new();
        call.put(&Call { xid, program, version, procedure, credential, verifier });
        call.put(args);
        self.message(ports, false, &call);
        let mut reply = EncodeBuf::new();
        reply.put(&Reply::accepted(xid, Accepted::Success));
        reply.append(result.clone());
        self.message(ports, true, &reply);
    }

    /// One message in one record in one segment.
    pub fn message(&mut self, (server, caller): (u16, u16), reply: bool, message: &EncodeBuf) {
        let mut record = EncodeBuf::new();
        let open = begin_record(&mut record);
        record.append(message.clone());
        end_record(&mut record, open);
        let payload = record.to_vec();
        let (from, to) = if reply { (server, caller) } else { (caller, server) };
        let len = u32::try_from(payload.len()).unwrap_or(0);
        let sequence = self.sequence.entry(from).or_insert(1);
        let (at, next) = (*sequence, *sequence + len);
        *sequence = next;
        let acknowledged = self.sequence.get(&to).copied().unwrap_or(1);
        let mut packet = vec![0x45, 0];
        packet.extend(u16::try_from(payload.len() + 40).unwrap_or(0).to_be_bytes());
        packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]);
        packet.extend(from.to_be_bytes());
        packet.extend(to.to_be_bytes());
        packet.extend(at.to_be_bytes());
        packet.extend(acknowledged.to_be_bytes());
        packet.extend([0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
        packet.extend(payload);
        let len = u32::try_from(packet.len()).unwrap_or(0);
        for word in [0, 0, len, len] {
            self.packets.extend(word.to_le_bytes());
        }
        self.packets.extend(packet);
    }

    /// The file.
    pub fn finish(self) -> Vec<u8> {
        let mut file = Vec::new();
        for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 1 << 18, 101] {
            file.extend(word.to_le_bytes());
        }
        file.extend(self.packets);
        file
    }
}

/// The caller of all samples.
pub fn credential() -> Credential<'static> {
    let gids = Gids::new(&[10, 20]).unwrap_or_default();
    Credential::Sys(AuthSys { stamp: 9, machine_name: b"sampler", uid: 0, gid: 0, gids })
}
