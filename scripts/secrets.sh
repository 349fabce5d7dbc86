#!/usr/bin/env bash
# Passwords for docker-compose.yml, 256 bits each, made where they are missing. Only the owner enters the folder; in it,
# a file is readable, because containers read it under users of their own.
set -euo pipefail
cd "$(dirname "$0")/.."

umask 077
mkdir -p secrets
chmod 700 secrets
for name in catalog-password; do
    if [[ -e secrets/$name ]]; then
        continue
    fi
    draft=$(mktemp "secrets/.$name.XXXXXX")
    python3 -c 'import secrets; print(secrets.token_urlsafe(32))' >"$draft"
    chmod 444 "$draft"
    mv -n "$draft" "secrets/$name"
    echo "secrets/$name: made"
done
