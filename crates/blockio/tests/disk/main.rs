//! Tests of `FileDisk` from outside, on real files and devices.

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod opening;
#[cfg(test)]
mod support;
