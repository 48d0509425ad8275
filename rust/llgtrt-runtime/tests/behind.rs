//! Answers whose beginning comes with the prompt, and output that names its tokens.

mod support;

use llgtrt_core::{ErrorKind, GrammarSpec, TokenId};
use llgtrt_runtime::{GenerateRequest, LogprobsForm, OutputFormat, Payload, Prompt, Runtime};
use support::{collect, error_of, read_all, request, schema, sim, start, submit};

const PERSON: &str = r#"{"type":"object","properties":{"name":{"type":"string","maxLength":12},
    "tags":{"type":"array","minItems":2,"maxItems":4,"uniqueItems":true,"items":{"enum":["red","green","日本","blue"]}}},
    "required":["name","tags"],"additionalProperties":false}"#;

fn asking(prompt: &[u8]) -> GenerateRequest {
    let mut asked = request("", OutputFormat::Deltas);
    asked.prompts = vec![Prompt::Tokens(prompt.iter().map(|&byte| byte.into()).collect())];
    (asked.text_token_ids, asked.max_tokens, asked.receipt) = (true, Some(200), None);
    asked
}

/// The text so far and its tokens, for every delta.
fn growth(runtime: &Runtime, asked: GenerateRequest) -> Vec<(String, Vec<TokenId>)> {
    let handle = submit(runtime, asked);
    let (mut text, mut tokens) = (String::new(), Vec::new());
    read_all(runtime, &handle)
        .into_iter()
        .map(|payload| {
            let Payload::Delta(delta) = payload else { panic!("expected a delta") };
            assert_eq!(delta.error, None);
            for choice in delta.choices {
                text.push_str(&choice.text);
                tokens.extend(choice.text_token_ids.expect("asked for"));
            }
            (text.clone(), tokens.clone())
        })
        .collect()
}

fn bytes(tokens: &[TokenId]) -> Vec<u8> {
    tokens.iter().map(|&token| u8::try_from(token).expect("a byte")).collect()
}

#[test]
fn tokens_are_named_with_the_text_that_they_complete() {
    let runtime = start(sim(r#"{"text":"script","script":"on日本né END of it"}"#), 8);
    let mut asked = asking(b"go");
    asked.stop = vec!["END".to_owned()];
    let steps = growth(&runtime, asked.clone());
    for (text, tokens) in &steps {
        assert_eq!(bytes(tokens), text.as_bytes());
    }
    assert_eq!(steps.last().expect("output").0, "on日本né ");
    asked.output = OutputFormat::Final;
    let handle = submit(&runtime, asked);
    let (_, last) = collect(read_all(&runtime, &handle));
    assert_eq!(bytes(last.choices[0].text_token_ids.as_deref().expect("asked for")), "on日本né ".as_bytes());
}

#[test]
fn tokens_and_log_probabilities_go_together() {
    let runtime = start(sim(r#"{"text":"script","script":"né"}"#), 8);
    let mut asked = asking(b"go");
    (asked.output, asked.logprobs_form) = (OutputFormat::Final, LogprobsForm::Tokens);
    asked.sampling.logprobs = Some(2);
    let handle = submit(&runtime, asked);
    let (_, last) = collect(read_all(&runtime, &handle));
    let choice = &last.choices[0];
    assert_eq!(bytes(choice.text_token_ids.as_deref().expect("asked for")), "né".as_bytes());
    let logprobs: serde_json::Value =
        serde_json::from_str(choice.logprobs.as_deref().expect("asked for")).expect("JSON");
    assert_eq!(logprobs["logprobs"].as_array().expect("a list").len(), 3);
    assert_eq!(logprobs["top"].as_array().expect("a list").len(), 3);
    assert!(logprobs["top"][0][0][0].is_u64() && logprobs["top"][0][1][1].is_f64(), "{logprobs}");
    // Nobody asked: they are not named.
    let handle = submit(&runtime, request("go", OutputFormat::Final));
    assert_eq!(collect(read_all(&runtime, &handle)).1.choices[0].text_token_ids, None);
}

#[test]
fn a_constrained_answer_goes_on_wherever_its_first_server_ended() {
    let runtime = start(sim("{}"), 64);
    for seed in 0..4 {
        let mut first = asking(b"a person");
        (first.grammar, first.seed) = (Some(schema(PERSON)), Some(seed));
        let (answer, tokens) = growth(&runtime, first.clone()).pop().expect("output");
        assert_eq!(bytes(&tokens), answer.as_bytes());
        // A server may end between any two characters that it has sent: how many come in one delta is the reader's speed.
        for end in (0..=answer.len()).filter(|&end| answer.is_char_boundary(end)) {
            let (text, tokens) = (&answer[..end], &tokens[..end]);
            let mut second = first.clone();
            second.prompts = vec![Prompt::Tokens(
                b"a person".iter().map(|&byte| byte.into()).chain(tokens.iter().copied()).collect(),
            )];
            (second.generated_tokens, second.seed) = (tokens.len() as u32, Some(seed + 100));
            second.max_tokens = Some(200 - tokens.len() as u32);
            let rest = growth(&runtime, second).pop().expect("output").0;
            let whole = format!("{text}{rest}");
            let value: serde_json::Value =
                serde_json::from_str(&whole).unwrap_or_else(|error| panic!("{error}: {whole}"));
            let tags = value["tags"].as_array().expect("a list");
            assert!(value["name"].is_string() && (2..=4).contains(&tags.len()), "{whole}");
            assert!(tags.iter().enumerate().all(|(index, tag)| !tags[..index].contains(tag)), "{whole}");
        }
    }
}

#[test]
fn a_stop_string_ends_it_where_the_whole_answer_may_end() {
    let runtime = start(sim(r#"{"text":"script","script":"two,one,two"}"#), 8);
    let mut asked = asking(b"count: (one,");
    asked.grammar = Some(GrammarSpec::Regex(r"\((one,|two,)+\)?".to_owned()));
    (asked.stop, asked.generated_tokens) = (vec!["wo".to_owned(), "one".to_owned()], 5);
    assert_eq!(growth(&runtime, asked).pop().expect("output").0, "two,");
}

#[test]
fn a_beginning_that_is_none_is_refused() {
    let runtime = start(sim("{}"), 8);
    let mut asked = asking(b"a person{\"x");
    (asked.grammar, asked.grammar_param) = (Some(schema(PERSON)), Some("guided_decoding.json".to_owned()));
    asked.generated_tokens = 3;
    let error = error_of(&runtime, asked.clone());
    assert_eq!((error.kind, error.param.as_deref()), (ErrorKind::Grammar, Some("guided_decoding.json")));
    asked.generated_tokens = 11;
    assert_eq!(error_of(&runtime, asked).kind, ErrorKind::InvalidRequest, "nothing is left of the prompt");
}
