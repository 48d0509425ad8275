//! Writes objects as alternatives that llguidance can hold: keys in order, disjoint patterns, counts
//! only where no key is optional.

use std::rc::Rc;

use crate::error::{SchemaError, refuse};
use crate::formula::{FALSE, FormulaId, TRUE};
use crate::normalizer::{Normalizer, Segment};
use crate::shape::object::{Keys, Named, Object};
use crate::tree::{ObjectTree, Property, Tree};
use crate::write::regions::Regions;
use crate::write::rows::{Class, Members};

/// Optional keys whose presence is written out, by us or by llguidance, where a count or an unnamed key needs it.
const MAX_SPLIT: usize = 64;

const TOO_MANY: &str = "a count over many optional keys needs too many alternatives";

const TOO_MANY_HINT: &str = "require the keys, or list the combinations with `anyOf`";

const TWICE: &str = "two or more keys without names cannot be kept from being the same key";

const TWICE_HINT: &str = "list the keys in `properties`, or use a `minProperties` of 1";

/// An object ready to be written.
#[derive(Debug, Clone)]
struct PlainObject {
    /// Key, schema, whether it is required.
    named: Vec<(Rc<str>, FormulaId, bool)>,
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
    wishes: Vec<FormulaId>,
}

impl Normalizer<'_> {
    pub(crate) fn write_object(&mut self, object: &Object) -> Result<Vec<Tree>, SchemaError> {
        let mut object = object.clone();
        let path = object.path.clone();
        let closed = self.name_keys(&mut object)?;
        let mut flats = Vec::new();
        let mut open: Vec<(Object, Vec<(Keys, FormulaId)>)> = vec![(object, Vec::new())];
        while let Some((mut object, wishes)) = open.pop() {
            self.step(TRUE)?;
            let path = object.path.clone();
            match object.somewhere.pop() {
                Some(wanted) => self.somewhere(object, closed, wanted, &wishes, &mut open)?,
                None => self.flatten(&object, closed, &wishes, &mut flats)?,
            }
            let entries = open.iter().map(|(object, _)| object.len()).sum::<usize>()
                + flats.iter().map(|flat: &PlainObject| flat.named.len()).sum::<usize>();
            self.spend(TRUE, 1 + (open.len() + flats.len()) as u64)?;
            if open.len() + flats.len() > self.limits.max_alternatives || entries > 4 * self.limits.max_nodes
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
        for flat in flats {
            if let Some(value) = self.write_flat(&flat, path.as_ref())? {
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
        for (set, _) in &object.somewhere {
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
        for (set, _) in &object.somewhere.clone() {
            if let Keys::NotNamed(f) = set {
                keys.extend(self.key_words(*f)?.into_iter().flatten());
            }
        }
        for key in keys {
            object.named.entry(key).or_insert(Named { f: TRUE, placed: false, complement: false });
        }
        Ok(closed)
    }

    /// Some key of a set has a certain value: a named one, or one without a name. The wishes are what
    /// unnamed keys have to be already.
    fn somewhere(
        &mut self,
        object: Object,
        closed: bool,
        wanted: (Keys, FormulaId),
        wishes: &[(Keys, FormulaId)],
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
                options.extend(self.prune_object(option)?.map(|option| (option, wishes.to_vec())));
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
                open.push((object, wishes.to_vec()));
                return Ok(());
            }
            let mut option = object;
            for named in &mut option.named {
                if !option.required.contains(named.0) && single && !self.compose {
                    named.1.f = FALSE;
                }
            }
            // Kept as a wish for the counts below.
            let mut wishes = wishes.to_vec();
            wishes.push(wanted);
            options.push((option, wishes));
        }
        open.extend(options.into_iter().rev());
        Ok(())
    }

    fn flatten(
        &mut self,
        object: &Object,
        closed: bool,
        wishes: &[(Keys, FormulaId)],
        out: &mut Vec<PlainObject>,
    ) -> Result<(), SchemaError> {
        // With wishes, at least one unnamed key is there; where values differ, it is the only one.
        let mut only = Vec::new();
        let mut composed = None;
        for wish in wishes {
            if !self.regions(object, closed, &[], Some(wish))?.all_inside {
                only.push(wish.clone());
            }
        }
        if self.compose {
            match self.classes(object, closed, wishes) {
                Ok(classes) => {
                    let wishes =
                        if only.is_empty() { Vec::new() } else { wishes.iter().map(|w| w.1).collect() };
                    composed = Some(Rc::new(Composed { classes, wishes }));
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
            let mut f = self.value_at(object, &key)?;
            if f != FALSE && self.is_empty(f)? {
                f = FALSE;
            }
            let required = object.required.contains(&key);
            if required && f == FALSE {
                return Ok(());
            }
            named.push((key, f, required));
        }
        let least = u64::from(!wishes.is_empty());
        let is_composed = composed.as_ref().is_some_and(|c| !c.wishes.is_empty());
        let flat = PlainObject { named, regions, unnamed: (least, None), native: (0, None), composed };
        if is_composed {
            return self.count_composed(object, flat, out);
        }
        self.count(object, flat, out)
    }

    /// The automaton counts by itself, except that it does not see that a key was written twice.
    fn count_composed(
        &mut self,
        object: &Object,
        mut flat: PlainObject,
        out: &mut Vec<PlainObject>,
    ) -> Result<(), SchemaError> {
        self.rule_path("composed", object.path.as_ref());
        flat.native = (object.min, object.max);
        if object.min > object.required.len() as u64 + 1 {
            self.residual(object.count_path.as_ref(), ("minProperties", false), TWICE, TWICE_HINT)?;
        }
        out.push(flat);
        Ok(())
    }

    /// Turns counts of keys into alternatives where llguidance does not hold them.
    fn count(
        &mut self,
        object: &Object,
        flat: PlainObject,
        out: &mut Vec<PlainObject>,
    ) -> Result<(), SchemaError> {
        let required = flat.named.iter().filter(|(_, _, r)| *r).count() as u64;
        let optional: Vec<usize> =
            (0..flat.named.len()).filter(|&i| !flat.named[i].2 && flat.named[i].1 != FALSE).collect();
        let open = flat.regions.is_open();
        if object.max.is_some_and(|max| max < required) {
            return Ok(());
        }
        let need = object.min.saturating_sub(required);
        let limit = object.max.map(|max| max - required);
        let n = optional.len() as u64;
        if !open && (need > n || flat.unnamed.0 > 0) {
            return Ok(());
        }
        let free = limit.is_none_or(|limit| limit >= n && !open);
        if need == 0 && flat.unnamed.0 == 0 && free {
            out.push(flat);
            return Ok(());
        }
        let path = object.count_path.as_ref().or(object.path.as_ref());
        self.rule_path("property-counts", path);
        if optional.is_empty() {
            let mut flat = flat;
            flat.unnamed = (need.max(flat.unnamed.0), limit);
            return self.counted(path, flat, out);
        }
        let few = optional.len() <= MAX_SPLIT;
        if !open && few && ((need == 1 && limit.is_none()) || (need <= 1 && limit == Some(1))) {
            let mut flat = flat;
            flat.native = (object.min, object.max);
            out.push(flat);
            return Ok(());
        }
        // Which optional keys are there.
        let is_minimum = limit.is_none() && flat.unnamed.0 == 0;
        let most = limit.map_or(n, |limit| limit.min(n)) as usize;
        let size = if is_minimum { need as usize } else { most };
        let Some(choices) =
            few.then(|| subsets(optional.len(), size, self.limits.max_alternatives)).flatten()
        else {
            let keyword = if object.max.is_some() { "maxProperties" } else { "minProperties" };
            if flat.unnamed.0 > 0 {
                return Err(refuse(path, keyword, TOO_MANY, TOO_MANY_HINT));
            }
            self.residual(path, (keyword, false), TOO_MANY, TOO_MANY_HINT)?;
            out.push(flat);
            return Ok(());
        };
        if is_minimum {
            // At least `need`: fewer named keys and enough unnamed ones, or these named keys and any.
            for chosen in choices {
                let enough = chosen.len() as u64 == need;
                let mut option = flat.clone();
                for (at, &i) in optional.iter().enumerate() {
                    if chosen.contains(&at) {
                        option.named[i].2 = true;
                    } else if !enough {
                        option.named[i].1 = FALSE;
                    }
                }
                if enough {
                    out.push(option);
                } else if open {
                    option.unnamed = (need - chosen.len() as u64, None);
                    self.counted(path, option, out)?;
                }
            }
            return Ok(());
        }
        for chosen in choices {
            let have = chosen.len() as u64;
            let full = !open && need == 0 && limit.is_some();
            if full && chosen.len() != most {
                continue;
            }
            let mut option = flat.clone();
            for (at, &i) in optional.iter().enumerate() {
                if !chosen.contains(&at) {
                    option.named[i].1 = FALSE;
                } else if !full {
                    option.named[i].2 = true;
                }
            }
            let least = need.saturating_sub(have).max(flat.unnamed.0);
            let left = limit.map(|limit| limit - have);
            if left.is_some_and(|left| left < least) || (!open && least > 0) {
                continue;
            }
            if open {
                option.unnamed = (least, left);
                self.counted(path, option, out)?;
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
        path: Option<&Rc<str>>,
        mut flat: PlainObject,
        out: &mut Vec<PlainObject>,
    ) -> Result<(), SchemaError> {
        let required = flat.named.iter().filter(|(_, _, r)| *r).count() as u64;
        let (least, most) = flat.unnamed;
        if least > 1 {
            self.residual(path, ("minProperties", false), TWICE, TWICE_HINT)?;
        }
        flat.native = (if least > 0 { required + least } else { 0 }, most.map(|most| required + most));
        out.push(flat);
        Ok(())
    }

    fn write_flat(
        &mut self,
        flat: &PlainObject,
        path: Option<&Rc<str>>,
    ) -> Result<Option<Tree>, SchemaError> {
        let members = flat.composed.as_ref().map(|composed| Members {
            named: &flat.named,
            classes: &composed.classes,
            wishes: &composed.wishes,
            count: flat.native,
        });
        if let Some(members) = members.as_ref().filter(|members| !members.wishes.is_empty()) {
            return self.object_rows(members, path, None);
        }
        let mut properties = Vec::new();
        for (key, f, required) in &flat.named {
            let value = self.emit(*f, Segment::Key(key.to_string()))?;
            if *required && value == Tree::Never {
                return Ok(None);
            }
            // A key without a value is only named to keep it out of the others.
            if value != Tree::Never || flat.regions.is_open() {
                properties.push(Property { key: Rc::clone(key), value, required: *required });
            }
        }
        let mut patterns = Vec::new();
        for (text, f) in &flat.regions.patterns {
            patterns.push((text.clone(), self.emit(*f, Segment::AnyKey)?));
        }
        let others = self.emit(flat.regions.others, Segment::AnyKey)?;
        let (min, max) = flat.native;
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
