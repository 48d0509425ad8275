"""How much memory a model takes, and how much there is."""

from dataclasses import dataclass
from pathlib import Path

from .gguf import read_numbers
from .settings import Settings

DEFAULT_SLOTS = 8
DEFAULT_CONTEXT = 4096
CELLS_AT_ONCE = 256
"""What llama.cpp takes where nothing is configured, and what it rounds a context up to."""

DRAFT_CONTEXT = 1024
DRAFT_CACHE_TYPE = "f16"
"""What a draft model's slot holds at most, and in which format."""

BYTES_PER_NUMBER = {
    "f32": 4.0,
    "f16": 2.0,
    "bf16": 2.0,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
    "iq4_nl": 18 / 32,
}
"""By the format of the KV cache; blocks of 32 numbers with their scales."""

_NUMBERS = frozenset(
    {
        "block_count",
        "context_length",
        "embedding_length",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
    }
)

_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class MemoryNeed:
    """What a model takes, in bytes, with the draft model beside it.

    Attributes:
        weights: the size of its files.
        cache: the KV cache of all its slots.
        layers: how many there are of the model.
    """

    weights: int
    cache: int
    layers: int

    @property
    def total(self) -> int:
        """Both."""
        return self.weights + self.cache


def memory_need(settings: Settings) -> MemoryNeed | None:
    """What a model takes; ``None`` where that is not known: TensorRT-LLM's executor takes what it finds, and
    simulated models take next to nothing.

    Raises:
        ConfigError: the model's file cannot be read.
    """
    if settings.backend != "llamacpp" or settings.model_path is None:
        return None
    need = _need_of(settings, settings.model_path, settings.config.llamacpp.kv_cache_type)
    draft = settings.config.llamacpp.draft_model
    # A folder that holds one is looked into when it is loaded.
    if draft is not None and Path(draft).is_file():
        more = _need_of(settings, Path(draft), DRAFT_CACHE_TYPE, DRAFT_CONTEXT)
        need = MemoryNeed(need.weights + more.weights, need.cache + more.cache, need.layers)
    return need


def _need_of(settings: Settings, file: Path, cache_type: str, most_context: int | None = None) -> MemoryNeed:
    weights = sum(part.stat().st_size for part in model_parts(file))
    numbers = read_numbers(file, _NUMBERS)
    layers = numbers.get("block_count", 0)
    cache = _cache_bytes(settings, numbers, cache_type, most_context)
    return MemoryNeed(weights, cache, layers if isinstance(layers, int) else 0)


def _cache_bytes(
    settings: Settings,
    numbers: dict[str, int | list[int]],
    cache_type: str,
    most_context: int | None,
) -> int:
    """Keys and values of every layer, for the whole context of every slot."""

    def number(name: str, default: int) -> int:
        value = numbers.get(name, default)
        return max(value, default=default) if isinstance(value, list) else value

    layers = number("block_count", 0)
    heads = max(number("attention.head_count", 1), 1)
    head_size = number("embedding_length", 0) // heads
    kv_heads = numbers.get("attention.head_count_kv", heads)
    all_heads = sum(kv_heads) if isinstance(kv_heads, list) else kv_heads * layers
    width = number("attention.key_length", head_size) + number("attention.value_length", head_size)
    runtime = settings.config.runtime
    context = runtime.max_seq_len or min(number("context_length", DEFAULT_CONTEXT), DEFAULT_CONTEXT)
    context = min(context, most_context or context)
    cells = -(-context // CELLS_AT_ONCE) * CELLS_AT_ONCE * (runtime.max_batch_size or DEFAULT_SLOTS)
    return round(all_heads * width * cells * BYTES_PER_NUMBER[cache_type])


def is_on_gpu(settings: Settings, need: MemoryNeed, gpu: int | None) -> bool | None:
    """Whether a model goes to the GPUs; ``None``: a part of it, and what goes where only llama.cpp knows.

    ``gpu``: bytes that are free on those that llama.cpp can use; ``None``: it can use none.
    """
    layers = settings.config.llamacpp.gpu_layers
    if gpu is None or layers == 0:
        return False
    # The one more gives the logits.
    return True if layers is None or layers > need.layers else None


def model_parts(first: Path) -> list[Path]:
    """All files of a model that may be split."""
    stem, mark, rest = first.name.rpartition("-00001-of-")
    return sorted(first.parent.glob(f"{stem}-*-of-{rest}")) if mark else [first]


def available_memory() -> int | None:
    """Bytes that can be used without swapping, within the limit of the process's control group, too; ``None``
    where nobody says."""
    found = [free for free in (_free_of_machine(), _free_of_group()) if free is not None]
    return min(found, default=None)


def _free_of_machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    return None


def _free_of_group() -> int | None:
    """What is left of the limit of a control group (version 2), or of one around it."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    path = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    if path is None:
        return None
    found = [free_of_group(group) for group in (_CGROUPS / path, *(_CGROUPS / path).parents)]
    return min((free for free in found if free is not None), default=None)


def free_of_group(group: Path) -> int | None:
    """What is left of the limit of a control group; ``None`` if it has none."""
    try:
        limit = (group / "memory.max").read_text(encoding="ascii").strip()
        used = int((group / "memory.current").read_text(encoding="ascii"))
        stat = dict(line.split() for line in (group / "memory.stat").read_text(encoding="ascii").splitlines())
    except (OSError, ValueError):
        return None
    if limit == "max":
        return None
    # Files in the page cache are counted, and go when memory is wanted.
    cached = int(stat.get("active_file", 0)) + int(stat.get("inactive_file", 0))
    return max(int(limit) - used + cached, 0)
