//! Limits on files, names and links. Each limit is defined here or in the format, and nowhere else.

/// Largest file, bytes: below it no sum of an offset and a count overflows.
pub use aquifer_ondisk::inode::FILE_BYTES_MAX;

/// Longest name in a directory, bytes (POSIX NAME_MAX).
pub use aquifer_ondisk::dirent::NAME_BYTES_MAX;

/// Longest target of a symbolic link, bytes (POSIX PATH_MAX without its end mark). Earlier releases
/// took 4,096 from callers other than NFS, but there were none.
pub const TARGET_BYTES_MAX: usize = 4095;

/// Most names of one file; PATHCONF reports it.
pub const LINKS_MAX: u32 = 65_000;
