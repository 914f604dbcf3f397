//! A token as `tokens.json` has it.

use aquifer_api::{DatasetName, Role, TokenInfo};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::remote::secret::Hash;

/// A token, as the file has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kept {
    pub name: String,
    pub role: Role,
    pub made_s: u64,
    pub expires_s: Option<u64>,
    pub hash: Hash,
    /// The one before, which holds for a while.
    pub earlier: Option<Earlier>,
    /// It counts only with one of these; without any, always. An earlier release refuses a list
    /// that says so, rather than let the token in without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<Hash>,
    /// It counts for these and what lies below them; without any, for all. As above.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub datasets: Vec<DatasetName>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Earlier {
    pub hash: Hash,
    pub until_s: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<Hash>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    tokens: Vec<Kept>,
}

pub(super) fn text_of(tokens: &[Kept]) -> std::io::Result<String> {
    let text = serde_json::to_string_pretty(&File { tokens: tokens.to_vec() })?;
    Ok(text + "\n")
}

pub(super) fn parse(bytes: &[u8]) -> Result<Vec<Kept>, String> {
    let file: Result<File, _> = serde_json::from_slice(bytes);
    file.map(|file| file.tokens).map_err(|error| format!("is no list of tokens ({error})"))
}

impl Kept {
    pub fn info(&self, now_s: u64) -> TokenInfo {
        let earlier = self.earlier.as_ref().map(|earlier| earlier.until_s);
        TokenInfo {
            name: self.name.clone(),
            role: self.role,
            made_s: self.made_s,
            expires_s: self.expires_s,
            expired: self.expires_s.is_some_and(|end_s| end_s <= now_s),
            earlier_until_s: earlier.filter(|until_s| *until_s > now_s),
            certificates: self.certificates.iter().map(Hash::text).collect(),
            datasets: self.datasets.clone(),
        }
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.text().serialize(to)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Hash::from_text(&text).ok_or_else(|| serde::de::Error::custom("no hash"))
    }
}
