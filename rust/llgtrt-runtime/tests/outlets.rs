//! Frames that the output thread writes to a connection: the same bytes as a reader gets, whatever the connection takes.

mod support;

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use llgtrt_runtime::{OutputFormat, Payload, RequestHandle, Runtime};
use rustix::net::sockopt::set_socket_send_buffer_size;
use support::{read_all, request, sim, start, submit, wait_readable};

const DEADLINE: Duration = Duration::from_secs(20);

/// The body in chunks of HTTP/1.1.
fn dechunked(mut body: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    while !body.is_empty() {
        let head = body.windows(2).position(|pair| pair == b"\r\n").expect("a chunk's size");
        let size = std::str::from_utf8(&body[..head]).expect("digits");
        let size = usize::from_str_radix(size, 16).expect("a number");
        assert!(size > 0, "an empty chunk ends a body");
        let (chunk, rest) = body[head + 2..].split_at(size);
        text.extend_from_slice(chunk);
        body = rest.strip_prefix(b"\r\n").expect("the end of a chunk");
    }
    text
}

/// What a server does: writes a chunk itself where the connection has something waiting, and the end.
struct Server<'a> {
    runtime: &'a Runtime,
    handle: &'a RequestHandle,
    connection: UnixStream,
    /// What waits to be written.
    waiting: Vec<u8>,
    /// Chunks that the connection did not take at once.
    unsent: usize,
    /// Chunks that came through the reader.
    own: usize,
}

impl Server<'_> {
    fn write_waiting(&mut self) {
        match self.connection.write(&self.waiting) {
            Ok(written) => drop(self.waiting.drain(..written)),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }

    fn chunk(&mut self, frames: &[u8]) {
        self.own += 1;
        if self.waiting.is_empty() {
            self.waiting = self.handle.write_to(self.connection.as_fd(), frames).expect("a descriptor");
            self.unsent += usize::from(!self.waiting.is_empty());
        } else {
            write!(self.waiting, "{:x}\r\n", frames.len()).expect("memory");
            self.waiting.extend_from_slice(frames);
            self.waiting.extend_from_slice(b"\r\n");
        }
    }

    /// Handles a payload; true at the end.
    fn handle(&mut self, payload: Payload, last: bool) -> bool {
        match payload {
            Payload::Sse(frames) => self.chunk(&frames),
            Payload::Unsent(rest) => {
                self.unsent += 1;
                assert!(self.waiting.is_empty(), "two write at a time");
                self.waiting = rest;
            }
            other => panic!("expected frames, not {other:?}"),
        }
        last
    }

    /// Handles a payload and those that are ready after it, with a client that reads all; true at the end.
    fn handle_ready(&mut self, mut next: Option<(Payload, bool)>) -> bool {
        while let Some((payload, last)) = next {
            self.handle(payload, last);
            while !self.waiting.is_empty() {
                self.write_waiting();
            }
            if last {
                return true;
            }
            next = self.handle.take();
        }
        false
    }

    /// Serves the request to its end, with a client that reads so many bytes at a time.
    fn run(&mut self, client: &mut UnixStream, read_bytes: usize) -> Vec<u8> {
        let deadline = Instant::now() + DEADLINE;
        let mut body = Vec::new();
        let mut buffer = vec![0; read_bytes];
        let mut ended = false;
        while !ended {
            while !ended && let Some((payload, last)) = self.handle.take() {
                ended = self.handle(payload, last);
            }
            if !ended {
                wait_readable(self.runtime, deadline);
                for (id, payload, last) in self.runtime.drain() {
                    assert_eq!(id, self.handle.id());
                    ended = self.handle(payload, last);
                }
            }
            body.extend_from_slice(read_some(client, &mut buffer));
            self.write_waiting();
        }
        while !self.waiting.is_empty() {
            body.extend_from_slice(read_some(client, &mut buffer));
            self.write_waiting();
        }
        self.connection.shutdown(std::net::Shutdown::Write).expect("open");
        client.set_nonblocking(false).expect("open");
        client.read_to_end(&mut body).expect("the rest, and the end: no second descriptor keeps it open");
        body
    }
}

fn read_some<'a>(client: &mut UnixStream, buffer: &'a mut [u8]) -> &'a [u8] {
    match client.read(buffer) {
        Ok(count) => &buffer[..count],
        Err(error) if error.kind() == ErrorKind::WouldBlock => &[],
        Err(error) => panic!("{error}"),
    }
}

/// The frames of a request that a reader takes, its events joined.
fn read_frames(runtime: &Runtime, prompt: &str) -> String {
    let handle = submit(runtime, request(prompt, OutputFormat::ChatSse));
    let mut frames = Vec::new();
    for payload in read_all(runtime, &handle) {
        let Payload::Sse(bytes) = payload else { panic!("expected frames") };
        frames.extend(bytes);
    }
    contents(&frames)
}

/// The text and the ends in some frames: how often an answer was looked at does not show in it.
fn contents(frames: &[u8]) -> String {
    let mut text = String::new();
    for frame in std::str::from_utf8(frames).expect("UTF-8").split_terminator("\n\n") {
        match serde_json::from_str::<serde_json::Value>(&frame["data: ".len()..]) {
            Ok(chunk) => {
                let choice = &chunk["choices"][0];
                text.push_str(choice["delta"]["content"].as_str().unwrap_or_default());
                text.extend(choice["finish_reason"].as_str().map(|reason| format!("<{reason}>")));
            }
            Err(_) => text.push_str(frame),
        }
    }
    text
}

#[test]
fn a_connection_gets_what_a_reader_would() {
    let runtime = start(sim(r#"{"step_us": 200}"#), 8);
    let expected = read_frames(&runtime, "hello");
    let handle = submit(&runtime, request("hello", OutputFormat::ChatSse));
    let (connection, mut client) = UnixStream::pair().expect("sockets");
    for end in [&connection, &client] {
        end.set_nonblocking(true).expect("open");
    }
    let mut server =
        Server { runtime: &runtime, handle: &handle, connection, waiting: Vec::new(), unsent: 0, own: 0 };
    let body = server.run(&mut client, 1 << 16);
    assert_eq!(contents(&dechunked(&body)), expected);
    assert_eq!(server.unsent, 0);
    // The first and the last: what lies between went there by itself.
    assert!(server.own <= 3, "{} of the chunks came through the reader", server.own);
}

#[test]
fn steps_may_come_faster_than_they_are_written() {
    const STREAMS: usize = 16;
    let runtime = start(sim(r#"{"step_us": 0}"#), STREAMS);
    let prompts: Vec<_> = (0..STREAMS).map(|index| format!("prompt {index}")).collect();
    let expected: Vec<_> = prompts.iter().map(|prompt| read_frames(&runtime, prompt)).collect();
    let handles: Vec<_> =
        prompts.iter().map(|prompt| submit(&runtime, request(prompt, OutputFormat::ChatSse))).collect();
    let (mut servers, mut readers) = (HashMap::new(), Vec::new());
    for handle in &handles {
        let (connection, mut client) = UnixStream::pair().expect("sockets");
        connection.set_nonblocking(true).expect("open");
        readers.push(std::thread::spawn(move || {
            let mut body = Vec::new();
            client.read_to_end(&mut body).map(|_| body)
        }));
        let server = Server { runtime: &runtime, handle, connection, waiting: Vec::new(), unsent: 0, own: 0 };
        servers.insert(handle.id(), server);
    }
    let deadline = Instant::now() + DEADLINE;
    let mut came: Vec<_> = handles.iter().map(|handle| (handle.id(), handle.take())).collect();
    loop {
        for (id, next) in came {
            let server = servers.get_mut(&id).expect("nothing comes after the end");
            if server.handle_ready(next) {
                server.connection.shutdown(std::net::Shutdown::Write).expect("open");
                servers.remove(&id);
            }
        }
        if servers.is_empty() {
            break;
        }
        wait_readable(&runtime, deadline);
        came = runtime.drain().into_iter().map(|(id, payload, last)| (id, Some((payload, last)))).collect();
    }
    for (reader, expected) in readers.into_iter().zip(expected) {
        let body = reader.join().expect("no panic").expect("the end of a body");
        assert_eq!(contents(&dechunked(&body)), expected);
    }
}

#[test]
fn what_a_slow_client_does_not_take_comes_back_once_and_in_order() {
    let runtime = start(sim(r#"{"step_us": 100}"#), 8);
    let mut unsent = 0;
    for (prompt, read_bytes) in [("one", 7), ("two", 100), ("three", 700)] {
        let expected = read_frames(&runtime, prompt);
        let handle = submit(&runtime, request(prompt, OutputFormat::ChatSse));
        let (connection, mut client) = UnixStream::pair().expect("sockets");
        for end in [&connection, &client] {
            end.set_nonblocking(true).expect("open");
        }
        set_socket_send_buffer_size(&connection, 1).expect("the kernel's least");
        let mut server =
            Server { runtime: &runtime, handle: &handle, connection, waiting: Vec::new(), unsent: 0, own: 0 };
        let body = server.run(&mut client, read_bytes);
        assert_eq!(contents(&dechunked(&body)), expected, "{read_bytes} bytes at a time");
        unsent += server.unsent;
    }
    assert!(unsent > 0, "the clients were not slow");
}

#[test]
fn a_connection_that_is_gone_is_the_readers_to_find() {
    let runtime = start(sim(r#"{"step_us": 1000}"#), 8);
    let handle = submit(&runtime, request("hello", OutputFormat::ChatSse));
    let (connection, client) = UnixStream::pair().expect("sockets");
    let deadline = Instant::now() + DEADLINE;
    let mut next = handle.take();
    while next.is_none() {
        wait_readable(&runtime, deadline);
        next = runtime.drain().pop().map(|(_, payload, last)| (payload, last));
    }
    let Some((Payload::Sse(frames), false)) = next else { panic!("expected frames") };
    assert!(handle.write_to(connection.as_fd(), &frames).expect("a descriptor").is_empty());
    assert!(handle.since_written().is_some());
    assert!(handle.take().is_none_or(|(_, last)| !last));
    drop((connection, client));
    let mut came = Vec::new();
    while came.is_empty() {
        if let Some((payload, _)) = handle.take() {
            came.push(payload);
            break;
        }
        wait_readable(&runtime, deadline);
        came.extend(runtime.drain().into_iter().map(|(_, payload, _)| payload));
    }
    // Written to nobody, it is neither lost nor the end of anything else.
    assert!(matches!(came[0], Payload::Unsent(_) | Payload::Sse(_)), "{came:?}");
    let rest = handle.stop_writing();
    assert!(rest.is_empty() || matches!(came[0], Payload::Sse(_)), "the end of a chunk comes once");
    assert!(handle.since_written().is_none());
}
