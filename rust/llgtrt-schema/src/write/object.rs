//! Writes objects as alternatives that llguidance can hold: keys in order, disjoint patterns, counts
//! only where no key is optional.

use std::rc::Rc;

use crate::error::{SchemaError, refuse};
use crate::formula::{FALSE, FormulaId, TRUE};
use crate::normalizer::{Normalizer, Segment};
use crate::path::SchemaPath;
use crate::shape::object::{Keys, Named, Object};
use crate::tree::{ObjectTree, Property, Tree};
use crate::write::regions::Regions;
use crate::write::rows::{Class, Members, NamedKey};

/// Optional keys whose presence is written out, by us or by llguidance, where a count or an unnamed key needs it.
const MAX_SPLIT: usize = 64;

const TOO_MANY: &str = "a count over many optional keys needs too many alternatives";

const TOO_MANY_HINT: &str = "require the keys, or list the combinations with `anyOf`";

const TWICE: &str = "two or more keys without names cannot be kept from being the same key";

const TWICE_HINT: &str = "list the keys in `properties`, or use a `minProperties` of 1";

/// An object ready to be written.
#[derive(Debug, Clone)]
struct PlainObject {
    named: Vec<NamedKey>,
    regions: Regions,
    /// Unnamed keys: at least, at most.
    unnamed: (u64, Option<u64>),
    /// Count keywords that llguidance holds by itself.
    native: (u64, Option<u64>),
    /// For an automaton, where one may be needed.
    composed: Option<Rc<Composed>>,
}

#[derive(Debug)]
struct Composed {
    classes: Vec<Class>,
    obligations: Vec<FormulaId>,
}

/// The optional keys of an object in which keys are counted.
struct OptionalKeys<'a> {
    /// Where they are counted.
    path: Option<&'a SchemaPath>,
    /// Which of the named keys they are.
    keys: Vec<usize>,
    /// Those that are there, of `keys`, one alternative each.
    choices: Vec<Vec<usize>>,
    /// So many keys that are not required: at least, at most.
    need: u64,
    limit: Option<u64>,
}

impl Normalizer<'_> {
    pub(crate) fn write_object(&mut self, object: &Object) -> Result<Vec<Tree>, SchemaError> {
        let mut object = object.clone();
        let path = object.path.clone();
        let closed = self.name_keys(&mut object)?;
        let mut plains = Vec::new();
        let mut open: Vec<(Object, Vec<(Keys, FormulaId)>)> = vec![(object, Vec::new())];
        while let Some((mut object, obligations)) = open.pop() {
            self.step(TRUE)?;
            let path = object.path.clone();
            match object.exists.pop() {
                Some(wanted) => self.split_exists(object, closed, wanted, &obligations, &mut open)?,
                None => self.flatten(&object, closed, &obligations, &mut plains)?,
            }
            let entries = open.iter().map(|(object, _)| object.len()).sum::<usize>()
                + plains.iter().map(|plain: &PlainObject| plain.named.len()).sum::<usize>();
            self.spend(TRUE, 1 + (open.len() + plains.len()) as u64)?;
            if open.len() + plains.len() > self.limits.max_alternatives || entries > 4 * self.limits.max_nodes
            {
                return Err(refuse(
                    path.as_ref(),
                    "not",
                    "too many ways in which a key can satisfy this",
                    "name the keys in `required`",
                ));
            }
        }
        let mut out = Vec::new();
        for plain in plains {
            if let Some(value) = self.write_plain_object(&plain, path.as_ref())? {
                if !out.contains(&value) {
                    out.push(value);
                }
            }
        }
        Ok(out)
    }

    /// Gives every key that some constraint tells apart an entry of its own. Returns whether no
    /// other key may occur.
    fn name_keys(&mut self, object: &mut Object) -> Result<bool, SchemaError> {
        let mut keys: Vec<Rc<str>> = object.required.iter().cloned().collect();
        for (others, _) in &object.rest {
            keys.extend(others.names.iter().cloned());
        }
        for (set, _) in &object.exists {
            if let Keys::Others(others) = set {
                keys.extend(others.names.iter().cloned());
            }
        }
        let mut closed = false;
        for f in object.names.clone() {
            if let Some(words) = self.key_words(f)? {
                closed = true;
                keys.extend(words);
            }
        }
        for (set, _) in &object.exists.clone() {
            if let Keys::NotNamed(f) = set {
                keys.extend(self.key_words(*f)?.into_iter().flatten());
            }
        }
        for key in keys {
            object.named.entry(key).or_insert(Named { f: TRUE, placed: false, complement: false });
        }
        Ok(closed)
    }

    /// Some key of a set has a certain value: a named one, or one without a name. The obligations are what
    /// unnamed keys have to be already.
    fn split_exists(
        &mut self,
        object: Object,
        closed: bool,
        wanted: (Keys, FormulaId),
        obligations: &[(Keys, FormulaId)],
        open: &mut Vec<(Object, Vec<(Keys, FormulaId)>)>,
    ) -> Result<(), SchemaError> {
        let (keys, f) = &wanted;
        let mut options = Vec::new();
        let names: Vec<Rc<str>> = object.named.keys().cloned().collect();
        for key in names {
            if !self.in_keys(keys, &key)? {
                continue;
            }
            let mut option = object.clone();
            option.required.insert(Rc::clone(&key));
            if let Some(named) = option.named.get_mut(&key) {
                named.f = self.forms.and([named.f, *f]);
            }
            if option.max.is_none_or(|max| option.required.len() as u64 <= max) {
                options.extend(self.prune_object(option)?.map(|option| (option, obligations.to_vec())));
                if options.len() * object.len() > 4 * self.limits.max_nodes {
                    return Err(self.too_large(*f));
                }
            }
        }
        let regions = self.regions(&object, closed, &[], Some(&wanted))?;
        if regions.some_inside && object.max.is_none_or(|max| (object.required.len() as u64) < max) {
            let single = object.max.is_some_and(|max| max == object.required.len() as u64 + 1);
            if !(regions.all_inside || single || self.compose) {
                self.residual(
                    object.path.as_ref(),
                    ("not", true),
                    "some key must have a value that others need not have",
                    "name the key in `required`",
                )?;
                open.push((object, obligations.to_vec()));
                return Ok(());
            }
            let mut option = object;
            for named in &mut option.named {
                if !option.required.contains(named.0) && single && !self.compose {
                    named.1.f = FALSE;
                }
            }
            // Kept as an obligation for the counts below.
            let mut obligations = obligations.to_vec();
            obligations.push(wanted);
            options.push((option, obligations));
        }
        open.extend(options.into_iter().rev());
        Ok(())
    }

    fn flatten(
        &mut self,
        object: &Object,
        closed: bool,
        obligations: &[(Keys, FormulaId)],
        out: &mut Vec<PlainObject>,
    ) -> Result<(), SchemaError> {
        // With obligations, at least one unnamed key is there; where values differ, it is the only one.
        let mut only = Vec::new();
        let mut composed = None;
        for obligation in obligations {
            if !self.regions(object, closed, &[], Some(obligation))?.all_inside {
                only.push(obligation.clone());
            }
        }
        if self.compose {
            match self.classes(object, closed, obligations) {
                Ok(classes) => {
                    let obligations =
                        if only.is_empty() { Vec::new() } else { obligations.iter().map(|w| w.1).collect() };
                    composed = Some(Rc::new(Composed { classes, obligations }));
                }
                Err(error) if !only.is_empty() => return Err(error),
                Err(_) => {}
            }
            only.clear();
        }
        let regions = self.regions(object, closed, &only, None)?;
        let mut named = Vec::new();
        let mut order: Vec<Rc<str>> =
            object.named.iter().filter(|(_, n)| n.placed).map(|(key, _)| Rc::clone(key)).collect();
        let mut others: Vec<Rc<str>> =
            object.named.iter().filter(|(_, n)| !n.placed).map(|(key, _)| Rc::clone(key)).collect();
        others.sort_by_key(|key| self.ranks.get(key).copied().unwrap_or(usize::MAX));
        order.extend(others);
        for key in order {
            let mut value = self.value_at(object, &key)?;
            if value != FALSE && self.is_empty(value)? {
                value = FALSE;
            }
            let required = object.required.contains(&key);
            if required && value == FALSE {
                return Ok(());
            }
            named.push(NamedKey { key, value, required });
        }
        let least = u64::from(!obligations.is_empty());
        let is_composed = composed.as_ref().is_some_and(|c| !c.obligations.is_empty());
        let plain = PlainObject { named, regions, unnamed: (least, None), native: (0, None), composed };
        if is_composed {
            return self.count_composed(object, plain, out);
        }
        self.count(object, plain, out)
    }

    /// The automaton counts by itself, except that it does not see that a key was written twice.
    fn count_composed(
        &mut self,
        object: &Object,
        mut plain: PlainObject,
        out: &mut Vec<PlainObject>,
    ) -> Result<(), SchemaError> {
        self.rule_path("composed", object.path.as_ref());
        plain.native = (object.min, object.max);
        if object.min > object.required.len() as u64 + 1 {
            self.residual(object.count_path.as_ref(), ("minProperties", false), TWICE, TWICE_HINT)?;
        }
        out.push(plain);
        Ok(())
    }

    /// Turns counts of keys into alternatives where llguidance does not hold them.
    fn count(
        &mut self,
        object: &Object,
        plain: PlainObject,
        out: &mut Vec<PlainObject>,
    ) -> Result<(), SchemaError> {
        let required = plain.named.iter().filter(|named| named.required).count() as u64;
        let optional: Vec<usize> = (0..plain.named.len()).filter(|&i| plain.named[i].is_optional()).collect();
        let open = plain.regions.is_open();
        if object.max.is_some_and(|max| max < required) {
            return Ok(());
        }
        let need = object.min.saturating_sub(required);
        let limit = object.max.map(|max| max - required);
        let n = optional.len() as u64;
        if !open && (need > n || plain.unnamed.0 > 0) {
            return Ok(());
        }
        let free = limit.is_none_or(|limit| limit >= n && !open);
        if need == 0 && plain.unnamed.0 == 0 && free {
            out.push(plain);
            return Ok(());
        }
        let path = object.count_path.as_ref().or(object.path.as_ref());
        self.rule_path("property-counts", path);
        if optional.is_empty() {
            let mut plain = plain;
            plain.unnamed = (need.max(plain.unnamed.0), limit);
            return self.counted(path, plain, out);
        }
        let few = optional.len() <= MAX_SPLIT;
        if !open && few && ((need == 1 && limit.is_none()) || (need <= 1 && limit == Some(1))) {
            let mut plain = plain;
            plain.native = (object.min, object.max);
            out.push(plain);
            return Ok(());
        }
        let is_minimum = limit.is_none() && plain.unnamed.0 == 0;
        let size = if is_minimum { need } else { limit.map_or(n, |limit| limit.min(n)) } as usize;
        let Some(choices) =
            few.then(|| subsets(optional.len(), size, self.limits.max_alternatives)).flatten()
        else {
            let keyword = if object.max.is_some() { "maxProperties" } else { "minProperties" };
            if plain.unnamed.0 > 0 {
                return Err(refuse(path, keyword, TOO_MANY, TOO_MANY_HINT));
            }
            self.residual(path, (keyword, false), TOO_MANY, TOO_MANY_HINT)?;
            out.push(plain);
            return Ok(());
        };
        let optional = OptionalKeys { path, keys: optional, choices, need, limit };
        if is_minimum { self.at_least(&plain, &optional, out) } else { self.between(&plain, &optional, out) }
    }

    /// At least so many keys: fewer named ones and enough unnamed ones, or these named ones and any.
    fn at_least(
        &mut self,
        plain: &PlainObject,
        optional: &OptionalKeys,
        out: &mut Vec<PlainObject>,
    ) -> Result<(), SchemaError> {
        for chosen in &optional.choices {
            let enough = chosen.len() as u64 == optional.need;
            let mut option = plain.clone();
            for (at, &i) in optional.keys.iter().enumerate() {
                if chosen.contains(&at) {
                    option.named[i].required = true;
                } else if !enough {
                    option.named[i].value = FALSE;
                }
            }
            if enough {
                out.push(option);
            } else if plain.regions.is_open() {
                option.unnamed = (optional.need - chosen.len() as u64, None);
                self.counted(optional.path, option, out)?;
            }
        }
        Ok(())
    }

    /// At most so many keys, or both: these named ones, and as many unnamed ones as are left.
    fn between(
        &mut self,
        plain: &PlainObject,
        optional: &OptionalKeys,
        out: &mut Vec<PlainObject>,
    ) -> Result<(), SchemaError> {
        let open = plain.regions.is_open();
        let n = optional.keys.len() as u64;
        let most = optional.limit.map_or(n, |limit| limit.min(n));
        for chosen in &optional.choices {
            let have = chosen.len() as u64;
            let full = !open && optional.need == 0 && optional.limit.is_some();
            if full && have != most {
                continue;
            }
            let mut option = plain.clone();
            for (at, &i) in optional.keys.iter().enumerate() {
                if !chosen.contains(&at) {
                    option.named[i].value = FALSE;
                } else if !full {
                    option.named[i].required = true;
                }
            }
            let least = optional.need.saturating_sub(have).max(plain.unnamed.0);
            let left = optional.limit.map(|limit| limit - have);
            if left.is_some_and(|left| left < least) || (!open && least > 0) {
                continue;
            }
            if open {
                option.unnamed = (least, left);
                self.counted(optional.path, option, out)?;
            } else {
                out.push(option);
            }
        }
        Ok(())
    }

    /// No key is optional any more: unnamed keys are counted by llguidance, which does not see
    /// that a key was written twice. So it can count to one, and up to a limit.
    fn counted(
        &mut self,
        path: Option<&SchemaPath>,
        mut plain: PlainObject,
        out: &mut Vec<PlainObject>,
    ) -> Result<(), SchemaError> {
        let required = plain.named.iter().filter(|named| named.required).count() as u64;
        let (least, most) = plain.unnamed;
        if least > 1 {
            self.residual(path, ("minProperties", false), TWICE, TWICE_HINT)?;
        }
        plain.native = (if least > 0 { required + least } else { 0 }, most.map(|most| required + most));
        out.push(plain);
        Ok(())
    }

    fn write_plain_object(
        &mut self,
        plain: &PlainObject,
        path: Option<&SchemaPath>,
    ) -> Result<Option<Tree>, SchemaError> {
        let members = plain.composed.as_ref().map(|composed| Members {
            named: &plain.named,
            classes: &composed.classes,
            obligations: &composed.obligations,
            count: plain.native,
        });
        if let Some(members) = members.as_ref().filter(|members| !members.obligations.is_empty()) {
            return self.object_rows(members, path, None);
        }
        let mut properties = Vec::new();
        for NamedKey { key, value: f, required } in &plain.named {
            let value = self.emit(*f, Segment::Key(key.to_string()))?;
            if *required && value == Tree::Never {
                return Ok(None);
            }
            // A key without a value is only named to keep it out of the others.
            if value != Tree::Never || plain.regions.is_open() {
                properties.push(Property { key: Rc::clone(key), value, required: *required });
            }
        }
        let mut patterns = Vec::new();
        for (text, f) in &plain.regions.patterns {
            patterns.push((text.clone(), self.emit(*f, Segment::AnyKey)?));
        }
        let others = self.emit(plain.regions.others, Segment::AnyKey)?;
        let (min, max) = plain.native;
        let tree = Tree::Object(Box::new(ObjectTree { properties, patterns, others, min, max }));
        let both = match members {
            Some(members) => self.object_rows(&members, path, Some(tree.clone())).ok().flatten(),
            None => None,
        };
        Ok(Some(both.unwrap_or(tree)))
    }
}

/// All subsets of `0..n` with at most `k` members, or `None` if there are more than `limit`.
fn subsets(n: usize, k: usize, limit: usize) -> Option<Vec<Vec<usize>>> {
    let mut all = vec![Vec::new()];
    let mut from = 0;
    for _ in 0..k.min(n) {
        let end = all.len();
        for i in from..end {
            let first = all[i].last().map_or(0, |&last: &usize| last + 1);
            for next in first..n {
                let mut longer = all[i].clone();
                longer.push(next);
                all.push(longer);
                if all.len() > limit {
                    return None;
                }
            }
        }
        from = end;
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::subsets;

    #[test]
    fn subsets_are_complete_and_bounded() {
        assert_eq!(subsets(4, 2, 100).unwrap().len(), 1 + 4 + 6);
        assert_eq!(subsets(3, 9, 100).unwrap().len(), 8);
        assert!(subsets(30, 15, 1000).is_none());
    }
}
