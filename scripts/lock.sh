#!/usr/bin/env bash
# Writes requirements.lock anew: every version and hash, for every platform. Needs uv (pip install uv).
set -euo pipefail
cd "$(dirname "$0")/.."

uv=$(command -v uv || echo .venv/bin/uv)
{
    echo "# Written by \`make lock\` from pyproject.toml (with the extra \"test\") and its build requirement."
    # The build requirement too, so that the project is installed without fetching anything more.
    sed -n 's/^requires = \["\(setuptools[^"]*\)"\]/\1/p' pyproject.toml |
        "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra test --upgrade \
            --no-header pyproject.toml -
} >requirements.lock.new
mv requirements.lock.new requirements.lock
