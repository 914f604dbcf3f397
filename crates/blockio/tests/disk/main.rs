//! Tests of `FileDisk` from outside, on real files and devices.

mod conformance;
mod opening;
mod support;
