//! The administrator's side: one typed API.
