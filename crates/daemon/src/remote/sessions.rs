//! Sessions of browsers: the page shows a cookie, and the browser need not keep the token.
//!
//! Invariants:
//! - A session does what its token does at that moment. A token that is revoked, rotated or has
//!   expired ends its sessions with their next request.
//! - Neither cookie nor token is kept, but the hash of each.
//! - Sessions end, and are bounded in number: the oldest one of a token makes room.
//! - A restart ends none. If the state directory takes no file, it does, and people log in again.

use std::path::{Path, PathBuf};
use std::{fs, io};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::secret::{Hash, make_directory, new_token, replace};

/// All sessions of a daemon.
#[derive(Debug)]
pub(super) struct Sessions {
    directory: PathBuf,
    /// The oldest first.
    kept: Mutex<Vec<Session>>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Session {
    cookie: Hash,
    token: Hash,
    ends_s: u64,
}

impl Sessions {
    /// The sessions in `directory`; none, if there is no list, or none that makes sense.
    pub fn open(directory: &Path) -> Sessions {
        let path = directory.join(FILE_NAME);
        let kept = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read
                .map_err(|error| error.to_string())
                .and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string()))
                .unwrap_or_else(|error| {
                    let path = path.display();
                    tracing::warn!(class = "api.session", %path, error, "all have to log in again");
                    Vec::new()
                }),
        };
        Sessions { directory: directory.into(), kept: Mutex::new(kept) }
    }

    /// Begins a session for the bearer of a token: its cookie.
    ///
    /// # Errors
    /// The system gives no random bits.
    pub fn begin(&self, token: &Hash, now_s: u64) -> io::Result<String> {
        let cookie = new_token()?;
        let session = Session {
            cookie: Hash::of(cookie.as_bytes()),
            token: *token,
            ends_s: now_s + SESSION_S,
        };
        let mut kept = self.kept.lock();
        kept.retain(|session| session.ends_s > now_s);
        if kept.iter().filter(|other| other.token.is(token)).count() >= TOKEN_SESSIONS_MAX
            && let Some(oldest) = kept.iter().position(|other| other.token.is(token))
        {
            kept.remove(oldest);
        }
        if kept.len() >= SESSIONS_MAX {
            kept.remove(0);
        }
        kept.push(session);
        self.keep(&kept);
        Ok(cookie)
    }

    /// Ends a session.
    pub fn end(&self, cookie: &str) {
        let cookie = Hash::of(cookie.as_bytes());
        let mut kept = self.kept.lock();
        let before = kept.len();
        kept.retain(|session| !session.cookie.is(&cookie));
        if kept.len() < before {
            self.keep(&kept);
        }
    }

    /// The hash of the token for which a session was begun, if it has not ended.
    pub fn token_of(&self, cookie: &str, now_s: u64) -> Option<Hash> {
        let cookie = Hash::of(cookie.as_bytes());
        let kept = self.kept.lock();
        let found = kept.iter().find(|session| session.cookie.is(&cookie));
        found.filter(|session| session.ends_s > now_s).map(|session| session.token)
    }

    /// Writes the list. Without it sessions end with the daemon, no later than they should.
    fn keep(&self, kept: &[Session]) {
        let path = self.directory.join(FILE_NAME);
        let written = serde_json::to_vec(kept).map_err(|error| error.to_string());
        let written = written.and_then(|text| {
            let made = make_directory(&self.directory);
            made.and_then(|()| replace(&path, &text, 0o600)).map_err(|error| error.to_string())
        });
        if let Err(error) = written {
            tracing::warn!(class = "api.session", error, "sessions will end with a restart");
        }
    }
}

const FILE_NAME: &str = "sessions.json";
/// A working day.
pub(super) const SESSION_S: u64 = 12 * 3600;
/// Browsers of one person.
const TOKEN_SESSIONS_MAX: usize = 16;
/// Of all tokens, also of those that are revoked by now.
const SESSIONS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_end_by_time_by_hand_and_to_make_room_and_outlive_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let sessions = Sessions::open(dir.path());
        let [mine, other] = ["mine", "other"].map(|token| Hash::of(token.as_bytes()));
        let first = sessions.begin(&mine, 100).unwrap();
        let his = sessions.begin(&other, 100).unwrap();
        assert_eq!(sessions.token_of(&first, 100), Some(mine));
        assert_eq!(sessions.token_of("guess", 100), None);
        assert_eq!(sessions.token_of(&first, 100 + SESSION_S), None, "after its time");
        // One more of a token's than there may be: its oldest goes, and nobody else's.
        let more: Vec<String> =
            (0..TOKEN_SESSIONS_MAX).map(|_| sessions.begin(&mine, 200).unwrap()).collect();
        assert_eq!(sessions.token_of(&first, 200), None);
        assert_eq!(sessions.token_of(&his, 200), Some(other));
        sessions.end(&more[3]);
        // The file has neither cookies nor tokens.
        let text = fs::read_to_string(dir.path().join(FILE_NAME)).unwrap();
        assert!(!text.contains(&his) && text.contains(&other.text()), "{text}");
        let sessions = Sessions::open(dir.path());
        assert_eq!(sessions.token_of(&more[3], 200), None);
        assert_eq!(sessions.token_of(&more[4], 200), Some(mine));
        assert_eq!(sessions.token_of(&his, 200), Some(other));
    }

    #[test]
    fn without_a_file_there_are_sessions_until_the_end() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE_NAME), "no list").unwrap();
        let sessions = Sessions::open(dir.path());
        let token = Hash::of(b"token");
        let nowhere = Sessions { directory: "/proc/nothing".into(), ..sessions };
        let cookie = nowhere.begin(&token, 1).unwrap();
        assert_eq!(nowhere.token_of(&cookie, 1), Some(token));
    }
}
