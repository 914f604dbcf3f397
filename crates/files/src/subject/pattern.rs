//! Patterns of names: `*` stands for any bytes, `?` for one. A byte is also written as `\0ooo` in
//! octal, as names are shown: so `\0052` is a star that stands for itself.

use aquifer_ondisk::shown_name::meant;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Byte(u8),
    One,
    Any,
}

/// See the module's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern(Vec<Token>);

/// A path, each part of which may be a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern {
    text: String,
    parts: Vec<Pattern>,
}

impl PathPattern {
    /// That of a path as it was given, with slashes between its parts.
    pub(crate) fn new(path: &str) -> PathPattern {
        PathPattern { text: path.into(), parts: path.split('/').map(Pattern::new).collect() }
    }

    /// As it was given.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn parts(&self) -> &[Pattern] {
        &self.parts
    }

    /// The bytes of a path that means one file.
    pub(crate) fn plain(&self) -> Option<Vec<u8>> {
        let parts: Option<Vec<Vec<u8>>> = self.parts.iter().map(Pattern::plain).collect();
        Some(parts?.join(&b'/'))
    }

    /// Whether a path, as it is shown, is meant.
    pub(crate) fn is_of(&self, path: &str) -> bool {
        let there: Vec<&str> = path.split('/').collect();
        let mut pairs = self.parts.iter().zip(&there);
        there.len() == self.parts.len() && pairs.all(|(part, is)| part.is_of(&meant(is)))
    }
}

impl Pattern {
    pub fn new(text: &str) -> Pattern {
        let mut tokens = Vec::new();
        // A star or question mark that is written in octal comes out of `meant`, not before it.
        for part in text.split_inclusive(['*', '?']) {
            let wild = part.chars().next_back().filter(|last| "*?".contains(*last));
            let plain = wild.map_or(part, |wild| part.trim_end_matches(wild));
            tokens.extend(meant(plain).into_iter().map(Token::Byte));
            match wild {
                Some('*') if tokens.last() != Some(&Token::Any) => tokens.push(Token::Any),
                Some('?') => tokens.push(Token::One),
                _ => {}
            }
        }
        Pattern(tokens)
    }

    /// Whether it stands for one name only. Then that name.
    pub fn plain(&self) -> Option<Vec<u8>> {
        let byte = |token: &Token| match token {
            Token::Byte(byte) => Some(*byte),
            _ => None,
        };
        self.0.iter().map(byte).collect()
    }

    /// Whether a name is meant. The time grows with the product of both lengths at most.
    pub fn is_of(&self, name: &[u8]) -> bool {
        let (mut at, mut token) = (0, 0);
        // Where the last star stood, and up to where it reaches.
        let mut star: Option<(usize, usize)> = None;
        while let Some(byte) = name.get(at) {
            match self.0.get(token) {
                Some(Token::Any) => {
                    star = Some((token, at));
                    token += 1;
                    continue;
                }
                Some(Token::Byte(wanted)) if wanted == byte => {}
                Some(Token::One) => {}
                _ => match &mut star {
                    Some((of, reach)) => {
                        *reach += 1;
                        (token, at) = (*of + 1, *reach);
                        continue;
                    }
                    None => return false,
                },
            }
            (at, token) = (at + 1, token + 1);
        }
        self.0.iter().skip(token).all(|token| *token == Token::Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_names() {
        for (pattern, name, is_meant) in [
            ("disk0.vhd", "disk0.vhd", true),
            ("disk0.vhd", "disk0.vhdx", false),
            ("*", "", true),
            ("*.vhd", "disk0.vhd", true),
            ("*.vhd", "disk0.vhd.bak", false),
            ("d*k*.vhd", "disk-dusk1.vhd", true),
            ("disk?.vhd", "disk12.vhd", false),
            ("disk?.vhd", "disk1.vhd", true),
            ("a**b", "ab", true),
            ("?", "", false),
            ("\\0052", "*", true),
            ("\\0052", "x", false),
            ("*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaa", false),
        ] {
            assert_eq!(Pattern::new(pattern).is_of(name.as_bytes()), is_meant, "{pattern} {name}");
        }
        assert_eq!(Pattern::new("a\\0052").plain(), Some(b"a*".to_vec()));
        assert_eq!(Pattern::new("a*").plain(), None);
    }
}
