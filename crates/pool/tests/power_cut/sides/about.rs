//! Parameters of a world of mirror sides, and the events that it shows.

/// Events that a seed has shown.
#[derive(Default)]
pub struct SidesRun {
    pub cuts: u64,
    /// Times that a side was resilvered while the others watched, and then did alone.
    pub alone: u64,
    /// Of these, those that went back to an older root.
    pub rewinds: u64,
    /// Acts of an administrator that were carried out.
    pub acts: u64,
    /// Sides that failed because they did not answer.
    pub hung: u64,
    /// Lives at whose end a spare stood in.
    pub stood_in: u64,
    /// Bad copies that a scrub in peace had to mend, and mended.
    pub mended: u64,
    /// Sides that were taken out because their reads failed too often, and those of them that came
    /// back in the same life.
    pub faulted: u64,
    pub came_back: u64,
    /// Lives in which reads of the last whole side failed.
    pub last_erred: u64,
    /// Vdevs that were added, and acts by which a vdev grew.
    pub added: u64,
    pub grown: u64,
    /// Disks that were put back from copies; looks at pools with such disks that came up, and that
    /// were refused.
    pub put_back: u64,
    pub looks: u64,
    pub refused: u64,
}

impl SidesRun {
    /// Adds what another seed has shown.
    pub fn add(&mut self, other: &SidesRun) {
        self.cuts += other.cuts;
        self.alone += other.alone;
        self.rewinds += other.rewinds;
        self.acts += other.acts;
        self.hung += other.hung;
        self.stood_in += other.stood_in;
        self.mended += other.mended;
        self.faulted += other.faulted;
        self.came_back += other.came_back;
        self.last_erred += other.last_erred;
        self.added += other.added;
        self.grown += other.grown;
        self.put_back += other.put_back;
        self.looks += other.looks;
        self.refused += other.refused;
    }
}

/// Theme of a world of mirror sides.
#[derive(Clone, Copy, PartialEq)]
pub enum About {
    Sides,
    Hangs,
    Spares,
    Errs,
    Growth,
    Dense,
    Everything,
    Copies,
}

impl About {
    /// Whether vdevs come and disks become larger.
    pub fn grows(self) -> bool {
        matches!(self, About::Growth | About::Everything)
    }
}
