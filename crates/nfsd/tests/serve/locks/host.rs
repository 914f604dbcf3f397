//! A host that locks files: its portmapper, lock manager and status monitor, all at one port of the
//! loopback interface, TCP and UDP. It notes its calls and answers as configured.

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use aquifer_nfs::proto::nlm::{self, Limited, Nlm4Res, Nlm4Stats, Procedure, TestArgs4};
use aquifer_nfs::proto::nsm;
use aquifer_rpc::message::{Accepted, Call, Reply};
use aquifer_rpc::portmap;
use aquifer_rpc::xdr::{Decode, Decoder, EncodeBuf};

/// A call that came: program, procedure, arguments.
pub type Heard = (u32, u32, Vec<u8>);

#[derive(Default)]
struct State {
    heard: Vec<Heard>,
    /// The answers to GRANTED, next first; if empty, NLM4_GRANTED. `None` fails the call.
    answers: Vec<Option<Nlm4Stats>>,
    /// Its status monitor's own state; `None` fails the call.
    monitor: Option<i32>,
}

pub struct Host {
    pub port: u16,
    state: Arc<(Mutex<State>, Condvar)>,
}

impl Host {
    /// Listens until the test program ends.
    pub fn start() -> Host {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        let udp = UdpSocket::bind(("127.0.0.1", port)).unwrap();
        let state: Arc<(Mutex<State>, Condvar)> = Arc::default();
        let of_tcp = Arc::clone(&state);
        std::thread::spawn(move || {
            for mut stream in tcp.incoming().map_while(Result::ok) {
                let mut mark = [0; 4];
                while stream.read_exact(&mut mark).is_ok() {
                    let mut call = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
                    stream.read_exact(&mut call).unwrap();
                    let reply = answer(&call, port, &of_tcp);
                    let mark = 0x8000_0000 | reply.len() as u32;
                    stream.write_all(&[&mark.to_be_bytes()[..], &reply].concat()).unwrap();
                }
            }
        });
        let of_udp = Arc::clone(&state);
        std::thread::spawn(move || {
            let mut call = [0; 4096];
            while let Ok((bytes, from)) = udp.recv_from(&mut call) {
                let reply = answer(&call[..bytes], port, &of_udp);
                udp.send_to(&reply, from).unwrap();
            }
        });
        Host { port, state }
    }

    /// Sets the next answers to GRANTED.
    pub fn answer_next(&self, answers: &[Option<Nlm4Stats>]) {
        self.state.0.lock().unwrap().answers.extend(answers);
    }

    /// Sets the state that its status monitor answers with.
    pub fn has_state(&self, state: Option<i32>) {
        self.state.0.lock().unwrap().monitor = state;
    }

    /// Waits for a call of this program and procedure, and takes it and all before it.
    #[track_caller]
    pub fn wait(&self, program: u32, procedure: u32) -> Vec<u8> {
        let begun = Instant::now();
        let mut state = self.state.0.lock().unwrap();
        loop {
            let is_it = |heard: &Heard| (heard.0, heard.1) == (program, procedure);
            if let Some(at) = state.heard.iter().position(is_it) {
                return state.heard.drain(..=at).next_back().unwrap().2;
            }
            assert!(begun.elapsed() < PATIENCE, "not called; heard {:?}", state.heard);
            state = self.state.1.wait_timeout(state, Duration::from_millis(100)).unwrap().0;
        }
    }

    /// The `svid` of the next GRANTED.
    #[track_caller]
    pub fn granted(&self) -> i32 {
        let args = self.wait(nlm::PROGRAM, Procedure::Granted.wire());
        TestArgs4::decode(&mut Decoder::new(&args)).unwrap().alock.svid
    }

    pub fn is_quiet(&self) -> bool {
        self.state.0.lock().unwrap().heard.is_empty()
    }
}

fn answer(call: &[u8], port: u16, state: &(Mutex<State>, Condvar)) -> Vec<u8> {
    let mut from = Decoder::new(call);
    let call = Call::decode(&mut from).unwrap();
    let mut to = EncodeBuf::new();
    let (mut status, mut results) = (Accepted::Success, EncodeBuf::new());
    if call.program == portmap::PROGRAM {
        results.u32(port.into());
    } else {
        assert!([nlm::PROGRAM, nsm::PROGRAM].contains(&call.program));
        let args = from.remaining().to_vec();
        let mut state = state.0.lock().unwrap();
        if (call.program, call.procedure) == (nlm::PROGRAM, Procedure::Granted.wire()) {
            let answers = &mut state.answers;
            let next = if answers.is_empty() { None } else { Some(answers.remove(0)) };
            match next.unwrap_or(Some(Nlm4Stats::Granted)) {
                Some(stat) => results.put(&Nlm4Res { cookie: Limited(b"x"), stat }),
                None => status = Accepted::SystemErr,
            }
        }
        if (call.program, call.procedure) == (nsm::PROGRAM, nsm::Procedure::Stat.wire()) {
            match state.monitor {
                // It does not know the host in the question, as most monitors say.
                Some(state) => results.put(&nsm::StatRes { res_stat: nsm::Res::Fail, state }),
                None => status = Accepted::SystemErr,
            }
        }
        state.heard.push((call.program, call.procedure, args));
    }
    state.1.notify_all();
    to.put(&Reply::accepted(call.xid, status));
    let mut reply = to.to_vec();
    reply.extend(results.to_vec());
    reply
}

const PATIENCE: Duration = Duration::from_secs(20);
