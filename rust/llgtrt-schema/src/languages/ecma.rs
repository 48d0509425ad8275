//! The syntax of regular expressions in JSON Schema: ECMA-262, as real schemas write it.
//!
//! Pure; recursion is bounded by [`MAX_NEST`].

use super::chars::Chars;

/// Groups inside groups.
const MAX_NEST: usize = 60;

/// Largest repetition count: automata unroll them lazily, but not without end.
const MAX_REPEAT: u32 = 100_000;

/// A syntax tree. Groups leave no trace: back-references are not supported.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Ast {
    Empty,
    Class(Chars),
    Concat(Vec<Ast>),
    Alt(Vec<Ast>),
    Repeat(Box<Ast>, u32, Option<u32>),
    /// `^`
    Start,
    /// `$`
    End,
    /// `\b`, or `\B` if negated.
    Boundary {
        negated: bool,
    },
    /// `(?=x)`, or `(?!x)` if negated.
    Look {
        negated: bool,
        inner: Box<Ast>,
    },
}

impl Ast {
    /// Whether `^`, `$`, a word boundary or look-ahead occurs inside.
    pub(crate) fn asserts(&self) -> bool {
        match self {
            Ast::Start | Ast::End | Ast::Boundary { .. } | Ast::Look { .. } => true,
            Ast::Concat(list) | Ast::Alt(list) => list.iter().any(Ast::asserts),
            Ast::Repeat(inner, _, _) => inner.asserts(),
            Ast::Empty | Ast::Class(_) => false,
        }
    }

    /// Whether only an automaton can tell what matches: llguidance takes neither look-ahead nor word
    /// boundaries.
    pub(crate) fn looks_around(&self) -> bool {
        matches!(self, Ast::Look { .. }) || self.has_boundary() || self.children().any(Ast::looks_around)
    }

    pub(crate) fn has_boundary(&self) -> bool {
        matches!(self, Ast::Boundary { .. }) || self.children().any(Ast::has_boundary)
    }

    fn children(&self) -> impl Iterator<Item = &Ast> {
        match self {
            Ast::Concat(list) | Ast::Alt(list) => list.as_slice(),
            Ast::Repeat(inner, _, _) | Ast::Look { inner, .. } => std::slice::from_ref(&**inner),
            Ast::Empty | Ast::Class(_) | Ast::Start | Ast::End | Ast::Boundary { .. } => &[],
        }
        .iter()
    }
}

/// Why a pattern is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PatternError {
    /// It may be a fine pattern, but has no automaton here; otherwise it is not a pattern at all.
    pub(crate) is_unsupported: bool,
    pub(crate) message: String,
}

impl PatternError {
    pub(crate) fn unsupported(message: &str) -> Self {
        Self { is_unsupported: true, message: message.to_owned() }
    }
}

/// Parses a pattern, or says what is wrong with it or not supported.
pub(crate) fn parse(pattern: &str) -> Result<Ast, PatternError> {
    let chars = pattern.chars().collect();
    let mut parser = Parser { chars, at: 0, nest: 0, flags: Flags::default(), is_unsupported: false };
    let parsed = parser.pattern();
    parsed.map_err(|message| PatternError { is_unsupported: parser.is_unsupported, message })
}

/// White space of ECMA-262.
fn space() -> Chars {
    Chars::new(
        [0x20, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF]
            .map(|c| (c, c))
            .into_iter()
            .chain([(9, 13), (0x2000, 0x200A)]),
    )
}

pub(super) fn word() -> Chars {
    Chars::new([(48, 57), (65, 90), (95, 95), (97, 122)])
}

/// ECMA-262 excludes U+2028 and U+2029 as well. Most validators do not, and to exclude them makes
/// masks several times slower.
fn dot() -> Chars {
    Chars::new([(10, 10), (13, 13)]).negate()
}

/// What `(?is)` switches on. No part of ECMA-262 before 2025, but of Python, Rust, Go and .NET, whose
/// users write schemas.
#[derive(Clone, Copy, Default)]
struct Flags {
    ignore_case: bool,
    dot_all: bool,
}

struct Parser {
    chars: Vec<char>,
    at: usize,
    nest: usize,
    flags: Flags,
    /// The error is about something that patterns may have, but not here.
    is_unsupported: bool,
}

/// What a character class lists.
enum Item {
    /// May start or end a range.
    Char(u32),
    Set(Chars),
}

impl Parser {
    fn pattern(&mut self) -> Result<Ast, String> {
        let ast = self.alternation()?;
        if self.at < self.chars.len() {
            return Err(format!("unopened group: `)` at character {}", self.at));
        }
        Ok(ast)
    }

    fn unsupported<T>(&mut self, what: &str) -> Result<T, String> {
        self.is_unsupported = true;
        Err(format!("{what} are not supported"))
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn eat(&mut self, text: &str) -> bool {
        let matches = text.chars().enumerate().all(|(i, c)| self.chars.get(self.at + i) == Some(&c));
        if matches {
            self.at += text.chars().count();
        }
        matches
    }

    fn alternation(&mut self) -> Result<Ast, String> {
        let mut options = vec![self.sequence()?];
        while self.eat("|") {
            options.push(self.sequence()?);
        }
        Ok(if options.len() == 1 { options.swap_remove(0) } else { Ast::Alt(options) })
    }

    fn sequence(&mut self) -> Result<Ast, String> {
        let mut items = Vec::new();
        while let Some(c) = self.peek() {
            if c == '|' || c == ')' {
                break;
            }
            let item = self.atom()?;
            items.push(self.quantified(item)?);
        }
        Ok(match items.len() {
            0 => Ast::Empty,
            1 => items.swap_remove(0),
            _ => Ast::Concat(items),
        })
    }

    fn atom(&mut self) -> Result<Ast, String> {
        let Some(c) = self.peek() else { return Ok(Ast::Empty) };
        self.at += 1;
        match c {
            '^' => Ok(Ast::Start),
            '$' => Ok(Ast::End),
            '.' => Ok(Ast::Class(if self.flags.dot_all { Chars::any() } else { dot() })),
            '(' => self.group(),
            '[' => self.class(),
            '\\' => self.escape(),
            // Two braces are a template's placeholder that was not filled in.
            '{' if self.peek() == Some('{') => Err(format!("nothing to repeat at character {}", self.at - 1)),
            '*' | '+' | '?' => Err(format!("nothing to repeat at character {}", self.at - 1)),
            c => Ok(Ast::Class(self.literal(c))),
        }
    }

    fn literal(&self, c: char) -> Chars {
        self.range(c as u32, c as u32)
    }

    /// The characters from one to another, with those that differ only in case where case is ignored.
    fn range(&self, from: u32, to: u32) -> Chars {
        let set = Chars::new([(from, to)]);
        if self.flags.ignore_case { set.fold_case() } else { set }
    }

    fn item(&self, item: Item) -> Chars {
        match item {
            Item::Char(c) => self.range(c, c),
            Item::Set(set) => set,
        }
    }

    fn group(&mut self) -> Result<Ast, String> {
        self.nest += 1;
        if self.nest > MAX_NEST {
            return Err(format!("groups are nested too deeply; the limit is {MAX_NEST}"));
        }
        let outer = self.flags;
        let look = if self.eat("?=") {
            Some(false)
        } else if self.eat("?!") {
            Some(true)
        } else {
            if self.eat("?<=") || self.eat("?<!") {
                return self.unsupported("look-behind assertions");
            }
            if self.eat("?:") {
            } else if self.eat("?<") || self.eat("?P<") {
                while self.peek().is_some_and(|c| c != '>') {
                    self.at += 1;
                }
                self.at += 1;
            } else if self.eat("?") && self.switches()? {
                // They hold until the group around them ends.
                self.nest -= 1;
                return Ok(Ast::Empty);
            }
            None
        };
        let inner = self.alternation()?;
        if !self.eat(")") {
            return Err("unclosed group".to_owned());
        }
        self.flags = outer;
        self.nest -= 1;
        Ok(match look {
            Some(negated) => Ast::Look { negated, inner: Box::new(inner) },
            None => inner,
        })
    }

    /// Flags behind `(?`, such as `i)` or `i-s:`. Whether the group ends with them.
    fn switches(&mut self) -> Result<bool, String> {
        let from = self.at;
        let mut on = true;
        while let Some(c) = self.peek() {
            self.at += 1;
            match c {
                'i' => self.flags.ignore_case = on,
                's' => self.flags.dot_all = on,
                // ECMA-262 has the others in mind anyway: Unicode, and the first match is enough.
                'u' | 'g' => {}
                '-' if on => on = false,
                ':' | ')' if self.at > from + 1 => return Ok(c == ')'),
                _ => break,
            }
        }
        Err(format!("unknown kind of group at character {from}"))
    }

    fn quantified(&mut self, item: Ast) -> Result<Ast, String> {
        let bounds = match self.peek() {
            Some('*') => (0, None, 1),
            Some('+') => (1, None, 1),
            Some('?') => (0, Some(1), 1),
            Some('{') => match self.counts()? {
                Some(bounds) => bounds,
                None => return Ok(item),
            },
            _ => return Ok(item),
        };
        let (min, max, length) = bounds;
        self.at += length;
        // Lazy or greedy: the same strings match.
        self.eat("?");
        if max.is_some_and(|max| max < min) || min.max(max.unwrap_or(0)) > MAX_REPEAT {
            return Err(format!("bad repetition counts at character {}", self.at));
        }
        Ok(Ast::Repeat(Box::new(item), min, max))
    }

    /// `{m}`, `{m,}`, `{m,n}`; any other brace is a literal.
    fn counts(&self) -> Result<Option<(u32, Option<u32>, usize)>, String> {
        let Some(end) = self.chars[self.at..].iter().position(|&c| c == '}') else { return Ok(None) };
        let text: String = self.chars[self.at + 1..self.at + end].iter().collect();
        let number = |text: &str| -> Result<Option<u32>, String> {
            if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
                return Ok(None);
            }
            text.parse().map(Some).map_err(|_| format!("repetition count {text} is too large"))
        };
        let found = match text.split_once(',') {
            None => number(&text)?.map(|n| (n, Some(n))),
            Some((min, "")) => number(min)?.map(|n| (n, None)),
            Some((min, max)) => match (number(min)?, number(max)?) {
                (Some(min), Some(max)) => Some((min, Some(max))),
                _ => None,
            },
        };
        Ok(found.map(|(min, max)| (min, max, end + 1)))
    }

    fn escape(&mut self) -> Result<Ast, String> {
        match self.peek() {
            Some(c @ ('b' | 'B')) => {
                self.at += 1;
                Ok(Ast::Boundary { negated: c == 'B' })
            }
            Some('A') => {
                self.at += 1;
                Ok(Ast::Start)
            }
            Some('z' | 'Z') => {
                self.at += 1;
                Ok(Ast::End)
            }
            Some('1'..='9' | 'k') => self.unsupported("back-references"),
            _ => {
                let item = self.class_escape()?;
                Ok(Ast::Class(self.item(item)))
            }
        }
    }

    /// What follows a backslash, as a set of characters.
    fn class_escape(&mut self) -> Result<Item, String> {
        let Some(c) = self.peek() else { return Err("the pattern ends in a backslash".to_owned()) };
        self.at += 1;
        Ok(match c {
            'd' => Item::Set(Chars::new([(48, 57)])),
            'D' => Item::Set(Chars::new([(48, 57)]).negate()),
            'w' => Item::Set(word()),
            'W' => Item::Set(word().negate()),
            's' => Item::Set(space()),
            'S' => Item::Set(space().negate()),
            'n' => Item::Char(0xA),
            'r' => Item::Char(0xD),
            't' => Item::Char(0x9),
            'f' => Item::Char(0xC),
            'v' => Item::Char(0xB),
            '0' => Item::Char(0),
            // Not ECMA-262, but what is written here must be readable here.
            'x' if self.peek() == Some('{') => self.unicode()?,
            'x' => self.hex(2)?,
            'u' => self.unicode()?,
            'c' => {
                let Some(letter) = self.peek().filter(char::is_ascii_alphabetic) else {
                    return Err("`\\c` needs a letter".to_owned());
                };
                self.at += 1;
                Item::Char(letter as u32 % 32)
            }
            'p' | 'P' => Item::Set(self.property(c)?),
            c if c.is_ascii_alphabetic() => return Err(format!("unknown escape `\\{c}`")),
            c => Item::Char(c as u32),
        })
    }

    fn hex(&mut self, digits: usize) -> Result<Item, String> {
        let text: String = self.chars[self.at..].iter().take(digits).collect();
        let code = u32::from_str_radix(&text, 16).ok().filter(|_| text.chars().count() == digits);
        let Some(code) = code else { return Err(format!("bad hexadecimal escape `{text}`")) };
        self.at += digits;
        Ok(Item::Char(code))
    }

    fn unicode(&mut self) -> Result<Item, String> {
        if self.peek() == Some('{') {
            let end = self.chars[self.at..].iter().position(|&c| c == '}').ok_or("unclosed `\\u{`")?;
            let text: String = self.chars[self.at + 1..self.at + end].iter().collect();
            let code = u32::from_str_radix(&text, 16).map_err(|_| format!("bad code point `{text}`"))?;
            self.at += end + 1;
            return Ok(Item::Char(code));
        }
        let text: String = self.chars[self.at..].iter().take(4).collect();
        let high = u32::from_str_radix(&text, 16).ok().filter(|_| text.len() == 4);
        let Some(high) = high else { return Err(format!("bad escape `\\u{text}`")) };
        self.at += 4;
        if (0xD800..0xDC00).contains(&high) && self.peek() == Some('\\') {
            let text: String = self.chars[self.at..].iter().skip(2).take(4).collect();
            if let Some(low) = u32::from_str_radix(&text, 16).ok().filter(|c| (0xDC00..0xE000).contains(c)) {
                self.at += 6;
                let code = 0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00);
                return Ok(Item::Char(code));
            }
        }
        Ok(Item::Char(high))
    }

    fn property(&mut self, kind: char) -> Result<Chars, String> {
        let end = if self.peek() == Some('{') {
            self.chars[self.at..].iter().position(|&c| c == '}').ok_or("unclosed `\\p{`")? + 1
        } else {
            1
        };
        let text: String = self.chars[self.at..].iter().take(end).collect();
        self.at += end;
        let pattern = format!("\\{kind}{text}");
        let hir = regex_syntax::parse(&pattern).map_err(|_| format!("unknown property `{pattern}`"))?;
        match hir.kind() {
            regex_syntax::hir::HirKind::Class(regex_syntax::hir::Class::Unicode(class)) => {
                Ok(Chars::new(class.ranges().iter().map(|r| (r.start() as u32, r.end() as u32))))
            }
            _ => Err(format!("unknown property `{pattern}`")),
        }
    }

    fn class(&mut self) -> Result<Ast, String> {
        let negated = self.eat("^");
        let mut set = Chars::new([]);
        loop {
            let Some(c) = self.peek() else { return Err("unclosed character class".to_owned()) };
            if c == ']' {
                self.at += 1;
                break;
            }
            let from = self.class_item()?;
            let range = self.peek() == Some('-') && self.chars.get(self.at + 1).is_some_and(|&c| c != ']');
            if !range {
                set = set.union(&self.item(from));
                continue;
            }
            self.at += 1;
            let to = self.class_item()?;
            match (from, to) {
                (Item::Char(from), Item::Char(to)) if from <= to => set = set.union(&self.range(from, to)),
                (Item::Char(_), Item::Char(_)) => {
                    return Err("a range in a character class is backwards".to_owned());
                }
                // `[\w-.]`: the hyphen is a literal.
                (from, to) => {
                    set = set.union(&self.item(from)).union(&self.item(to)).union(&Chars::one('-'));
                }
            }
        }
        Ok(Ast::Class(if negated { set.negate() } else { set }))
    }

    fn class_item(&mut self) -> Result<Item, String> {
        let Some(c) = self.peek() else { return Err("unclosed character class".to_owned()) };
        self.at += 1;
        if c != '\\' {
            return Ok(Item::Char(c as u32));
        }
        match self.peek() {
            Some('b') => {
                self.at += 1;
                Ok(Item::Char(8))
            }
            Some('1'..='9') => self.unsupported("octal escapes"),
            _ => self.class_escape(),
        }
    }
}
