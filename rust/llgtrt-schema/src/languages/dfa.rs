//! Deterministic automata of expressions: emptiness, and the way back to a regular expression.
//! Bounded in states and in the length of what is written.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::rc::Rc;

use super::chars::Chars;
use super::expr::{Exprs, LanguageId, NOTHING, classes};

/// States of an automaton that is searched for an accepting state.
const SEARCH_STATES: usize = 1500;

/// States of an automaton that is put together of two.
const PRODUCT_STATES: usize = 20_000;

/// States of an automaton that is written as a regular expression.
const PRINT_STATES: usize = 300;

/// Texts that complete a string.
const MAX_COMPLETIONS: usize = 200;

/// Where each set of characters leads; `None` if that is too much to find out.
fn successors(exprs: &mut Exprs, x: LanguageId) -> Option<Vec<(Chars, LanguageId)>> {
    let heads = exprs.heads(x);
    // Every set is looked at for every cut between characters.
    let cuts: usize = heads.iter().map(|set| 2 * set.ranges().len()).sum();
    exprs.look(cuts * heads.len() / 8)?;
    let mut by_target: Vec<(LanguageId, Chars)> = Vec::new();
    for class in classes(&heads) {
        exprs.look(1 + (by_target.len() + class.ranges().len()) / 8)?;
        let Some(&(first, _)) = class.ranges().first() else { continue };
        let next = exprs.derivative(x, first);
        if next == NOTHING {
            continue;
        }
        match by_target.iter_mut().find(|(target, _)| *target == next) {
            Some((_, set)) => {
                exprs.look(set.ranges().len() / 4)?;
                *set = set.union(&class);
            }
            None => by_target.push((next, class)),
        }
    }
    Some(by_target.into_iter().map(|(target, set)| (set, target)).collect())
}

/// Whether no string is in the language; `None` if the search was too long.
pub(crate) fn is_empty(exprs: &mut Exprs, start: LanguageId) -> Option<bool> {
    exprs.search(|exprs| find_empty(exprs, start))
}

fn find_empty(exprs: &mut Exprs, start: LanguageId) -> Option<bool> {
    let mut seen = HashSet::from([start]);
    let mut open = vec![start];
    while let Some(x) = open.pop() {
        if exprs.nullable(x) {
            return Some(false);
        }
        if seen.len() > SEARCH_STATES {
            return None;
        }
        for (_, next) in successors(exprs, x)? {
            if seen.insert(next) {
                open.push(next);
            }
        }
    }
    Some(true)
}

struct Dfa {
    accepting: Vec<bool>,
    edges: Vec<Vec<(Chars, usize)>>,
}

fn build(exprs: &mut Exprs, start: LanguageId) -> Option<Dfa> {
    let mut ids = HashMap::from([(start, 0)]);
    let mut states = vec![start];
    let mut edges: Vec<Vec<(Chars, usize)>> = Vec::new();
    let mut at = 0;
    while at < states.len() {
        let mut out = Vec::new();
        for (set, next) in successors(exprs, states[at])? {
            let id = *ids.entry(next).or_insert_with(|| {
                states.push(next);
                states.len() - 1
            });
            out.push((set, id));
        }
        edges.push(out);
        at += 1;
        if states.len() > SEARCH_STATES {
            return None;
        }
    }
    let accepting = states.iter().map(|&x| exprs.nullable(x)).collect();
    minimal(exprs, &live(&Dfa { accepting, edges }))
}

/// The automaton of the language; that of an intersection is put together of those of its parts, each as small as it can
/// be, where its expression has too many derivatives.
fn automaton(exprs: &mut Exprs, x: LanguageId) -> Option<Dfa> {
    if let Some(dfa) = build(exprs, x) {
        return Some(dfa);
    }
    let parts = exprs.conjuncts(x)?;
    let mut whole: Option<Dfa> = None;
    for part in parts {
        let part = build(exprs, part)?;
        whole = Some(match whole {
            None => part,
            Some(whole) => {
                let both = product(exprs, &whole, &part)?;
                minimal(exprs, &live(&both))?
            }
        });
    }
    whole
}

/// Texts that both automata accept.
fn product(exprs: &Exprs, a: &Dfa, b: &Dfa) -> Option<Dfa> {
    let mut ids = HashMap::from([((0, 0), 0)]);
    let mut states = vec![(0, 0)];
    let mut edges = Vec::new();
    let mut at = 0;
    while at < states.len() {
        let (x, y) = states[at];
        let mut out = Vec::new();
        for (first, to) in &a.edges[x] {
            for (second, other) in &b.edges[y] {
                exprs.look(1 + (first.ranges().len() + second.ranges().len()) / 4)?;
                let both = first.intersection(second);
                if both.is_empty() {
                    continue;
                }
                let id = *ids.entry((*to, *other)).or_insert_with(|| {
                    states.push((*to, *other));
                    states.len() - 1
                });
                out.push((both, id));
            }
        }
        edges.push(out);
        at += 1;
        if states.len() > PRODUCT_STATES {
            return None;
        }
    }
    let accepting = states.iter().map(|&(x, y)| a.accepting[x] && b.accepting[y]).collect();
    Some(Dfa { accepting, edges })
}

/// The automaton without the states that lead to no end; the start stays.
fn live(dfa: &Dfa) -> Dfa {
    let mut sources = vec![Vec::new(); dfa.edges.len()];
    for (from, edges) in dfa.edges.iter().enumerate() {
        for (_, to) in edges {
            sources[*to].push(from);
        }
    }
    let mut is_live = dfa.accepting.clone();
    let mut open: Vec<usize> = (0..is_live.len()).filter(|&state| is_live[state]).collect();
    while let Some(state) = open.pop() {
        for &from in &sources[state] {
            if !std::mem::replace(&mut is_live[from], true) {
                open.push(from);
            }
        }
    }
    is_live[0] = true;
    let kept: Vec<usize> = (0..is_live.len()).filter(|&state| is_live[state]).collect();
    let place: HashMap<usize, usize> = kept.iter().enumerate().map(|(at, &state)| (state, at)).collect();
    let edges = kept.iter().map(|&state| {
        let edges = dfa.edges[state].iter();
        edges.filter_map(|(set, to)| Some((set.clone(), *place.get(to)?))).collect()
    });
    Dfa { accepting: kept.iter().map(|&state| dfa.accepting[state]).collect(), edges: edges.collect() }
}

/// How large an automaton is.
pub(crate) struct Size {
    pub(crate) states: usize,
    /// Ranges of characters that lead out of one state, at most.
    pub(crate) ranges: usize,
}

/// The size of the language's automaton, if it is small enough.
pub(crate) fn measure(exprs: &mut Exprs, start: LanguageId) -> Option<Size> {
    let dfa = exprs.search(|exprs| automaton(exprs, start))?;
    let ranges = |edges: &Vec<(Chars, usize)>| edges.iter().map(|(set, _)| set.ranges().len()).sum();
    Some(Size { states: dfa.edges.len(), ranges: dfa.edges.iter().map(ranges).max().unwrap_or(0) })
}

/// Moore's algorithm: splits groups of states until no edge tells two of a group apart. `None` if it took too long.
fn minimal(exprs: &Exprs, dfa: &Dfa) -> Option<Dfa> {
    let n = dfa.edges.len();
    let mut group: Vec<usize> = dfa.accepting.iter().map(|&a| usize::from(a)).collect();
    let mut count = 0;
    loop {
        let mut ids: BTreeMap<(usize, Vec<(usize, Chars)>), usize> = BTreeMap::new();
        let mut next = vec![0; n];
        for state in 0..n {
            let mut out: BTreeMap<usize, Chars> = BTreeMap::new();
            exprs.look(1 + dfa.edges[state].iter().map(|(set, _)| 1 + set.ranges().len()).sum::<usize>())?;
            for (set, target) in &dfa.edges[state] {
                let merged = out.get(&group[*target]).map_or_else(|| set.clone(), |known| known.union(set));
                out.insert(group[*target], merged);
            }
            let fresh = ids.len();
            next[state] = *ids.entry((group[state], out.into_iter().collect())).or_insert(fresh);
        }
        group = next;
        if ids.len() == count {
            break;
        }
        count = ids.len();
    }
    // Groups are numbered in the order of their first state, so the start stays 0.
    let mut accepting = vec![false; count];
    let mut edges = vec![Vec::new(); count];
    let mut done = vec![false; count];
    for state in 0..n {
        let id = group[state];
        if std::mem::replace(&mut done[id], true) {
            continue;
        }
        accepting[id] = dfa.accepting[state];
        let mut out: BTreeMap<usize, Chars> = BTreeMap::new();
        for (set, target) in &dfa.edges[state] {
            let merged = out.get(&group[*target]).map_or_else(|| set.clone(), |known| known.union(set));
            out.insert(group[*target], merged);
        }
        edges[id] = out.into_iter().map(|(target, set)| (set, target)).collect();
    }
    Some(Dfa { accepting, edges })
}

/// A regular expression without complement or intersection.
#[derive(Debug, Clone, PartialEq)]
enum Rx {
    Empty,
    Class(Chars),
    Concat(Vec<Rc<Rx>>),
    Or(Vec<Rc<Rx>>),
    Star(Rc<Rx>),
}

fn size(rx: &Rx) -> usize {
    match rx {
        Rx::Empty => 1,
        Rx::Class(set) => 1 + 2 * set.ranges().len().min(set.negate().ranges().len()),
        Rx::Concat(list) | Rx::Or(list) => 4 + list.iter().map(|x| size(x)).sum::<usize>(),
        Rx::Star(inner) => 5 + size(inner),
    }
}

fn or(a: Option<Rc<Rx>>, b: Rc<Rx>) -> Rc<Rx> {
    let Some(a) = a else { return b };
    if a == b {
        return a;
    }
    if let (Rx::Class(x), Rx::Class(y)) = (&*a, &*b) {
        return Rc::new(Rx::Class(x.union(y)));
    }
    let mut list = match &*a {
        Rx::Or(list) => list.clone(),
        _ => vec![a],
    };
    list.push(b);
    Rc::new(Rx::Or(list))
}

fn concat(parts: &[&Rc<Rx>]) -> Rc<Rx> {
    let mut list = Vec::new();
    for part in parts {
        match &***part {
            Rx::Empty => {}
            Rx::Concat(inner) => list.extend(inner.iter().cloned()),
            _ => list.push(Rc::clone(part)),
        }
    }
    match list.len() {
        0 => Rc::new(Rx::Empty),
        1 => list.swap_remove(0),
        _ => Rc::new(Rx::Concat(list)),
    }
}

fn star(inner: Option<&Rc<Rx>>) -> Rc<Rx> {
    match inner {
        None => Rc::new(Rx::Empty),
        Some(inner) => Rc::new(Rx::Star(Rc::clone(inner))),
    }
}

/// An edge of the graph, with the size of its expression.
#[derive(Clone)]
struct Edge {
    rx: Rc<Rx>,
    size: usize,
}

/// An automaton whose edges are expressions.
struct Graph {
    out: Vec<BTreeMap<usize, Edge>>,
    /// The states with an edge to each state.
    sources: Vec<BTreeSet<usize>>,
}

impl Graph {
    /// Adds an edge, or another way along one.
    fn connect(&mut self, from: usize, to: usize, rx: Rc<Rx>) {
        let old = self.out[from].remove(&to).map(|edge| edge.rx);
        let rx = or(old, rx);
        self.out[from].insert(to, Edge { size: size(&rx), rx });
        self.sources[to].insert(from);
    }

    fn degree(&self, state: usize) -> usize {
        1 + self.out[state].len() + self.sources[state].len()
    }

    /// What it adds to the text to do without a state.
    fn cost(&self, state: usize) -> usize {
        let sources = self.sources[state].iter().filter(|&&from| from != state);
        let ins = sources.clone().count();
        let into: usize = sources.filter_map(|&from| self.out[from].get(&state)).map(|edge| edge.size).sum();
        let targets = self.out[state].iter().filter(|(to, _)| **to != state);
        let outs = targets.clone().count();
        let out: usize = targets.map(|(_, edge)| edge.size).sum();
        let own = self.out[state].get(&state).map_or(0, |edge| edge.size);
        into * outs + out * ins + own * ins
    }
}

/// The language as an anchored regular expression of at most `max_bytes`, in the syntax of the regex
/// crates. `None` if it is too large, or empty.
pub(crate) fn print(exprs: &mut Exprs, start: LanguageId, max_bytes: usize) -> Option<String> {
    exprs.search(|exprs| find_text(exprs, start, max_bytes))
}

fn find_text(exprs: &mut Exprs, start: LanguageId, max_bytes: usize) -> Option<String> {
    let dfa = automaton(exprs, start)?;
    let n = dfa.edges.len();
    if n > PRINT_STATES {
        return None;
    }
    // State elimination between a new start `n` and a new end `n + 1`.
    let (first, last) = (n, n + 1);
    let mut graph = Graph { out: vec![BTreeMap::new(); n + 2], sources: vec![BTreeSet::new(); n + 2] };
    graph.connect(first, 0, Rc::new(Rx::Empty));
    for state in 0..n {
        for (set, target) in &dfa.edges[state] {
            graph.connect(state, *target, Rc::new(Rx::Class(set.clone())));
        }
        if dfa.accepting[state] {
            graph.connect(state, last, Rc::new(Rx::Empty));
        }
    }
    let mut left: Vec<usize> = (0..n).collect();
    while !left.is_empty() {
        exprs.look(left.iter().map(|&state| graph.degree(state)).sum())?;
        let at = (0..left.len()).min_by_key(|&i| graph.cost(left[i]))?;
        let state = left.swap_remove(at);
        let out = std::mem::take(&mut graph.out[state]);
        let own = star(out.get(&state).map(|edge| &edge.rx));
        for &to in out.keys() {
            graph.sources[to].remove(&state);
        }
        for from in std::mem::take(&mut graph.sources[state]) {
            let Some(into) = graph.out[from].remove(&state) else { continue };
            for (&to, edge) in out.iter().filter(|(to, _)| **to != state) {
                exprs.look(1 + (into.size + edge.size) / 8)?;
                let joined = concat(&[&into.rx, &own, &edge.rx]);
                if size(&joined) > max_bytes {
                    return None;
                }
                graph.connect(from, to, joined);
            }
        }
    }
    let rx = graph.out[first].remove(&last)?.rx;
    let mut text = String::from("^");
    write(&rx, &mut text);
    text.push('$');
    (text.len() <= max_bytes).then_some(text)
}

/// Texts that lead from each state of the language's automaton to its end by the fewest characters, shortest first
/// behind the one from its start.
pub(crate) fn completions(exprs: &mut Exprs, start: LanguageId) -> Vec<String> {
    let Some(dfa) = exprs.search(|exprs| build(exprs, start)) else { return Vec::new() };
    let mut sources = vec![Vec::new(); dfa.edges.len()];
    for (from, edges) in dfa.edges.iter().enumerate() {
        for (set, to) in edges {
            sources[*to].push((from, plainest(set)));
        }
    }
    // From the ends backwards; `next` is the first step of the shortest way of each state.
    let mut next: Vec<Option<(char, usize)>> = vec![None; dfa.edges.len()];
    let mut open: VecDeque<usize> = (0..dfa.edges.len()).filter(|&state| dfa.accepting[state]).collect();
    while let Some(to) = open.pop_front() {
        for &(from, character) in &sources[to] {
            if !dfa.accepting[from] && next[from].is_none() {
                next[from] = Some((character, to));
                open.push_back(from);
            }
        }
    }
    let mut texts = BTreeSet::new();
    for state in 0..dfa.edges.len() {
        let mut text = String::new();
        let mut length = 0;
        let mut at = state;
        while let Some((character, to)) = next[at] {
            text.push(character);
            length += 1;
            at = to;
        }
        if length > 0 && exprs.look(length).is_some() {
            // That of the start is a whole string, and the most useful.
            texts.insert((state != 0, length, text));
        }
    }
    texts.into_iter().map(|(.., text)| text).take(MAX_COMPLETIONS).collect()
}

/// The character of a set that is the most likely to be a token of its own, and to need no escape.
fn plainest(set: &Chars) -> char {
    let first = |from: char, to: char| (from..=to).find(|&c| c != '"' && c != '\\' && set.contains(c as u32));
    first('a', 'z')
        .or_else(|| first('0', '9'))
        .or_else(|| first(' ', '~'))
        .or_else(|| set.ranges().iter().find_map(|&(from, _)| char::from_u32(from)))
        .unwrap_or(' ')
}

fn write(rx: &Rx, out: &mut String) {
    match rx {
        Rx::Empty => out.push_str("(?:)"),
        Rx::Class(set) => set.write(out),
        Rx::Concat(list) => list.iter().for_each(|x| write(x, out)),
        Rx::Or(list) => {
            out.push_str("(?:");
            let mut first = true;
            for x in list.iter().filter(|x| ***x != Rx::Empty) {
                if !first {
                    out.push('|');
                }
                first = false;
                write(x, out);
            }
            out.push(')');
            if list.iter().any(|x| **x == Rx::Empty) {
                out.push('?');
            }
        }
        Rx::Star(inner) => {
            out.push_str("(?:");
            write(inner, out);
            out.push_str(")*");
        }
    }
}
