#!/usr/bin/env bash
# Runs parts one after the other, each "name=command", until one fails; then says how many seconds each took.
set -euo pipefail
cd "$(dirname "$0")/.."

figures=()
status=0
begun=$SECONDS
for part in "$@"; do
    before=$SECONDS
    echo "== ${part%%=*}"
    bash -euo pipefail -c "${part#*=}" || status=$?
    figures+=("${part%%=*} $((SECONDS - before))")
    [[ $status == 0 ]] || break
done
result=passed
[[ $status == 0 ]] || result="failed in ${figures[-1]% *}"
echo "== $result after $((SECONDS - begun)) s: $(printf '%s s, ' "${figures[@]}" | sed 's/, $//')"
exit "$status"
