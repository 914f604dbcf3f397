//! Copy-on-write objects.
