//! Vectors and scores: requests of many texts over one embedder, which several requests share.
//!
//! The thread `llgtrt-embed` owns the embedder and makes every call. It tokenizes a request's texts, gives
//! the embedder one text of each request in turn, so that a request of thousands does not keep a short one
//! waiting, and delivers a request's answer when the last of its texts is done. A reader that left is noticed
//! between two passes. What may wait is bounded by number.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::{Receiver, Sender, TryRecvError, unbounded};

use llgtrt_core::{EmbedText, Embedder, EmbedderTraits, Error, ErrorKind, Result, TokenId};

use crate::engine_loop::panic_text;
use crate::request::Embeddings;
use crate::shared::Shared;
use crate::sync::AtomicUsize;

/// What a request wants of its inputs.
#[derive(Debug, Clone, PartialEq)]
pub enum EmbedInput {
    /// The vector of a text.
    Text(String),
    /// The vector of tokens, as they are.
    Tokens(Vec<TokenId>),
    /// The score of a document for a query.
    Pair(String, String),
}

/// One HTTP request's worth of vectors, or of scores.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbedRequest {
    /// At least one; either pairs or none.
    pub inputs: Vec<EmbedInput>,
    /// What errors call the list of inputs.
    pub param: String,
    /// Keep so many numbers of each vector; `None` keeps all.
    pub dimensions: Option<u32>,
    /// Leave out the ends of texts and documents that would make an input longer than so many tokens; of
    /// tokens keep the first ones. `None`: such an input is an error.
    pub most_tokens: Option<u32>,
}

/// Counts a request among those that are not over, and among those that wait.
struct Place {
    waiting: Arc<AtomicUsize>,
    active: Arc<AtomicUsize>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        self.active.fetch_sub(1, Ordering::AcqRel);
    }
}

struct Job {
    id: u64,
    request: EmbedRequest,
    closed: Arc<AtomicBool>,
    _place: Place,
}

/// A submitted request, held by its reader. Dropping it cancels the request.
#[derive(Debug)]
pub struct EmbedHandle {
    id: u64,
    closed: Arc<AtomicBool>,
}

impl EmbedHandle {
    /// Identity in what [`Runtime::drain`](crate::Runtime::drain) returns.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Ends the request; nothing is delivered any more. Idempotent.
    pub fn cancel(&self) {
        self.closed.store(true, Ordering::Release);
    }
}

impl Drop for EmbedHandle {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// The way to the embedder's thread, which ends when this is dropped.
pub(crate) struct EmbedService {
    jobs: Sender<Job>,
    traits: EmbedderTraits,
    waiting: Arc<AtomicUsize>,
    most_waiting: usize,
}

impl EmbedService {
    /// The service and the body of its thread.
    pub(crate) fn new(
        embedder: Box<dyn Embedder>,
        shared: Arc<Shared>,
        most_waiting: usize,
    ) -> (Self, impl FnOnce() + Send + 'static) {
        let (jobs, receiver) = unbounded();
        let traits = embedder.traits().clone();
        let this = Self { jobs, traits, waiting: Arc::default(), most_waiting };
        (this, move || EmbedLoop::new(embedder, shared, receiver).run())
    }

    pub(crate) fn traits(&self) -> &EmbedderTraits {
        &self.traits
    }

    /// Takes a request, if there is room for it.
    pub(crate) fn submit(
        &self,
        id: u64,
        request: EmbedRequest,
        active: Arc<AtomicUsize>,
    ) -> Result<EmbedHandle> {
        active.fetch_add(1, Ordering::AcqRel);
        let before = self.waiting.fetch_add(1, Ordering::AcqRel);
        let place = Place { waiting: Arc::clone(&self.waiting), active };
        if before >= self.most_waiting {
            return Err(Error::new(ErrorKind::Overloaded, "too many requests for embeddings are waiting"));
        }
        let closed = Arc::new(AtomicBool::new(false));
        let handle = EmbedHandle { id, closed: Arc::clone(&closed) };
        let job = Job { id, request, closed, _place: place };
        self.jobs.send(job).map_err(|_| Error::engine("the embedder has ended"))?;
        Ok(handle)
    }
}

/// A request whose texts are tokenized.
struct Work {
    job: Job,
    /// Places and tokens of the inputs that the embedder has not got.
    left: Inputs,
    vectors: Vec<Option<Vec<f32>>>,
    missing: usize,
    tokens: u64,
    rank: bool,
}

/// Places and tokens of inputs.
type Inputs = VecDeque<(usize, Vec<TokenId>)>;

/// What the thread does next.
enum Next {
    /// Take a request in, and compute.
    Job(Job),
    /// Compute.
    Work,
    /// Nobody will ask for anything any more.
    End,
}

struct EmbedLoop {
    embedder: Box<dyn Embedder>,
    shared: Arc<Shared>,
    jobs: Receiver<Job>,
    /// The next one to give the embedder a text is in front.
    work: VecDeque<Work>,
    /// Request and place of what the embedder has.
    inside: HashMap<u64, (u64, usize)>,
    next_input: u64,
    done: Vec<(u64, Result<Vec<f32>>)>,
    /// Why nothing can be computed any more.
    dead: Option<Error>,
}

impl EmbedLoop {
    fn new(embedder: Box<dyn Embedder>, shared: Arc<Shared>, jobs: Receiver<Job>) -> Self {
        Self {
            embedder,
            shared,
            jobs,
            work: VecDeque::new(),
            inside: HashMap::new(),
            next_input: 0,
            done: Vec::new(),
            dead: None,
        }
    }

    /// Runs until the senders are gone. A panic ends the embedder, not the process.
    fn run(mut self) {
        loop {
            let job = match self.next() {
                Next::Job(job) => Some(job),
                Next::Work => None,
                Next::End => return,
            };
            let passed = catch_unwind(AssertUnwindSafe(|| self.pass(job)));
            let error = match passed {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error,
                Err(panic) => Error::internal(format!("the embedder failed: {}", panic_text(&*panic))),
            };
            tracing::error!(%error, "the embedder has failed");
            self.inside.clear();
            for work in self.work.drain(..) {
                deliver(&self.shared, &work.job, Err(error.clone()));
            }
            self.dead = Some(error);
        }
    }

    /// What to do next; waits for a request if there is nothing.
    fn next(&self) -> Next {
        if self.work.is_empty() {
            return self.jobs.recv().map_or(Next::End, Next::Job);
        }
        match self.jobs.try_recv() {
            Ok(job) => Next::Job(job),
            Err(TryRecvError::Empty) => Next::Work,
            Err(TryRecvError::Disconnected) => Next::End,
        }
    }

    /// Takes a request in, lets the embedder compute, and delivers what is complete.
    fn pass(&mut self, job: Option<Job>) -> Result<()> {
        if let Some(job) = job {
            self.accept(job);
        }
        self.drop_closed();
        self.feed();
        if self.inside.is_empty() {
            return Ok(());
        }
        self.embedder.step(&mut self.done)?;
        for (input, result) in std::mem::take(&mut self.done) {
            let Some((request, place)) = self.inside.remove(&input) else { continue };
            let Some(index) = self.work.iter().position(|work| work.job.id == request) else { continue };
            let work = &mut self.work[index];
            match result {
                Ok(vector) => {
                    work.vectors[place] = Some(vector);
                    work.missing -= 1;
                    if work.missing > 0 {
                        continue;
                    }
                    if let Some(work) = self.work.remove(index) {
                        self.shared.metrics.embedding_tokens.inc_by(work.tokens);
                        let (job, answer) = work.into_answer();
                        deliver(&self.shared, &job, Ok(answer));
                    }
                }
                Err(error) => {
                    let param = at(&work.job.request, place);
                    self.fail(index, error.with_param(param));
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self, job: Job) {
        let accepted = match &self.dead {
            Some(error) => Err(error.clone()),
            // A tokenizer that panics has no state that others would miss.
            None => catch_unwind(AssertUnwindSafe(|| self.tokenized(&job.request)))
                .unwrap_or_else(|panic| Err(Error::internal(panic_text(&*panic)))),
        };
        match accepted {
            Ok((left, tokens)) => {
                let count = left.len();
                self.shared.metrics.embedding_inputs.inc_by(count as u64);
                let rank = matches!(job.request.inputs.first(), Some(EmbedInput::Pair(..)));
                let vectors = vec![None; count];
                self.work.push_back(Work { job, left, vectors, missing: count, tokens, rank });
            }
            Err(error) => deliver(&self.shared, &job, Err(error)),
        }
    }

    fn tokenized(&self, request: &EmbedRequest) -> Result<(Inputs, u64)> {
        let traits = self.embedder.traits();
        if let (Some(asked), Some(width)) = (request.dimensions, traits.dimensions)
            && !(1..=width).contains(&asked)
        {
            let message = format!("dimensions must be from 1 to {width}, what the model's vectors have");
            return Err(Error::invalid("dimensions", message));
        }
        let pairs = request.inputs.iter().filter(|input| matches!(input, EmbedInput::Pair(..))).count();
        if pairs != 0 && (pairs != request.inputs.len() || !traits.ranks) {
            return Err(Error::new(ErrorKind::InvalidRequest, "this model does not score pairs"));
        }
        if pairs == 0 && traits.dimensions.is_none() {
            return Err(Error::new(ErrorKind::InvalidRequest, "this model makes no vectors"));
        }
        let most = request.most_tokens.map(|most| most.min(traits.max_tokens) as usize);
        let mut left = VecDeque::with_capacity(request.inputs.len());
        let mut sum = 0;
        for (place, input) in request.inputs.iter().enumerate() {
            let named = |error: Error| error.with_param(at(request, place));
            let tokens = match input {
                EmbedInput::Tokens(tokens) => tokens[..tokens.len().min(most.unwrap_or(usize::MAX))].to_vec(),
                EmbedInput::Text(text) => {
                    let text = EmbedText::Single(self.bounded(0, text, most).map_err(named)?);
                    self.embedder.tokenize(&text, most).map_err(named)?
                }
                EmbedInput::Pair(query, document) => {
                    let document = self.bounded(query.len(), document, most).map_err(named)?;
                    let pair = EmbedText::Pair(query.clone(), document);
                    self.embedder.tokenize(&pair, most).map_err(named)?
                }
            };
            if tokens.is_empty() {
                return Err(named(Error::new(ErrorKind::InvalidRequest, "the input is empty")));
            }
            if tokens.len() > traits.max_tokens as usize {
                return Err(named(self.too_long(tokens.len())));
            }
            if tokens.iter().any(|&token| token >= traits.vocab_size) {
                let message = format!("a token id is not below {}", traits.vocab_size);
                return Err(named(Error::new(ErrorKind::InvalidRequest, message)));
            }
            sum += tokens.len() as u64;
            left.push_back((place, tokens));
        }
        Ok((left, sum))
    }

    /// A text of which as much is looked at as can matter: with a limit of tokens its end is left out, without
    /// one it is refused where it is too long whatever its tokens are. `before` are the bytes of the query.
    fn bounded(&self, before: usize, text: &str, most: Option<usize>) -> Result<String> {
        let traits = self.embedder.traits();
        let longest = traits.max_token_bytes.max(1);
        let Some(most) = most else {
            let least = (before + text.len()) / longest;
            if least > traits.max_tokens as usize {
                return Err(self.too_long(least));
            }
            return Ok(text.to_owned());
        };
        if before / longest > traits.max_tokens as usize {
            return Err(self.too_long(before / longest));
        }
        // Where a text is cut, its last tokens are others: those are far behind what is kept.
        let mut end = text.len().min(2 * most * longest);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        Ok(text[..end].to_owned())
    }

    fn too_long(&self, tokens: usize) -> Error {
        let most = self.embedder.traits().max_tokens;
        // OpenAI's words: clients look for them.
        Error::new(
            ErrorKind::ContextLength,
            format!("This model's maximum context length is {most} tokens. However, an input has {tokens}."),
        )
    }

    /// Gives up requests whose readers left.
    fn drop_closed(&mut self) {
        for index in (0..self.work.len()).rev() {
            if self.work[index].job.closed.load(Ordering::Acquire) {
                self.remove(index);
            }
        }
    }

    /// Gives the embedder what it can hold, a text of each request in turn.
    fn feed(&mut self) {
        let most = self.embedder.traits().max_inputs;
        let mut idle = 0;
        while self.inside.len() < most && idle < self.work.len() {
            let Some(mut work) = self.work.pop_front() else { break };
            match work.left.pop_front() {
                Some((place, tokens)) => {
                    idle = 0;
                    self.inside.insert(self.next_input, (work.job.id, place));
                    self.embedder.submit(self.next_input, tokens, work.rank);
                    self.next_input += 1;
                }
                None => idle += 1,
            }
            self.work.push_back(work);
        }
    }

    fn fail(&mut self, index: usize, error: Error) {
        if let Some(work) = self.remove(index) {
            deliver(&self.shared, &work.job, Err(error));
        }
    }

    fn remove(&mut self, index: usize) -> Option<Work> {
        let work = self.work.remove(index)?;
        let embedder = &mut self.embedder;
        self.inside.retain(|&input, (request, _)| {
            let stays = *request != work.job.id;
            if !stays {
                embedder.cancel(input);
            }
            stays
        });
        Some(work)
    }
}

impl Work {
    fn into_answer(self) -> (Job, Embeddings) {
        let dimensions = self.job.request.dimensions;
        let finish = |vector: Vec<f32>| if self.rank { vector } else { normalized(vector, dimensions) };
        let vectors = self.vectors.into_iter().flatten().map(finish).collect();
        (self.job, Embeddings { vectors, tokens: self.tokens })
    }
}

/// The first `dimensions` numbers of a vector, scaled to length 1; zeros stay zeros.
fn normalized(mut vector: Vec<f32>, dimensions: Option<u32>) -> Vec<f32> {
    if let Some(count) = dimensions {
        vector.truncate(count as usize);
    }
    let length = vector.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt();
    if length > 0.0 {
        for value in &mut vector {
            *value = (f64::from(*value) / length) as f32;
        }
    }
    vector
}

/// What errors call an input.
fn at(request: &EmbedRequest, place: usize) -> String {
    if request.inputs.len() == 1 { request.param.clone() } else { format!("{}[{place}]", request.param) }
}

fn deliver(shared: &Shared, job: &Job, answer: Result<Embeddings>) {
    if !job.closed.load(Ordering::Acquire) {
        shared.deliver_embeddings(job.id, answer);
    }
}
