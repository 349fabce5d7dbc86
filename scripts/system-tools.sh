#!/usr/bin/env bash
# What pip cannot bring: Java 17+ for Spark, setpriv for child processes, etcd; with --browser only what tests need:
# Chromium, which looks at the console's pages, iproute2, which cuts and slows links, and Prometheus without its
# service, which reads metrics. Installs what is missing where that is allowed (root, or sudo without a password; never
# with NO_INSTALL=1), else says how. Fast when all is there.
set -euo pipefail

sudo=""
[[ $(id -u) -eq 0 ]] || sudo="sudo"

may_install() {
    [[ -z ${NO_INSTALL:-} ]] || return 1
    command -v apt-get >/dev/null || command -v dnf >/dev/null || return 1
    [[ -z $sudo ]] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }
}

# A package's service must not start: `zonectl up` runs an etcd of its own.
install_quietly() {
    if ! command -v apt-get >/dev/null; then
        $sudo dnf install -y -q "$@"
        return
    fi
    local policy=/usr/sbin/policy-rc.d ours="" result=0
    if [[ ! -e $policy ]]; then
        printf '#!/bin/sh\nexit 101\n' | $sudo tee "$policy" >/dev/null
        $sudo chmod 755 "$policy"
        ours=yes
    fi
    { $sudo apt-get update -qq &&
        $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; } || result=$?
    [[ -z $ours ]] || $sudo rm -f "$policy"
    return "$result"
}

java_major() {
    local java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    "$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

java_package() {
    if ! command -v apt-get >/dev/null; then
        echo java-17-openjdk-headless
    elif apt-cache show openjdk-17-jre-headless >/dev/null 2>&1; then
        echo openjdk-17-jre-headless
    else
        echo default-jre-headless
    fi
}

has_java() {
    local major
    major=$(java_major) || return 1
    [[ -n $major && $major -ge 17 ]]
}

has_browser() {
    command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null
}

if [[ ${1:-} == --browser ]]; then
    # Without it, or without root, the tests that cut links are skipped, and fail in CI (CONTRIBUTING.md).
    if ! { command -v ip && command -v tc; } >/dev/null && may_install; then
        echo "setup: installing iproute2 for the tests that cut links"
        if command -v apt-get >/dev/null; then install_quietly iproute2; else install_quietly iproute iproute-tc; fi || true
    fi
    if ! has_browser && may_install; then
        echo "setup: installing Chromium (chromium) for the console's tests"
        install_quietly chromium || true
    fi
    if ! has_browser; then
        echo "setup: the console's tests need Chromium; install it: ${sudo:+$sudo }apt-get install chromium" >&2
        exit 1
    fi
    if ! command -v promtool >/dev/null && may_install; then
        echo "setup: installing Prometheus (prometheus) for the metrics' tests, without starting its service"
        if command -v apt-get >/dev/null; then
            install_quietly prometheus || true
        else
            install_quietly golang-github-prometheus || true
        fi
        # Nor after the next start of the machine.
        if command -v systemctl >/dev/null; then $sudo systemctl disable -q prometheus 2>/dev/null || true; fi
    fi
    if ! command -v promtool >/dev/null; then
        echo "setup: the metrics' tests need promtool; install it: ${sudo:+$sudo }apt-get install prometheus" >&2
        exit 1
    fi
    exit 0
fi

if ! command -v setpriv >/dev/null; then
    echo "setup: setpriv is needed (package util-linux)" >&2
    exit 1
fi

if ! has_java; then
    package=$(java_package)
    if may_install; then
        echo "setup: installing Java ($package) for Spark"
        install_quietly "$package" || true
    fi
    if ! has_java; then
        echo "setup: Spark needs Java 17 or later; install it: ${sudo:+$sudo }apt-get install $package" >&2
        exit 1
    fi
fi

# A learner's first copy is restored by etcdutl (etcdctl before etcd 3.5).
has_restore() {
    command -v etcdutl >/dev/null || command -v etcdctl >/dev/null
}

if ! command -v etcd >/dev/null || ! has_restore; then
    packages=(etcd-server etcd-client)
    command -v apt-get >/dev/null || packages=(etcd)
    if may_install; then
        echo "setup: installing etcd (${packages[*]}), without starting its service"
        install_quietly "${packages[@]}" || true
    fi
    if ! command -v etcd >/dev/null; then
        echo "setup: warning: no etcd on PATH, the bundled 3.5.1 will be used; for more than a trial:" \
            "apt-get install ${packages[*]}" >&2
    elif ! has_restore; then
        echo "setup: warning: no etcdutl or etcdctl on PATH, learners cannot be copied:" \
            "apt-get install ${packages[*]}" >&2
    fi
fi
