//! The items of an array that are to differ.

use std::collections::HashSet;
use std::sync::Arc;

/// The items of an array, as text that is equal for equal values. A copy shares them with what it was made from, and keeps
/// what it adds apart.
#[derive(Clone, Default)]
pub(super) struct Items {
    shared: Arc<HashSet<String>>,
    own: Vec<String>,
}

impl Items {
    /// False if there is an equal one.
    pub(super) fn add(&mut self, item: String) -> bool {
        if self.shared.contains(&item) || self.own.contains(&item) {
            return false;
        }
        match Arc::get_mut(&mut self.shared) {
            Some(items) => _ = items.insert(item),
            None => self.own.push(item),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_adds_apart() {
        let mut items = Items::default();
        assert!(items.add("1".to_owned()));
        let mut copy = items.clone();
        assert!(!copy.add("1".to_owned()) && copy.add("2".to_owned()) && !copy.add("2".to_owned()));
        assert!(Arc::ptr_eq(&items.shared, &copy.shared));
        drop(copy);
        assert!(items.add("2".to_owned()) && !items.add("2".to_owned()));
        assert!(items.own.is_empty(), "nobody shares them any more");
    }
}
