#!/bin/sh
# install_peers.sh VENV: the packages that our adapters are for, in an environment of their own.
# Inspect AI wants an older fsspec than our own tests, so they do not share one.
# Ends with 0 when they are there; `make test-peers` runs the tests of tests/peers in it.
set -eu
venv=${1:?say where: sh tests/install_peers.sh .venv-peers}
here=$(cd "$(dirname "$0")/.." && pwd)
wanted="$here/tests/peers/requirements.txt"
if cmp -s "$wanted" "$venv/.installed"; then
  exit 0
fi
"${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check -r "$wanted" -e "$here[service]"
# SWE-ReX ships its tests in its source archive only.
"$venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --no-binary swe-rex \
  -d "$venv/src" "$(grep '^swe-rex==' "$wanted")"
cp "$wanted" "$venv/.installed"
