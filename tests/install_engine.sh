#!/bin/sh
# Install a container engine for the tests: podman with runc, and nothing else.
# Ends with 0 when an engine is there, with 1 and a reason when none can be installed.
set -u
command -v podman >/dev/null 2>&1 && exit 0
[ -S /var/run/docker.sock ] && exit 0
[ -n "${DOCKER_HOST:-}" ] && exit 0
if [ "$(id -u)" != 0 ]; then
  echo "no container engine, and only root can install one" >&2
  exit 1
fi
if ! command -v apt-get >/dev/null 2>&1; then
  echo "no container engine, and no apt-get to install one" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
install="apt-get install -y -qq --no-install-recommends podman runc"
$install >/dev/null 2>&1 || { apt-get update -qq >/dev/null 2>&1; $install >/dev/null; }
