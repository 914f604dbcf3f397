//! Signatures of foreign content.
