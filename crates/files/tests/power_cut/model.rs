//! One client's knowledge of its directory: what must be there, and what may be.

use std::collections::BTreeMap;

const PAGE: usize = 4096;

/// A page's content: the durable one, and those that later UNSTABLE writes may have left.
#[derive(Clone, Default, Debug)]
struct Page {
    durable: Vec<u8>,
    pending: Vec<Vec<u8>>,
}

impl Page {
    fn newest(&self) -> Vec<u8> {
        let newest = self.pending.last().unwrap_or(&self.durable);
        let mut bytes = newest.clone();
        bytes.resize(PAGE, 0);
        bytes
    }
}

/// A file's content.
#[derive(Clone, Default, Debug)]
pub struct FileModel {
    sizes: Vec<u64>,
    size: u64,
    pages: BTreeMap<u64, Page>,
}

impl FileModel {
    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn write(&mut self, offset: u64, data: &[u8], stable: bool) {
        let end = offset + data.len() as u64;
        let mut at = offset;
        while at < end {
            let (page, start) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let count = (PAGE - start).min((end - at) as usize);
            let entry = self.pages.entry(page).or_default();
            let mut bytes = entry.newest();
            let from = (at - offset) as usize;
            bytes[start..start + count].copy_from_slice(&data[from..from + count]);
            if stable {
                *entry = Page { durable: bytes, pending: Vec::new() };
            } else {
                entry.pending.push(bytes);
            }
            at += count as u64;
        }
        self.resize(self.size.max(end), stable);
    }

    fn resize(&mut self, size: u64, stable: bool) {
        if stable {
            self.sizes.clear();
        } else {
            self.sizes.push(self.size);
        }
        self.size = size;
    }

    pub fn truncate(&mut self, size: u64) {
        if size < self.size {
            let tail = (size % PAGE as u64) as usize;
            self.pages.retain(|page, _| page * (PAGE as u64) < size);
            if tail != 0
                && let Some(page) = self.pages.get_mut(&(size / PAGE as u64))
            {
                let mut bytes = page.newest();
                bytes[tail..].fill(0);
                *page = Page { durable: bytes, pending: Vec::new() };
            }
        }
        self.resize(size, true);
    }

    pub fn commit(&mut self, from: u64, to: u64) {
        for (_, page) in self.pages.range_mut(from..to) {
            *page = Page { durable: page.newest(), pending: Vec::new() };
        }
        self.sizes.clear();
    }

    pub fn commit_all(&mut self) {
        self.commit(0, u64::MAX);
    }

    pub fn newest(&self, offset: u64, count: usize) -> Vec<u8> {
        let count = count.min(self.size.saturating_sub(offset) as usize);
        (0..count as u64)
            .map(|at| {
                let (page, byte) = ((offset + at) / PAGE as u64, (offset + at) % PAGE as u64);
                let Some(page) = self.pages.get(&page) else {
                    return 0;
                };
                let newest = page.pending.last().unwrap_or(&page.durable);
                newest.get(byte as usize).copied().unwrap_or(0)
            })
            .collect()
    }

    /// Whether this may be the content after a crash.
    pub fn accepts(&self, found: &[u8]) -> Result<(), String> {
        let size = found.len() as u64;
        if size != self.size && !self.sizes.contains(&size) {
            let (now, before) = (self.size, &self.sizes);
            return Err(format!("size {size}, expected {now} or one of {before:?}"));
        }
        for (at, bytes) in (0u64..).zip(found.chunks(PAGE)) {
            let matches = |content: &[u8]| {
                let (head, tail) = bytes.split_at(content.len().min(bytes.len()));
                head == &content[..head.len()] && tail.iter().all(|byte| *byte == 0)
            };
            let page = self.pages.get(&at).cloned().unwrap_or_default();
            // Bytes beyond an older, smaller end may be zeros.
            let fits = matches(&page.durable) || page.pending.iter().any(|p| matches(p));
            if !fits {
                let states = page.pending.len() + 1;
                return Err(format!("page {at} is none of the {states} states it may have"));
            }
        }
        Ok(())
    }

    /// The content that was found stays.
    pub fn settle(&mut self, found: &[u8]) {
        self.size = found.len() as u64;
        self.sizes.clear();
        self.pages.clear();
        for (at, bytes) in (0u64..).zip(found.chunks(PAGE)) {
            self.pages.insert(at, Page { durable: bytes.to_vec(), pending: Vec::new() });
        }
    }
}

/// A directory: names, and the files that they name (several names may name one).
#[derive(Clone, Default, Debug)]
pub struct DirectoryModel {
    pub names: BTreeMap<String, u64>,
    pub files: BTreeMap<u64, FileModel>,
}

impl DirectoryModel {
    pub fn drop_name(&mut self, name: &str) {
        if let Some(file) = self.names.remove(name)
            && !self.names.values().any(|other| *other == file)
        {
            self.files.remove(&file);
        }
    }

    /// Whether a directory may hold this: content by name, and which names are of one file.
    pub fn accepts(&self, found: &BTreeMap<String, (u64, Vec<u8>)>) -> Result<(), String> {
        let (here, there): (Vec<_>, Vec<_>) = (self.names.keys().collect(), found.keys().collect());
        if here != there {
            return Err(format!("names {there:?}, expected {here:?}"));
        }
        for (name, (id, content)) in found {
            let file = self.names[name];
            for (other, (other_id, _)) in found {
                if (self.names[other] == file) != (id == other_id) {
                    return Err(format!("{name} and {other}: links are not as they were"));
                }
            }
            self.files[&file].accepts(content).map_err(|why| format!("{name}: {why}"))?;
        }
        Ok(())
    }

    pub fn settle(&mut self, found: &BTreeMap<String, (u64, Vec<u8>)>) {
        for (name, (_, content)) in found {
            let file = self.names[name];
            self.files.get_mut(&file).unwrap().settle(content);
        }
    }
}
