#!/bin/sh
# Tests on Pythons newer than this machine's: those of later Debians, each with its system in a folder
# of its own under build/pythons. Needs root and Debian's debootstrap; what else is missing there
# (Java, PostgreSQL, ...) has its tests skipped, as everywhere.
#
#     tools/pythons.sh [3.13 3.14] [-- arguments of pytest]
set -eu
cd "$(dirname "$0")/.."
command -v debootstrap >/dev/null || { echo "apt-get install debootstrap" >&2; exit 1; }
[ "$(id -u)" = 0 ] || { echo "a system in a folder is made by root alone" >&2; exit 1; }

versions=
while [ $# -gt 0 ] && [ "$1" != -- ]; do versions="$versions $1"; shift; done
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- -n 2 --dist loadfile -q -p no:cacheprovider tests \
    --ignore=tests/interop --ignore=tests/spark --ignore=tests/v5 --ignore=tests/unit/pipeline

suite_of() {
    case $1 in
        3.13) echo trixie ;;
        3.14) echo sid ;;
        *) echo "no Debian is known for Python $1" >&2; exit 1 ;;
    esac
}

# In a namespace of its own, so that what is mounted is gone with it.
inside='
    root=$1; python=$2; shift 2
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    exec chroot "$root" sh -c '\''
        cd /escrowmq
        make ready PYTHON="$0"
        .venv/bin/python -m pytest "$@"
    '\'' "$python" "$@"'

for version in ${versions:-3.13 3.14}; do
    root=build/pythons/$version
    if [ ! -e "$root/made" ]; then
        rm -rf "$root"
        mkdir -p "$root"
        debootstrap --variant=minbase \
            --include="python$version-venv,python$version-dev,gcc,make,git,openssl,ca-certificates" \
            "$(suite_of "$version")" "$root" >"$root.log" || { tail -3 "$root.log" >&2; exit 1; }
        touch "$root/made"
    fi
    cp /etc/resolv.conf /etc/hosts "$root/etc/"
    cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
    rm -rf "$root/escrowmq"
    git clone --quiet . "$root/escrowmq"
    echo "Python $version"
    unshare --mount --propagation private sh -euc "$inside" sh "$root" "python$version" "$@"
done
