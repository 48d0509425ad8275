//! Cuts runs of text that are too long for llama.cpp's tokenizer. Pure functions.
//!
//! For most vocabularies llama.cpp splits text into words with `std::regex`, which recurses once per
//! character of a match: 64 000 letters without a space overflow a stack of 8 MB. A text of ordinary words is
//! never cut, so its tokens are exactly llama.cpp's.

/// Bytes of one run (of whitespace, or of anything else) that are tokenized together.
pub(crate) const MAX_RUN_BYTES: usize = 16 << 10;

/// Pieces of `text` whose runs are all at most [`MAX_RUN_BYTES`] long. A cut never falls inside one of
/// `whole`, the texts that stand for control tokens.
pub(crate) fn pieces<'a>(text: &'a str, whole: &[String]) -> Vec<&'a str> {
    let mut pieces = Vec::new();
    let mut piece_start = 0;
    let mut run_start = 0;
    let mut in_space = None;
    for (index, character) in text.char_indices() {
        let space = character.is_whitespace();
        if in_space != Some(space) {
            in_space = Some(space);
            run_start = index;
        } else if index + character.len_utf8() - run_start > MAX_RUN_BYTES {
            let cut = before_whole(text, run_start, index, whole);
            pieces.push(&text[piece_start..cut]);
            piece_start = cut;
            run_start = cut;
        }
    }
    pieces.push(&text[piece_start..]);
    pieces
}

/// The last place at or before `cut`, and after `start`, that is not inside a text of `whole`.
fn before_whole(text: &str, start: usize, cut: usize, whole: &[String]) -> usize {
    let inside = |at: usize| {
        whole.iter().filter(|special| !special.is_empty()).find_map(|special| {
            let earliest = at.saturating_sub(special.len() - 1).max(start);
            (earliest..at).rev().find(|&from| text.as_bytes()[from..].starts_with(special.as_bytes()))
        })
    };
    let mut at = cut;
    // Overlapping texts can push the cut back more than once; it stays after the start of the run.
    while let Some(earlier) = inside(at) {
        if earlier <= start {
            return cut;
        }
        at = earlier;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_text_is_one_piece() {
        let text = "Ein Satz, mehrere Wörter.\n".repeat(10_000);
        assert_eq!(pieces(&text, &[]), [text.as_str()]);
        assert_eq!(pieces("", &[]), [""]);
    }

    #[test]
    fn pieces_add_up_and_have_short_runs() {
        for unit in ["a", " ", "😀", "é ", "\n"] {
            let text = unit.repeat(100_000);
            let cut = pieces(&text, &[]);
            assert_eq!(cut.concat(), text);
            for piece in cut {
                let longest = piece.split(char::is_whitespace).map(str::len).max().unwrap();
                assert!(longest <= MAX_RUN_BYTES);
                assert!(piece.len() <= MAX_RUN_BYTES || unit == "é ");
            }
        }
    }

    #[test]
    fn control_tokens_stay_whole() {
        let special = "<|im_end|>".to_owned();
        for offset in 0..12 {
            let text = format!("{}{special}tail", "x".repeat(MAX_RUN_BYTES - offset));
            let cut = pieces(&text, std::slice::from_ref(&special));
            assert_eq!(cut.concat(), text);
            assert_eq!(cut.iter().filter(|piece| piece.contains(&special)).count(), 1, "{offset}");
        }
        let only = special.repeat(5_000);
        assert!(pieces(&only, std::slice::from_ref(&special)).iter().all(|p| p.len() % special.len() == 0));
    }
}
