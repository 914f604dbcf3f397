//! A DNS server on a loopback port of its own, which behaves as a test wants.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::time::sleep;

use super::*;

/// The server's behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    Answers,
    Silent,
    /// SERVFAIL.
    Fails,
    /// First answers to other questions and with other numbers, then the right one.
    LiesFirst,
    /// Only such answers.
    Lies,
    /// Over UDP it only says that the answer does not fit.
    Truncates,
    /// After this many milliseconds.
    Slow(u64),
    /// Bytes that are no message.
    Garbage,
}

#[derive(Debug)]
pub(super) struct Zone {
    pub mood: Mood,
    /// Addresses and aliases by name, and how many seconds they are valid.
    pub records: HashMap<String, (Vec<String>, u32)>,
}

/// A DNS server.
#[derive(Clone, Debug)]
pub(super) struct Dns {
    pub address: SocketAddr,
    pub zone: Arc<Mutex<Zone>>,
    questions: Arc<AtomicUsize>,
}

impl Dns {
    pub(super) async fn start() -> Dns {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let socket = UdpSocket::bind(address).await.unwrap();
        let zone = Zone { mood: Mood::Answers, records: HashMap::new() };
        let dns = Dns { address, zone: Arc::new(Mutex::new(zone)), questions: Arc::default() };
        tokio::spawn(dns.clone().datagrams(socket));
        tokio::spawn(dns.clone().streams(listener));
        dns
    }

    /// `records` are addresses, or the name that this is an alias of.
    pub(super) fn set(&self, name: &str, records: &[&str], ttl: u32) {
        let records = records.iter().map(ToString::to_string).collect();
        self.zone.lock().records.insert(name.into(), (records, ttl));
    }

    pub(super) fn mood(&self, mood: Mood) {
        self.zone.lock().mood = mood;
    }

    pub(super) fn questions(&self) -> usize {
        self.questions.load(Ordering::Relaxed)
    }

    pub(super) async fn datagrams(self, socket: UdpSocket) {
        let socket = Arc::new(socket);
        let mut question = [0; 512];
        loop {
            let (bytes, from) = socket.recv_from(&mut question).await.unwrap();
            self.questions.fetch_add(1, Ordering::Relaxed);
            let (question, mood) = (question[..bytes].to_vec(), self.zone.lock().mood);
            let mut answers = vec![self.answer(&question, mood)];
            match mood {
                Mood::Silent => continue,
                Mood::Slow(milliseconds) => {
                    let (socket, answer) = (Arc::clone(&socket), answers.remove(0));
                    tokio::spawn(async move {
                        sleep(Duration::from_millis(milliseconds)).await;
                        socket.send_to(&answer, from).await.unwrap();
                    });
                }
                Mood::Lies | Mood::LiesFirst => {
                    let right = answers.remove(0);
                    let (mut number, mut name) = (right.clone(), right.clone());
                    number[0] ^= 1;
                    name[13] ^= 1;
                    let mut question = right.clone();
                    question[2] &= 0x7f;
                    answers = vec![number, name, question, right[..11].to_vec(), vec![]];
                    if mood == Mood::LiesFirst {
                        answers.push(right);
                    }
                }
                _ => {}
            }
            for answer in answers {
                socket.send_to(&answer, from).await.unwrap();
            }
        }
    }

    pub(super) async fn streams(self, listener: TcpListener) {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut question = vec![0; usize::from(stream.read_u16().await.unwrap())];
            stream.read_exact(&mut question).await.unwrap();
            let answer = self.answer(&question, Mood::Answers);
            stream.write_u16(answer.len().try_into().unwrap()).await.unwrap();
            stream.write_all(&answer).await.unwrap();
        }
    }

    /// The answer to a question for addresses, compressed as servers do it.
    pub(super) fn answer(&self, question: &[u8], mood: Mood) -> Vec<u8> {
        let (name, kind) = read(question);
        let zone = self.zone.lock();
        let found = zone.records.get(&name);
        let code = match (mood, found) {
            (Mood::Fails, _) => 2,
            (_, None) => 3,
            (_, Some(_)) => 0,
        };
        let truncated = if mood == Mood::Truncates { 2 } else { 0 };
        let mut answer = question[..2].to_vec();
        answer.extend([0x81 | truncated, 0x80 | code, 0, 1, 0, 0, 0, 0, 0, 0]);
        answer.extend(&question[12..]);
        if mood == Mood::Truncates {
            return answer;
        }
        if mood == Mood::Garbage {
            answer[7] = 9;
            answer.extend([0xc0, 0xff, 1, 2, 3]);
            return answer;
        }
        let mut count = 0;
        let (mut owner, mut place) = (name, 12_u16);
        while let Some((records, ttl)) = zone.records.get(&owner) {
            let mut next = None;
            for record in records {
                let data = match record.parse::<IpAddr>() {
                    Ok(IpAddr::V4(v4)) if kind == 1 => (1_u16, v4.octets().to_vec()),
                    Ok(IpAddr::V6(v6)) if kind == 28 => (28, v6.octets().to_vec()),
                    Ok(_) => continue,
                    Err(_) => {
                        next = Some(record.clone());
                        (5, wire(record))
                    }
                };
                count += 1;
                answer.extend((0xc000 | place).to_be_bytes());
                answer.extend(data.0.to_be_bytes());
                answer.extend([0, 1]);
                answer.extend(ttl.to_be_bytes());
                answer.extend(u16::try_from(data.1.len()).unwrap().to_be_bytes());
                if next.is_some() {
                    place = answer.len().try_into().unwrap();
                }
                answer.extend(data.1);
            }
            match next {
                Some(next) => owner = next,
                None => break,
            }
        }
        answer[7] = count;
        answer
    }
}

/// The name and the kind of a question.
pub(super) fn read(question: &[u8]) -> (String, u16) {
    let (mut labels, mut at) = (Vec::new(), 12);
    while question[at] > 0 {
        let end = at + 1 + usize::from(question[at]);
        labels.push(String::from_utf8(question[at + 1..end].to_vec()).unwrap());
        at = end;
    }
    (labels.join("."), u16::from_be_bytes([question[at + 1], question[at + 2]]))
}

pub(super) fn wire(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.') {
        bytes.push(label.len().try_into().unwrap());
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes
}
