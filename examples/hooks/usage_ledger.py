"""A ledger of tokens in SQLite: `llgtrt ENGINE --hooks examples/hooks/usage_ledger.py:UsageLedger`.

py.hooks_arguments: {"file": "usage.sqlite"}. For billing: a row for each generation, written when it ends,
also when its client left; then with the tokens that were made for it. The user is the request's `user` field,
or the header `x-user`.
"""

import sqlite3
import threading
import time
from typing import Any

from llgtrt.hooks import HookEnd, HookRequest

TABLE = """
CREATE TABLE IF NOT EXISTS usage (
    ended_at REAL NOT NULL,
    request_id TEXT NOT NULL,
    key TEXT,
    user TEXT,
    model TEXT,
    outcome TEXT NOT NULL,
    prompt_tokens INTEGER,
    cached_tokens INTEGER,
    completion_tokens INTEGER NOT NULL
)
"""


class UsageLedger:
    """Writes one row at a time: a commit is some milliseconds, and nobody waits for it."""

    def __init__(self, arguments: dict[str, Any] | None) -> None:
        file = (arguments or {}).get("file", "usage.sqlite")
        self._lock = threading.Lock()
        self._database = sqlite3.connect(file, check_same_thread=False)
        # Readers do not wait for the writer, and a crash loses no committed row.
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute(TABLE)
        self._database.commit()

    def on_end(self, request: HookRequest, end: HookEnd) -> None:
        """Writes a row."""
        user = request.fields.get("user") or request.headers.get("x-user")
        row = (
            time.time(),
            request.id,
            request.key,
            user,
            request.model,
            end.outcome,
            end.prompt_tokens,
            end.cached_tokens,
            end.completion_tokens,
        )
        with self._lock, self._database:
            self._database.execute(f"INSERT INTO usage VALUES ({', '.join('?' * len(row))})", row)
