//! Clients that are slow, silent, or too fast, and many of them.
