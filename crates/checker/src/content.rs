//! Content of files, in cells of 256 bytes that each identify their write.

/// Bytes of a cell.
pub const CELL_BYTES: u64 = 256;

/// The content of a cell: 0 is zeros, any other number the write that left it.
pub type Cell = u32;

/// A file's content. Cells beyond the end are zeros.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// Bytes, a multiple of [`CELL_BYTES`].
    pub size: u64,
    cells: Vec<Cell>,
}

impl Content {
    /// The cell at `index`.
    pub fn cell(&self, index: u64) -> Cell {
        self.cells.get(index as usize).copied().unwrap_or(0)
    }

    /// Cells up to the last that was ever written.
    pub fn cells(&self) -> u64 {
        self.cells.len() as u64
    }

    /// Writes one number to cells from `first` on.
    pub fn write(&mut self, first: u64, count: u64, cell: Cell) {
        let end = (first + count) as usize;
        if self.cells.len() < end {
            self.cells.resize(end, 0);
        }
        self.cells[first as usize..end].fill(cell);
        self.size = self.size.max((first + count) * CELL_BYTES);
    }

    /// Sets one cell, whatever the size.
    pub fn set(&mut self, index: u64, cell: Cell) {
        let size = self.size;
        self.write(index, 1, cell);
        self.size = size;
    }

    /// Sets the size.
    pub fn resize(&mut self, size: u64) {
        self.cells.truncate((size / CELL_BYTES) as usize);
        self.size = size;
    }
}

/// Bytes of cells from `first` on.
pub fn bytes_of(first: u64, count: u64, cell: Cell) -> Vec<u8> {
    (first..first + count).flat_map(|index| bytes_of_cell(index, cell)).collect()
}

fn bytes_of_cell(index: u64, cell: Cell) -> Vec<u8> {
    let word = |at: u64| match cell {
        0 => 0,
        // Some content compresses.
        _ if cell.is_multiple_of(3) => cell,
        _ => mixed(u64::from(cell) << 32 ^ index << 8 ^ at) as u32 | 1,
    };
    (0..CELL_BYTES / 4).flat_map(|at| if at == 0 { cell } else { word(at) }.to_le_bytes()).collect()
}

/// The write that left these bytes of a cell.
pub fn cell_of(index: u64, bytes: &[u8]) -> Result<Cell, String> {
    let (word, _) = bytes.split_first_chunk::<4>().ok_or("no cell")?;
    let cell = Cell::from_le_bytes(*word);
    match bytes_of_cell(index, cell) == bytes {
        true => Ok(cell),
        false => Err(format!("cell {index} is torn or of another place (begins with {cell})")),
    }
}

/// SplitMix64.
fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
