//! Locks and atomics of the model checker, with the interface of those in production.

use std::ops::{Deref, DerefMut};

pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

/// A lock that is not poisoned, as `parking_lot`'s.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

pub(crate) struct MutexGuard<'a, T>(loom::sync::MutexGuard<'a, T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(self.0.lock().expect("a panic ends the model"))
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect("a panic ends the model")
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
