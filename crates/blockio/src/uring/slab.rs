//! Numbered places for operations under way; numbers are reused.
//!
//! Invariant: a number names the same value from `insert` until `remove`.

/// A vector with holes.
pub(super) struct Slab<T> {
    places: Vec<Option<T>>,
    vacant: Vec<u32>,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Self {
        Slab { places: Vec::new(), vacant: Vec::new() }
    }

    /// Keeps `value` and returns its number. `Err` gives it back if 2^32 - 1 are kept already.
    pub(super) fn insert(&mut self, value: T) -> Result<u32, T> {
        if let Some(key) = self.vacant.pop() {
            if let Some(place) = self.place(key) {
                *place = Some(value);
            }
            return Ok(key);
        }
        match u32::try_from(self.places.len()) {
            Ok(key) => {
                self.places.push(Some(value));
                Ok(key)
            }
            Err(_) => Err(value),
        }
    }

    pub(super) fn get_mut(&mut self, key: u32) -> Option<&mut T> {
        self.place(key)?.as_mut()
    }

    pub(super) fn remove(&mut self, key: u32) -> Option<T> {
        let value = self.place(key)?.take()?;
        self.vacant.push(key);
        Some(value)
    }

    /// Every value.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().flatten()
    }

    fn place(&mut self, key: u32) -> Option<&mut Option<T>> {
        self.places.get_mut(usize::try_from(key).ok()?)
    }
}
