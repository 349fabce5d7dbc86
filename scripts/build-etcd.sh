#!/usr/bin/env bash
# Builds etcd, etcdctl and etcdutl of one version from their Go modules, for tests of etcd's minor versions and for
# trying an upgrade:
#
#   scripts/build-etcd.sh VERSION
#
# VERSION is 3.5.33 or a later 3.5, or 3.6.14 or a later 3.6. Prints the directory with the three programs, alone on
# stdout: ${TMPDIR:-/tmp}/zonekeeper-etcd-VERSION. What was built is kept there, and a second call builds nothing.
# Needs go 1.25 or later; modules come from the module proxy that go is set up with (GOPROXY), and are checked as go
# always does it, against the checksum database (GOSUMDB). The first build takes some minutes.
set -euo pipefail

# The first releases of each minor version that these tests know.
declare -A FIRST=([3.5]=33 [3.6]=14)
PROGRAMS=(etcd etcdctl etcdutl)

fail() {
    echo "build-etcd: $*" >&2
    exit 1
}

usage() {
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"
}

# Whether all programs are there, and etcd is of the version.
is_built() {
    local directory=$1 program
    for program in "${PROGRAMS[@]}"; do
        [[ -x $directory/$program ]] || return 1
    done
    [[ $("$directory/etcd" --version) == "etcd Version: $version"* ]]
}

case ${1:-} in
-h | --help)
    usage
    exit 0
    ;;
esac
[[ $# -eq 1 ]] || fail "name one version, such as 3.5.33 (--help says more)"

version=${1#v}
[[ $version =~ ^([0-9]+\.[0-9]+)\.([0-9]+)$ ]] || fail "$1 is no version such as 3.5.33"
minor=${BASH_REMATCH[1]} patch=${BASH_REMATCH[2]}
first=${FIRST[$minor]:-}
[[ -n $first ]] || fail "etcd $minor is not built here, only ${!FIRST[*]}"
[[ $patch -ge $first ]] || fail "etcd $version is older than $minor.$first, the first that is built here"

directory=${TMPDIR:-/tmp}/zonekeeper-etcd-$version
# A folder that all may write to: nobody else's programs are run.
[[ ! -e $directory || -O $directory ]] || fail "$directory belongs to somebody else: remove it, or set TMPDIR"
if is_built "$directory" 2>/dev/null; then
    echo "$directory"
    exit 0
fi

command -v go >/dev/null || fail "go is not on PATH: install it (1.25 or later) to build etcd $version"

work=$(mktemp -d "${directory}.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/module" "$work/programs"
cd "$work/module"
# A module of its own: those of etcd replace each other by folders that they do not bring along, and are built as what
# another one requires.
export GOFLAGS=-mod=mod GOWORK=off CGO_ENABLED=0
{
    echo "build-etcd: building etcd $version"
    go mod init zonekeeper.invalid/etcd
    go get "go.etcd.io/etcd/server/v3@v$version" "go.etcd.io/etcd/etcdctl/v3@v$version" \
        "go.etcd.io/etcd/etcdutl/v3@v$version"
    for program in "${PROGRAMS[@]}"; do
        module=$program
        [[ $program != etcd ]] || module=server
        go build -trimpath -o "$work/programs/$program" "go.etcd.io/etcd/$module/v3"
    done
    go mod verify
} >"$work/log" 2>&1 || {
    tail -n 20 "$work/log" >&2
    fail "etcd $version could not be built"
}
is_built "$work/programs" || fail "what was built is not etcd $version: $("$work/programs/etcd" --version | head -n 1)"

# Another call may have been faster; what it has built is as good.
[[ ! -e $directory ]] || is_built "$directory" 2>/dev/null || rm -rf "$directory"
mv -nT "$work/programs" "$directory"
is_built "$directory" || fail "$directory does not have etcd $version"
echo "$directory"
