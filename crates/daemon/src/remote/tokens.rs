//! Tokens: who may ask over TCP, under which name, for what, and until when.
//!
//! They are kept in `tokens.json` beside the keys (mode 0600), by the hash of each. The token in
//! the file `token` is one more, an administrator's, called `token`.
//!
//! Invariants:
//! - A token itself is never kept: the answer that made it is the only place where it stands. (The
//!   file `token` is older than this rule, and its owner's.)
//! - A change is on disk before it is answered, and holds from then on: the next request is judged
//!   by it, on a connection too that has been there before.
//! - A list that cannot be read lets nobody in, and keeps nothing else from working: it is read
//!   again until it can be ([`Tokens::look_again`]), and is not written over meanwhile.
//! - To guess names nothing: a caller learns that a token has expired, or is bound, only by showing
//!   that token.
//! - A token that is bound to datasets counts for these alone, and is bound to no others later: a
//!   new token is.
//! - A token that is bound to certificates counts on no connection without proof of one of them
//!   ([`proof`](super::proof)), under none of its texts and by no session.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use aquifer_admin::control::{Scope, check_puller};
use aquifer_api::keys::{KeysError, parse_fingerprint, read_secret, read_token};
use aquifer_api::time::{now_s, text_s};
use aquifer_api::{
    ApiError, BindToken, CreateToken, DatasetName, Role, RotateToken, TokenInfo, TokenMade,
};
use aquifer_blockio::durable::{Copied, Loaded};
use parking_lot::Mutex;

use super::keys::FIRST_TOKEN;
use super::proof::Proof;
use super::secret::{Hash, make_directory, new_token, replace};
use crate::caller::Rights;

mod kept;
#[cfg(test)]
mod tests;

use kept::{Earlier, Kept, parse, text_of};

/// All tokens of a daemon.
#[derive(Debug)]
pub struct Tokens {
    /// Of the keys; it is made when the first token is.
    directory: PathBuf,
    file: Copied,
    kept: Mutex<Vec<Kept>>,
    /// Why the list is not known.
    off: Mutex<Option<String>>,
    /// Problem with the list on disk.
    problem: Mutex<Option<String>>,
    /// Problem with the file `token` when it was looked at last.
    first_problem: Mutex<Option<String>>,
}

/// Meaning of a text that a caller shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// A token that holds.
    Token {
        /// Its name.
        name: Arc<str>,
        /// Rights of its bearer, and for which datasets.
        rights: Rights,
    },
    /// One that holds, but not here: it is bound to certificates, none of which the connection
    /// showed.
    Unproven {
        /// Its name.
        name: Arc<str>,
    },
    /// One that held.
    Expired {
        /// Its name.
        name: Arc<str>,
    },
    /// None.
    Nothing,
}

/// Properties by which a token is told from another one of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    role: Role,
    made_s: u64,
}

impl Tokens {
    /// The tokens in `directory`; none, if there are none yet, or the list cannot be read.
    pub fn open(directory: &Path) -> Tokens {
        let file = Copied::at(directory.join(FILE_NAME), 0o600);
        let (kept, off, problem, first_problem) = Default::default();
        let directory = directory.into();
        let tokens = Tokens { directory, file, kept, off, problem, first_problem };
        tokens.read();
        tokens
    }

    /// Reads the list.
    fn read(&self) {
        // Others could have read it, and written it.
        if let Err(error @ KeysError::Content { .. }) = read_secret(self.file.path()) {
            *self.off.lock() = Some(error.to_string());
            return;
        }
        let Loaded { content, problem } = self.file.load(parse);
        match (content, problem) {
            (Some(tokens), problem) => {
                *self.kept.lock() = tokens;
                *self.off.lock() = None;
                *self.problem.lock() = problem;
            }
            (None, problem) => *self.off.lock() = problem,
        }
    }

    /// Reads a list again that could not be read, and writes one again that is spoilt.
    pub fn look_again(&self) {
        // Nobody may have asked since the file of the first one changed.
        let _ = self.first();
        if self.off.lock().is_some() {
            self.read();
            return;
        }
        let kept = self.kept.lock();
        if kept.is_empty() && !self.file.path().exists() {
            *self.problem.lock() = None;
            return;
        }
        let mended = text_of(&kept).and_then(|text| self.file.mend(parse, text.as_bytes()));
        *self.problem.lock() = mended.err().map(|error| error.to_string());
    }

    /// Returns the problem with the files of tokens, as of the last look.
    pub fn problem(&self) -> Option<String> {
        let off = self.off.lock().clone();
        let off = off.map(|why| format!("{why}; no token of the list counts"));
        off.or_else(|| self.problem.lock().clone()).or_else(|| self.first_problem.lock().clone())
    }

    /// Where the keys are.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Finds the token of a text that a caller shows at `now_s`, on a connection with this proof.
    pub(super) fn look(&self, text: &str, proof: Proof, now_s: u64) -> Shown {
        self.look_hash(&Hash::of(text.as_bytes()), proof, now_s)
    }

    /// Finds the token of a text by the text's hash; otherwise as `look`.
    pub(super) fn look_hash(&self, hash: &Hash, proof: Proof, now_s: u64) -> Shown {
        if self.first().is_some_and(|first| first.is(hash)) {
            return Shown::Token { name: FIRST_TOKEN.into(), rights: Role::Admin.into() };
        }
        let kept = self.kept.lock();
        let found = kept.iter().find_map(|token| {
            let is_earlier = token.earlier.as_ref().is_some_and(|earlier| earlier.hash.is(hash));
            (is_earlier || token.hash.is(hash)).then_some((token, is_earlier))
        });
        let Some((token, is_earlier)) = found else { return Shown::Nothing };
        let name = Arc::from(token.name.as_str());
        let (until_s, certificates) = match &token.earlier {
            Some(earlier) if is_earlier => (Some(earlier.until_s), &earlier.certificates),
            _ => (token.expires_s, &token.certificates),
        };
        if !certificates.is_empty() && !proof.is_of(certificates) {
            return Shown::Unproven { name };
        }
        match until_s.is_some_and(|until_s| until_s <= now_s) {
            true => Shown::Expired { name },
            false => {
                let (role, scope) = (token.role, Scope::of(&token.datasets));
                Shown::Token { name, rights: Rights { role, scope } }
            }
        }
    }

    /// Whether a token is bound: only then are clients asked for certificates.
    pub(super) fn are_bound(&self) -> bool {
        let of_earlier = |token: &Kept| {
            token.earlier.as_ref().is_some_and(|earlier| !earlier.certificates.is_empty())
        };
        let kept = self.kept.lock();
        kept.iter().any(|token| !token.certificates.is_empty() || of_earlier(token))
    }

    /// The hash of the token in the file `token`, read each time: a change holds at once. A file
    /// that is missing or wrong is no token.
    fn first(&self) -> Option<Hash> {
        let read = read_token(&self.directory.join(FIRST_TOKEN));
        let problem = match &read {
            Err(error) if !error.is_absence() => Some(error.to_string()),
            _ => None,
        };
        let mut before = self.first_problem.lock();
        if let Some(error) = problem.as_ref().filter(|now| before.as_ref() != Some(now)) {
            tracing::warn!(class = "api.token", error, "the file holds no token that is valid");
        }
        *before = problem;
        read.ok().map(|token| Hash::of(token.as_bytes()))
    }

    /// All tokens, by name.
    pub fn list(&self) -> Vec<TokenInfo> {
        let now_s = now_s();
        let first = self.first().map(|_| TokenInfo {
            name: FIRST_TOKEN.into(),
            role: Role::Admin,
            made_s: self.first_made_s(),
            expires_s: None,
            expired: false,
            earlier_until_s: None,
            certificates: Vec::new(),
            datasets: Vec::new(),
        });
        let mut all: Vec<TokenInfo> =
            self.kept.lock().iter().map(|token| token.info(now_s)).chain(first).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// A token that holds, as it is now; `None`: there is none of this name, or it has expired.
    pub(crate) fn standing(&self, name: &str) -> Option<Standing> {
        let mut all = self.list().into_iter();
        let found = all.find(|token| token.name == name && !token.expired)?;
        Some(Standing { role: found.role, made_s: found.made_s })
    }

    /// Whether it takes two to change a token of this name: an administrator's, or that of a feeder
    /// of copies, which prunes them.
    pub(crate) fn takes_two(&self, name: &str) -> bool {
        // That of the file, also while there is none.
        let is_one = |role: Role| matches!(role, Role::Admin | Role::Receive);
        let is_it = |token: &TokenInfo| token.name == name && is_one(token.role);
        name == FIRST_TOKEN || self.list().iter().any(is_it)
    }

    fn first_made_s(&self) -> u64 {
        let changed = std::fs::metadata(self.directory.join(FIRST_TOKEN))
            .and_then(|meta| meta.modified())
            .map(|at| at.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs());
        changed.unwrap_or_default()
    }

    /// Makes a token.
    ///
    /// # Errors
    /// A name that is taken or cannot be, an end that is past, too many tokens, a full disk.
    pub fn create(&self, request: &CreateToken) -> Result<TokenMade, ApiError> {
        let CreateToken { name, role, expires_s, certificates, datasets } = request;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
            return Err(ApiError::invalid(format!(
                "{name:?} is no name of a token: up to {NAME_BYTES_MAX} letters, digits, . _ -"
            )));
        }
        let now_s = now_s();
        check_end(*expires_s, now_s)?;
        let certificates = fingerprints(certificates)?;
        check_scope(*role, datasets)?;
        if *role == Role::Send {
            check_puller(name).map_err(ApiError::invalid)?;
        }
        let taken = |kept: &[Kept]| kept.iter().any(|token| token.name == *name);
        self.change(|kept| {
            if *name == FIRST_TOKEN || taken(kept) {
                return Err(ApiError::conflict(format!(
                    "there is a token {name} already: `aquifer token rotate {name}` replaces it"
                )));
            }
            if kept.len() >= TOKENS_MAX {
                return Err(ApiError::conflict(format!(
                    "there are {TOKENS_MAX} tokens already: `aquifer token revoke` ends one"
                )));
            }
            let (token, hash) = fresh()?;
            let (name, role, expires_s) = (name.clone(), *role, *expires_s);
            let (made_s, earlier, datasets) = (now_s, None, datasets.clone());
            let made =
                Kept { name, role, made_s, expires_s, hash, earlier, certificates, datasets };
            let info = made.info(now_s);
            kept.push(made);
            Ok(TokenMade { info, token })
        })
    }

    /// Ends a token.
    ///
    /// # Errors
    /// That there is none, or that it is a file's; a full disk.
    pub fn revoke(&self, name: &str) -> Result<TokenInfo, ApiError> {
        if name == FIRST_TOKEN {
            return Err(ApiError::conflict(format!(
                "{name} is the token of a file: `aquifer token rotate {name}` replaces it; without \
                 that file, {}, the next start makes another one",
                self.directory.join(FIRST_TOKEN).display()
            )));
        }
        self.change(|kept| {
            let at = kept.iter().position(|token| token.name == name);
            Ok(kept.remove(at.ok_or_else(|| unknown(name))?).info(now_s()))
        })
    }

    /// Makes another token of the same name and role. The one before ends, at once or in a while.
    ///
    /// # Errors
    /// That there is none, an end that is past, a full disk.
    pub fn rotate(&self, name: &str, request: &RotateToken) -> Result<TokenMade, ApiError> {
        let RotateToken { keep_s, expires_s, ref certificates } = *request;
        let now_s = now_s();
        if keep_s > KEEP_S_MAX {
            let days = KEEP_S_MAX / 86_400;
            return Err(ApiError::invalid(format!("a token is kept for {days} days at most")));
        }
        if name == FIRST_TOKEN {
            return self.rotate_first(request, now_s);
        }
        let certificates = certificates.as_deref().map(fingerprints).transpose()?;
        self.change(|kept| {
            let found = kept.iter_mut().find(|token| token.name == name);
            let token = found.ok_or_else(|| unknown(name))?;
            let ends_s = token.expires_s;
            let expires_s = expires_s.or(ends_s);
            check_end(expires_s, now_s)?;
            let (text, hash) = fresh()?;
            // It is not kept for longer than it would have held.
            let until_s = ends_s.map_or(now_s + keep_s, |ends_s| ends_s.min(now_s + keep_s));
            let before = token.certificates.clone();
            let certificates = certificates.unwrap_or_else(|| before.clone());
            let earlier = Earlier { hash: token.hash, until_s, certificates: before };
            *token = Kept {
                name: token.name.clone(),
                role: token.role,
                made_s: now_s,
                expires_s,
                hash,
                earlier: (until_s > now_s).then_some(earlier),
                certificates,
                datasets: token.datasets.clone(),
            };
            Ok(TokenMade { info: token.info(now_s), token: text })
        })
    }

    /// Binds a token to these certificates instead of those before, also the one that a rotation
    /// kept. None: to none.
    ///
    /// # Errors
    /// That there is no such token, or that it is a file's; no fingerprints; a full disk.
    pub fn bind(&self, name: &str, request: &BindToken) -> Result<TokenInfo, ApiError> {
        if name == FIRST_TOKEN {
            return Err(ApiError::conflict(format!(
                "{name} is the token of a file, which is bound to nothing: make another one \
                 (`aquifer token create --certificate`), and keep that file on this machine"
            )));
        }
        let certificates = fingerprints(&request.certificates)?;
        self.change(|kept| {
            let found = kept.iter_mut().find(|token| token.name == name);
            let token = found.ok_or_else(|| unknown(name))?;
            if let Some(earlier) = &mut token.earlier {
                earlier.certificates.clone_from(&certificates);
            }
            token.certificates = certificates;
            Ok(token.info(now_s()))
        })
    }

    /// The file holds one token, which does not end by itself.
    fn rotate_first(&self, request: &RotateToken, now_s: u64) -> Result<TokenMade, ApiError> {
        if *request != RotateToken::default() {
            return Err(ApiError::invalid(format!(
                "{FIRST_TOKEN} is the token of a file: it is replaced at once, and has no end"
            )));
        }
        let (token, _) = fresh()?;
        let path = self.directory.join(FIRST_TOKEN);
        let made = make_directory(&self.directory);
        made.and_then(|()| replace(&path, token.as_bytes(), 0o600)).map_err(not_written)?;
        let info = TokenInfo {
            name: FIRST_TOKEN.into(),
            role: Role::Admin,
            made_s: now_s,
            expires_s: None,
            expired: false,
            earlier_until_s: None,
            certificates: Vec::new(),
            datasets: Vec::new(),
        };
        Ok(TokenMade { info, token })
    }

    /// A change of the list: on disk first.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut Vec<Kept>) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        if let Some(why) = &*self.off.lock() {
            return Err(ApiError::conflict(format!(
                "the list of tokens cannot be read: {why}; mend it, or move it and its copy away"
            )));
        }
        let mut kept = self.kept.lock();
        let mut tokens = kept.clone();
        let changed = change(&mut tokens)?;
        let text = text_of(&tokens).map_err(|error| ApiError::failed(error.to_string()))?;
        let store = || self.file.store(text.as_bytes()).map_err(KeysError::file(self.file.path()));
        make_directory(&self.directory).and_then(|()| store()).map_err(not_written)?;
        *kept = tokens;
        Ok(changed)
    }
}

fn check_end(expires_s: Option<u64>, now_s: u64) -> Result<(), ApiError> {
    match expires_s {
        Some(end_s) if end_s <= now_s => {
            let end = text_s(end_s);
            Err(ApiError::invalid(format!(
                "it would have expired at {end}; give a later --expires"
            )))
        }
        _ => Ok(()),
    }
}

/// Fails unless a token of this role may be bound to these datasets.
fn check_scope(role: Role, datasets: &[DatasetName]) -> Result<(), ApiError> {
    if datasets.len() > DATASETS_MAX {
        let why = format!("a token is bound to {DATASETS_MAX} datasets at most");
        return Err(ApiError::invalid(why));
    }
    if role == Role::Send && datasets.is_empty() {
        return Err(ApiError::invalid(
            "a token of the role send reads what it may send: say of which datasets, with \
             --dataset tank/vms",
        ));
    }
    match datasets.is_empty() || role.may_be_scoped() {
        true => Ok(()),
        false => Err(ApiError::invalid(format!(
            "a token of the role {role} is bound to no dataset, since what it may do concerns the \
             whole server: leave out --dataset, or give it a role for datasets (receive, send, \
             read, operator)"
        ))),
    }
}

/// Fingerprints that a token is to be bound to.
fn fingerprints(texts: &[String]) -> Result<Vec<Hash>, ApiError> {
    if texts.len() > CERTIFICATES_MAX {
        let why = format!("a token is bound to {CERTIFICATES_MAX} certificates at most");
        return Err(ApiError::invalid(why));
    }
    let one = |text: &String| {
        let hash = parse_fingerprint(text).and_then(|digits| Hash::from_text(&digits));
        hash.ok_or_else(|| {
            ApiError::invalid(format!(
                "{text:?} is no SHA-256 fingerprint of a certificate: 64 hexadecimal digits, as \
                 `openssl x509 -noout -fingerprint -sha256 -in FILE` shows it"
            ))
        })
    };
    texts.iter().map(one).collect()
}

fn fresh() -> Result<(String, Hash), ApiError> {
    let token = new_token().map_err(|error| ApiError::failed(error.to_string()))?;
    let hash = Hash::of(token.as_bytes());
    Ok((token, hash))
}

fn unknown(name: &str) -> ApiError {
    ApiError::not_found(format!(
        "there is no token {name:?}; `aquifer token list` shows those that there are"
    ))
}

fn not_written(error: KeysError) -> ApiError {
    ApiError::failed(format!("{error}: the tokens could not be written; nothing has changed"))
}

const FILE_NAME: &str = "tokens.json";
/// Scripts, collectors and people of one storage server; each request looks at all.
const TOKENS_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 64;
/// Machines that share a token, and the next certificate of each.
const CERTIFICATES_MAX: usize = 16;
/// Each request of such a token looks at all.
const DATASETS_MAX: usize = 64;
/// Longer, and rotation ends nothing.
const KEEP_S_MAX: u64 = 30 * 86_400;
