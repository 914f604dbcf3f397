//! How fast changes come in, and how they go out.

pub(crate) mod limits;
pub(crate) mod placement;
pub(crate) mod spread;
pub(crate) mod throttle;
pub(crate) mod window;
