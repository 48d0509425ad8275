#!/usr/bin/env bash
# The benches in order; each prints one table. See benches/README.md.
set -euo pipefail
cd "$(dirname "$0")/.."

.venv/bin/python benches/masks.py
.venv/bin/python benches/serve.py
.venv/bin/python benches/frontend.py
.venv/bin/python benches/mask_kernel.py
