//! Patterns that are searched for: what a repetition may add at an end that no anchor holds makes no difference.

use super::ecma::Ast;

/// The same pattern where bounded repetitions at its open ends are as short as they may be; `None` if there are
/// none. `[a-z]{1,255}` finds a match wherever `[a-z]` does, in one state instead of 255.
pub(super) fn shortened(ast: &Ast) -> Option<Ast> {
    let after = End::Last.shorten(ast);
    let before = End::First.shorten(after.as_ref().unwrap_or(ast));
    before.or(after)
}

#[derive(Clone, Copy)]
enum End {
    First,
    Last,
}

impl End {
    fn shorten(self, ast: &Ast) -> Option<Ast> {
        match ast {
            Ast::Repeat(inner, min, Some(max)) if max > min && !inner.asserts() => Some(match min {
                0 => Ast::Empty,
                1 => self.shorten(inner).unwrap_or_else(|| (**inner).clone()),
                min => Ast::Repeat(inner.clone(), *min, Some(*min)),
            }),
            Ast::Alt(list) => {
                let short: Vec<Option<Ast>> = list.iter().map(|x| self.shorten(x)).collect();
                let is_changed = short.iter().any(Option::is_some);
                let list = short.into_iter().zip(list).map(|(short, x)| short.unwrap_or_else(|| x.clone()));
                is_changed.then(|| Ast::Alt(list.collect()))
            }
            Ast::Concat(list) => self.shorten_list(list),
            _ => None,
        }
    }

    fn shorten_list(self, list: &[Ast]) -> Option<Ast> {
        let mut left = list;
        // What is behind a part that is gone is at the end.
        let end = loop {
            let Some((part, rest)) = self.split(left) else { break None };
            match self.shorten(part) {
                Some(Ast::Empty) => left = rest,
                short => break short,
            }
        };
        if end.is_none() && left.len() == list.len() {
            return None;
        }
        let mut short = left.to_vec();
        if let Some(end) = end
            && let Some(place) = self.place(&mut short)
        {
            *place = end;
        }
        Some(Ast::Concat(short))
    }

    fn split(self, list: &[Ast]) -> Option<(&Ast, &[Ast])> {
        match self {
            End::First => list.split_first(),
            End::Last => list.split_last(),
        }
    }

    fn place(self, list: &mut [Ast]) -> Option<&mut Ast> {
        match self {
            End::First => list.first_mut(),
            End::Last => list.last_mut(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ecma, print};
    use super::shortened;

    #[test]
    fn open_ends_are_short() {
        for (pattern, short) in [
            ("[a-z]{1,255}", "[a-z]"),
            ("a{2,5}b{3,9}", "a{2,2}b{3,3}"),
            ("x{0,4}y{0,9}", ""),
            ("^a{1,4}", "^a"),
            ("a{1,4}$", "a$"),
            ("q(?:a{1,3}|bc{2,8})", "q(?:a|bc{2,2})"),
            ("(?:ab{1,3}){1,7}", "ab"),
        ] {
            let ast = ecma::parse(pattern).unwrap();
            assert_eq!(print::text(&shortened(&ast).unwrap()), short, "{pattern}");
        }
        for whole in ["^a{1,4}$", "a{3}", "a+b*", "(?:a$){1,3}", "^a{1,4}(?!b)", "\\bx", "^$"] {
            assert_eq!(shortened(&ecma::parse(whole).unwrap()), None, "{whole}");
        }
    }
}
