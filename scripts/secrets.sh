#!/usr/bin/env bash
# What docker-compose.yml keeps secret, made where it is missing: a password of 256 bits, the properties of Spark with a
# secret of as many, and the key and certificate that the API shows to this machine (renew it after a year: remove both
# files, and run this again). Only the owner enters the
# folder; in it, a file is readable, because containers read it under users of their own.
set -euo pipefail
cd "$(dirname "$0")/.."

umask 077
mkdir -p secrets
chmod 700 secrets
for name in catalog-password spark-properties; do
    if [[ -e secrets/$name ]]; then
        continue
    fi
    draft=$(mktemp "secrets/.$name.XXXXXX")
    value=$(python3 -c 'import secrets; print(secrets.token_urlsafe(32))')
    if [[ $name == spark-properties ]]; then
        cat >"$draft" <<END
spark.authenticate                  true
spark.authenticate.secret           $value
spark.network.crypto.enabled        true
spark.network.crypto.saslFallback   false
spark.master.rest.enabled           false
END
    else
        echo "$value" >"$draft"
    fi
    chmod 444 "$draft"
    mv -n "$draft" "secrets/$name"
    echo "secrets/$name: made"
done

if [[ ! -e secrets/api-key || ! -e secrets/api-certificate ]]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 397 -subj "/CN=zonekeeper" \
        -addext "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1,DNS:serve1,DNS:serve2" \
        -addext "basicConstraints=critical,CA:FALSE" -addext "extendedKeyUsage=serverAuth" \
        -keyout secrets/.api-key -out secrets/.api-certificate 2>/dev/null
    chmod 444 secrets/.api-key secrets/.api-certificate
    for name in api-key api-certificate; do
        mv "secrets/.$name" "secrets/$name"
        echo "secrets/$name: made"
    done
fi
