//! Frames of a stream between the output thread, which writes them, and their reader, who may be late.

/// Bytes of frames that a reader takes at once, unless one frame is longer.
const MOST_TAKEN: usize = 256 << 10;

/// Frames that wait for their reader.
#[derive(Default)]
pub(crate) struct Frames {
    pub bytes: Vec<u8>,
    /// What its reader has of them.
    taken: usize,
}

impl Frames {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whole frames, not many bytes of them. `empty` is memory for the next ones.
    pub(crate) fn take(&mut self, empty: Vec<u8>) -> Vec<u8> {
        let rest = &self.bytes[self.taken..];
        if self.taken == 0 && rest.len() <= MOST_TAKEN {
            return std::mem::replace(&mut self.bytes, empty);
        }
        let ends = |bytes: &[u8]| bytes == b"\n\n";
        let fits = rest.windows(2).take(MOST_TAKEN - 1).rposition(ends);
        let end = fits.or_else(|| rest.windows(2).position(ends)).map_or(rest.len(), |end| end + 2);
        let frames = rest[..end].to_vec();
        self.taken += end;
        if self.taken == self.bytes.len() {
            *self = Self::default();
        }
        frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(frames: &mut Frames) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| (!frames.is_empty()).then(|| frames.take(Vec::new()))).collect()
    }

    #[test]
    fn memory_changes_places() {
        let mut frames = Frames { bytes: b"a\n\n".to_vec(), taken: 0 };
        assert_eq!(frames.take(Vec::with_capacity(500)), b"a\n\n");
        assert!(frames.is_empty() && frames.bytes.capacity() >= 500);
    }

    #[test]
    fn a_reader_takes_whole_frames() {
        let frame = |length: usize| [vec![b'x'; length - 2], b"\n\n".to_vec()].concat();
        let (short, long) = (frame(MOST_TAKEN / 3), frame(2 * MOST_TAKEN));
        let bytes = [&short[..], &short, &short, &long, &short].concat();
        let mut frames = Frames { bytes: bytes.clone(), taken: 0 };
        let taken = all(&mut frames);
        assert_eq!(taken.concat(), bytes);
        assert_eq!(
            taken.iter().map(Vec::len).collect::<Vec<_>>(),
            [3 * short.len(), long.len(), short.len()]
        );
        frames.bytes = short.clone();
        assert_eq!(all(&mut frames), [short]);
    }
}
