#!/usr/bin/env bash
# Creates .venv with exactly the locked packages, the project itself and its Python client. Safe to repeat.
set -euo pipefail
cd "$(dirname "$0")/.."

is_recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3.11 python3.12 python3.13 python3; do
        if command -v "$candidate" >/dev/null && is_recent "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    echo "setup: Python 3.11 or later is needed; install it, or name one: make PYTHON=/path/to/python3.11" >&2
    return 1
}

if [[ ! -x .venv/bin/python ]] || ! is_recent .venv/bin/python; then
    python=$(find_python)
    echo "setup: creating .venv with $("$python" --version)"
    if ! "$python" -m venv --clear .venv; then
        echo "setup: $python cannot create a virtual environment (Debian: apt-get install python3-venv)" >&2
        exit 1
    fi
fi

echo "setup: installing the locked packages (about a minute from a cold start)"
# Twice quiet: a package index that lacks a package is no news where another one has it.
.venv/bin/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements.lock
# The lock holds setuptools, so the project itself and the client for programs are built with nothing fetched.
.venv/bin/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e . -e clients/python
echo "setup: starting Spark once, so that its later starts are quick"
timeout -s KILL 120 .venv/bin/python -m spark.class_archive >/dev/null 2>&1 || echo "setup: it did not start; zonectl doctor says why"
echo "setup: done; the command is .venv/bin/zonectl"
