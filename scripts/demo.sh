#!/usr/bin/env bash
# Starts everything in a fresh directory, runs the demo, stops everything. Exit code: the demo's.
set -euo pipefail
cd "$(dirname "$0")/.."

directory=$(mktemp -d "${TMPDIR:-/tmp}/zonekeeper-demo.XXXXXX")
trap 'rm -rf "$directory"' EXIT

# In the background, so that a signal to this script is acted on at once. Ctrl-C reaches `up` from the terminal
# itself; anything that kills this script, even SIGKILL, ends `up` in order.
setpriv --pdeathsig TERM -- .venv/bin/zonectl up --nodes 3 --data-dir "$directory" --demo --exit &
up=$!
trap 'kill -TERM "$up" 2>/dev/null || true' TERM
trap : INT HUP

code=0
while kill -0 "$up" 2>/dev/null; do
    code=0
    wait "$up" || code=$?
done

# Above 128 somebody ended it: nothing is wrong then.
if [[ $code -ne 0 && $code -le 128 ]]; then
    echo "demo: exit code $code; the ends of the logs:" >&2
    tail -n 25 "$directory"/logs/*.log >&2 || true
fi
exit "$code"
