"""Section ``kv_events``: what the prefix cache holds, told to routers."""

from pydantic import Field

from .section import Section


class KvEventsConfig(Section):
    """Events of the prefix cache, as vLLM publishes them (ZMQ, msgpack): see docs/scaling.md.

    Needs `pip install llgtrt[kv-events]`."""

    endpoint: str | None = Field(
        default=None,
        description="Where to publish: zmq://*:5557 or ipc:///a/path listens, zmq://HOST:5557 connects to\n"
        "an indexer that listens. tcp:// is another word for zmq://. null: nowhere.",
    )
    replay_endpoint: str | None = Field(
        default=None,
        description="Where subscribers may ask for what they missed: zmq://*:5558. null: nowhere.",
    )
    replay_batches: int = Field(
        default=10_000, ge=1, le=1_000_000, description="Batches of events that are kept for them."
    )
    topic: str = Field(
        default="",
        description='First frame of every message. Indexers of llm-d want "kv@ADDRESS:PORT@MODEL", with the\n'
        "address and port where their picker sends requests.",
    )
    block_size: int = Field(
        default=16,
        ge=1,
        le=4096,
        description="Tokens of a block. Routers must be told the same. Divides the blocks of\n"
        "TensorRT-LLM's engine.",
    )
