#!/usr/bin/env bash
# Makes .venv from uv.lock. Needs Python 3.11 or later and a Python package index; brings uv itself if it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }

# Prints the newest usable Python, or fails with what to do.
find_python() {
  local name
  for name in "${PYTHON:-}" python3.13 python3.12 python3.11 python3; do
    [ -n "$name" ] || continue
    if "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; then
      command -v "$name"
      return
    fi
  done
  say "set-up: found no Python 3.11, 3.12 or 3.13 on the PATH. Install one, or name it: make PYTHON=/path/to/python3.11 …"
  return 1
}

# Prints the path of uv, installing it under build/tools when the machine has none.
find_uv() {
  if command -v uv >/dev/null && uv --version >/dev/null 2>&1; then
    command -v uv
    return
  fi
  local tools=build/tools
  if [ ! -x "$tools/bin/uv" ]; then
    say "set-up: no uv on this machine; installing it under $tools"
    rm -rf "$tools"
    if ! { "$1" -m venv "$tools" 2>/dev/null && "$tools/bin/python" -m pip install --quiet 'uv>=0.8'; }; then
      # Debian ships Python without the venv module; pip alone is enough.
      rm -rf "$tools"
      "$1" -m pip install --quiet --target "$tools" 'uv>=0.8' || {
        say "set-up: could not install uv with $1. Install python3-venv or uv, then try again."
        return 1
      }
    fi
  fi
  printf '%s\n' "$PWD/$tools/bin/uv"
}

python=$(find_python)
uv=$(find_uv "$python")
say "set-up: $("$python" --version), $("$uv" --version | cut -d' ' -f1-2); installing what uv.lock names into .venv"
# An environment that is there stays on its own Python: another path to the same one would make uv begin anew.
[ ! -x .venv/bin/python ] || python=$PWD/.venv/bin/python
UV_PYTHON_DOWNLOADS=never "$uv" sync --frozen --python "$python" "$@" 2> >(grep -v '^ [+~-] ' >&2)
mkdir -p build
touch build/.set-up
say "set-up: ready"
