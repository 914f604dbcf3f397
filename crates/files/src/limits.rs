//! How large files, names and links may be: each limit stands here, or in the format, and nowhere
//! else.

/// Largest file, bytes: below it no sum of an offset and a count overflows.
pub use aquifer_ondisk::inode::FILE_BYTES_MAX;

/// Longest name in a directory, bytes (POSIX NAME_MAX).
pub use aquifer_ondisk::dirent::NAME_BYTES_MAX;

/// Longest target of a symbolic link, bytes (POSIX PATH_MAX without its end mark). Releases before
/// this one took 4,096 of other callers than NFS, which there were none of.
pub const TARGET_BYTES_MAX: usize = 4095;

/// Names of one file at most, as PATHCONF tells it.
pub const LINKS_MAX: u32 = 65_000;
