//! The keys that no `properties` names: sets of them with the schema of their values, as disjoint
//! patterns and one set of all others.

use std::rc::Rc;

use crate::error::{SchemaError, refuse};
use crate::formula::{FALSE, FormulaId, TRUE, Type};
use crate::languages::{LanguageId, MAX_PATTERN};
use crate::normalizer::Normalizer;
use crate::shape::object::{Keys, Object};
use crate::tree::Key;
use crate::write::rows::Class;

/// Languages that keys are told apart by.
const MAX_ATOMS: usize = 6;

/// Sets of keys and the schemas of their values.
#[derive(Debug, Clone)]
pub(crate) struct Regions {
    pub(crate) patterns: Vec<(String, FormulaId)>,
    pub(crate) others: FormulaId,
    /// Whether every key that may occur is in the set asked for, with values that satisfy it.
    pub(crate) all_inside: bool,
    /// Whether some key that may occur is.
    pub(crate) some_inside: bool,
}

impl Regions {
    pub(crate) fn is_open(&self) -> bool {
        self.others != FALSE || self.patterns.iter().any(|(_, f)| *f != FALSE)
    }
}

struct Atom {
    language: LanguageId,
    text: Option<Rc<str>>,
}

fn position(atoms: &mut Vec<Atom>, language: LanguageId, text: Option<&Rc<str>>) -> usize {
    if let Some(at) = atoms.iter().position(|atom| atom.language == language) {
        if atoms[at].text.is_none() {
            atoms[at].text = text.cloned();
        }
        return at;
    }
    atoms.push(Atom { language, text: text.cloned() });
    atoms.len() - 1
}

/// What the keys are told apart by, and the constraints in terms of that.
struct Split {
    atoms: Vec<Atom>,
    keys: Vec<(usize, FormulaId)>,
    rest: Vec<(Vec<usize>, FormulaId)>,
    names: Vec<usize>,
}

fn inside(set: &(Vec<usize>, bool), bits: u32) -> bool {
    set.0.iter().any(|&i| bits >> i & 1 == 1) == set.1
}

/// What the values have to be where these atoms hold.
fn parts_at(
    keys: &[(usize, FormulaId)],
    rest: &[(Vec<usize>, FormulaId)],
    names: &[usize],
    bits: u32,
) -> Vec<FormulaId> {
    let mut parts = Vec::new();
    parts.extend(keys.iter().filter(|(i, _)| bits >> i & 1 == 1).map(|(_, f)| *f));
    parts.extend(rest.iter().filter(|(list, _)| list.iter().all(|&i| bits >> i & 1 == 0)).map(|(_, f)| *f));
    if names.iter().any(|&i| bits >> i & 1 == 0) {
        parts.push(FALSE);
    }
    parts
}

fn check_atoms(atoms: &[Atom], object: &Object) -> Result<(), SchemaError> {
    if atoms.len() <= MAX_ATOMS {
        return Ok(());
    }
    let what = "too many patterns on the keys of one object";
    Err(refuse(object.path.as_ref(), "patternProperties", what, "use fewer patterns"))
}

fn too_long_to_separate(object: &Object) -> SchemaError {
    refuse(
        object.path.as_ref(),
        "patternProperties",
        "keys of overlapping patterns cannot be told apart by a short pattern",
        "use patterns of which at most one matches a key",
    )
}

impl Normalizer<'_> {
    /// Splits the unnamed keys. With `only`, keys outside of that set are forbidden and values inside
    /// satisfy it as well; with `about`, the answer tells how the set relates to what may occur.
    #[allow(clippy::too_many_lines, reason = "one pass over all sign combinations")]
    pub(crate) fn regions(
        &mut self,
        object: &Object,
        closed: bool,
        only: &[(Keys, FormulaId)],
        about: Option<&(Keys, FormulaId)>,
    ) -> Result<Regions, SchemaError> {
        if closed {
            return Ok(Regions { patterns: Vec::new(), others: FALSE, all_inside: true, some_inside: false });
        }
        let mut split = self.split(object)?;
        let mut limits = Vec::new();
        for (keys, f) in only {
            limits.push((self.set_of(&mut split.atoms, keys)?, *f));
        }
        let about = match about {
            Some((keys, f)) => Some((self.set_of(&mut split.atoms, keys)?, *f)),
            None => None,
        };
        let Split { atoms, keys, rest, names } = split;
        check_atoms(&atoms, object)?;
        let unnamed = self.unnamed_keys(object);
        if keys.len() > 1 {
            self.rule_path("overlapping-patterns", object.path.as_ref());
        }
        let mut groups: Vec<(FormulaId, Vec<u32>)> = Vec::new();
        let (mut all_inside, mut some_inside) = (true, false);
        let mut others = FALSE;
        for bits in 0..1_u32 << atoms.len() {
            let used_up = self.region_is_empty(&atoms, bits, unnamed);
            if bits != 0 && used_up {
                continue;
            }
            let mut parts = parts_at(&keys, &rest, &names, bits);
            for (set, f) in &limits {
                parts.push(if inside(set, bits) { *f } else { FALSE });
            }
            let mut f = self.forms.and(parts);
            if used_up || (f != FALSE && self.is_empty(f)?) {
                f = FALSE;
            }
            if let (Some((set, wanted)), true) = (&about, f != FALSE) {
                if inside(set, bits) {
                    let negated = self.forms.not(*wanted);
                    let outside = self.forms.and([f, negated]);
                    let both = self.forms.and([f, *wanted]);
                    all_inside &= self.is_empty(outside)?;
                    some_inside |= !self.is_empty(both)?;
                } else {
                    all_inside = false;
                }
            }
            if bits == 0 {
                others = f;
            }
            match groups.iter_mut().find(|(known, _)| *known == f) {
                Some((_, list)) => list.push(bits),
                None => groups.push((f, vec![bits])),
            }
        }
        let mut patterns = Vec::new();
        for (f, list) in groups.iter().filter(|(f, _)| *f != others) {
            let named = self.names_excluded_from_patterns(object, &atoms, list, *f)?;
            let text = self
                .region_text(&atoms, list, &groups, &named)
                .ok_or_else(|| too_long_to_separate(object))?;
            if !object.named.is_empty() {
                self.note_keys(&text, &atoms, list, &named)?;
            }
            patterns.push((text, *f));
        }
        Ok(Regions { patterns, others, all_inside, some_inside })
    }

    fn split(&mut self, object: &Object) -> Result<Split, SchemaError> {
        let mut atoms: Vec<Atom> = Vec::new();
        let keys =
            object.keys.iter().map(|(x, text, f)| (position(&mut atoms, *x, text.as_ref()), *f)).collect();
        let rest = object
            .rest
            .iter()
            .map(|(others, f)| {
                (others.languages.iter().map(|&x| position(&mut atoms, x, None)).collect(), *f)
            })
            .collect();
        let mut names = Vec::new();
        for &f in &object.names {
            let (x, text) = self.key_language(f)?;
            names.push(position(&mut atoms, x, text.as_ref()));
        }
        Ok(Split { atoms, keys, rest, names })
    }

    /// The set as atoms: inside if one of them holds, or if none does.
    fn set_of(&mut self, atoms: &mut Vec<Atom>, keys: &Keys) -> Result<(Vec<usize>, bool), SchemaError> {
        Ok(match keys {
            Keys::Others(others) => {
                (others.languages.iter().map(|&x| position(atoms, x, None)).collect(), false)
            }
            Keys::Language(x, text) => (vec![position(atoms, *x, text.as_ref())], true),
            Keys::NotNamed(f) => {
                let (x, text) = self.key_language(*f)?;
                (vec![position(atoms, x, text.as_ref())], false)
            }
        })
    }

    /// The unnamed keys that may occur, told apart by what their values have to be and by the obligations
    /// that they can fulfil.
    pub(crate) fn classes(
        &mut self,
        object: &Object,
        closed: bool,
        obligations: &[(Keys, FormulaId)],
    ) -> Result<Vec<Class>, SchemaError> {
        if closed {
            return Ok(Vec::new());
        }
        let mut split = self.split(object)?;
        let mut sets = Vec::new();
        for (keys, _) in obligations {
            sets.push(self.set_of(&mut split.atoms, keys)?);
        }
        let Split { atoms, keys, rest, names } = split;
        check_atoms(&atoms, object)?;
        let unnamed = self.unnamed_keys(object);
        let mut groups: Vec<(FormulaId, u32, Vec<LanguageId>)> = Vec::new();
        for bits in 0..1_u32 << atoms.len() {
            if self.region_is_empty(&atoms, bits, unnamed) {
                continue;
            }
            let parts = parts_at(&keys, &rest, &names, bits);
            let f = self.forms.and(parts);
            if f == FALSE || self.is_empty(f)? {
                continue;
            }
            let wanted = sets.iter().enumerate().filter(|(_, set)| inside(set, bits));
            let wanted = wanted.fold(0, |all, (j, _)| all | 1 << j);
            let language = self.region(&atoms, bits);
            match groups.iter_mut().find(|(g, known, _)| (*g, *known) == (f, wanted)) {
                Some(group) => group.2.push(language),
                None => groups.push((f, wanted, vec![language])),
            }
        }
        let named: Vec<Rc<str>> = object.named.keys().cloned().collect();
        let mut classes = Vec::new();
        for (f, inside, languages) in groups {
            let key = if atoms.is_empty() {
                Key::Except(named.clone())
            } else {
                let union = self.langs.or(languages);
                let union = self.langs.and([union, unnamed]);
                let text =
                    self.langs.print(union, MAX_PATTERN).ok_or_else(|| too_long_to_separate(object))?;
                Key::Pattern(text)
            };
            classes.push(Class { key, f, inside });
        }
        Ok(classes)
    }

    fn region(&mut self, atoms: &[Atom], bits: u32) -> LanguageId {
        let parts: Vec<LanguageId> = atoms
            .iter()
            .enumerate()
            .map(|(i, atom)| if bits >> i & 1 == 1 { atom.language } else { self.langs.not(atom.language) })
            .collect();
        self.langs.and(parts)
    }

    /// All keys that have no entry of their own.
    fn unnamed_keys(&mut self, object: &Object) -> LanguageId {
        let words: Vec<LanguageId> = object.named.keys().map(|name| self.langs.literal(name)).collect();
        let words = self.langs.or(words);
        self.langs.not(words)
    }

    /// Whether no unnamed key is in the region. Without this check the grammar would wait for a key that
    /// nobody can write.
    fn region_is_empty(&mut self, atoms: &[Atom], bits: u32, unnamed: LanguageId) -> bool {
        if atoms.is_empty() {
            return false;
        }
        let region = self.region(atoms, bits);
        let language = self.langs.and([region, unnamed]);
        self.langs.is_empty(language) == Some(true)
    }

    /// Named keys inside of the regions whose values need not satisfy the formula. A pattern applies
    /// to named keys as well, so it must not match these.
    fn names_excluded_from_patterns(
        &mut self,
        object: &Object,
        atoms: &[Atom],
        list: &[u32],
        f: FormulaId,
    ) -> Result<Vec<Rc<str>>, SchemaError> {
        if f == TRUE || object.named.is_empty() {
            return Ok(Vec::new());
        }
        let parts: Vec<LanguageId> = list.iter().map(|&bits| self.region(atoms, bits)).collect();
        let union = self.langs.or(parts);
        let mut loose = Vec::new();
        for key in object.named.keys() {
            if self.langs.matches(union, key) {
                let value = self.value_at(object, key)?;
                if value != FALSE && self.forms.and([value, f]) != value {
                    loose.push(Rc::clone(key));
                }
            }
        }
        Ok(loose)
    }

    /// Notes the language of a pattern of keys.
    fn note_keys(
        &mut self,
        text: &str,
        atoms: &[Atom],
        list: &[u32],
        names: &[Rc<str>],
    ) -> Result<(), SchemaError> {
        if !self.emitter.keys.contains_key(text) {
            self.hold(TRUE, 80 + text.len())?;
            let language = self.union_without(atoms, list, names);
            self.emitter.keys.insert(text.to_owned(), language);
        }
        Ok(())
    }

    /// The union of the regions without the names.
    fn union_without(&mut self, atoms: &[Atom], list: &[u32], names: &[Rc<str>]) -> LanguageId {
        let words: Vec<LanguageId> = names.iter().map(|name| self.langs.literal(name)).collect();
        let words = self.langs.or(words);
        let parts: Vec<LanguageId> = list.iter().map(|&bits| self.region(atoms, bits)).collect();
        let union = self.langs.or(parts);
        let others = self.langs.not(words);
        self.langs.and([union, others])
    }

    /// A pattern for the union of the regions without the names.
    fn region_text(
        &mut self,
        atoms: &[Atom],
        list: &[u32],
        groups: &[(FormulaId, Vec<u32>)],
        names: &[Rc<str>],
    ) -> Option<String> {
        if !names.is_empty() {
            let union = self.union_without(atoms, list, names);
            return self.langs.print(union, MAX_PATTERN);
        }
        for (i, atom) in atoms.iter().enumerate() {
            let Some(text) = &atom.text else { continue };
            // All regions inside of this atom, and no other.
            let exact = groups
                .iter()
                .flat_map(|(_, bits)| bits)
                .all(|bits| (bits >> i & 1 == 1) == list.contains(bits));
            if exact && !text.starts_with(crate::languages::formats::MARK) {
                return Some(text.to_string());
            }
        }
        let parts: Vec<LanguageId> = list.iter().map(|&bits| self.region(atoms, bits)).collect();
        let union = self.langs.or(parts);
        self.langs.print(union, MAX_PATTERN)
    }

    /// The strings that satisfy a formula, as a language and, if possible, a pattern.
    pub(crate) fn key_language(
        &mut self,
        f: FormulaId,
    ) -> Result<(LanguageId, Option<Rc<str>>), SchemaError> {
        if f == TRUE {
            return Ok((crate::languages::ALL, None));
        }
        let shapes = self.shapes(f, false, Type::String)?;
        let mut parts = Vec::new();
        let mut text = None;
        for shape in shapes.iter() {
            if let crate::shape::Shape::Text(string) = shape {
                parts.push(string.language(&mut self.langs, u64::MAX));
                if shapes.len() == 1 {
                    text = string.pattern(&mut self.langs).map(Into::into);
                }
            }
        }
        let union = self.langs.or(parts);
        Ok((union, text))
    }

    /// The strings that satisfy a formula, if they are listed.
    pub(crate) fn key_words(&mut self, f: FormulaId) -> Result<Option<Vec<Rc<str>>>, SchemaError> {
        let shapes = self.shapes(f, false, Type::String)?;
        let mut words = Vec::new();
        for shape in shapes.iter() {
            match shape {
                crate::shape::Shape::Text(text) => match text.words() {
                    Some(set) => words.extend(set.iter().cloned()),
                    None => return Ok(None),
                },
                _ => return Ok(None),
            }
        }
        Ok(Some(words))
    }
}
