#!/bin/sh
# install_engine.sh [engine] [kernel] [browser] [metrics]: install what some tests need beyond Python; without a name, all.
# engine: podman with runc. kernel: a user-mode Linux, which has control groups of version 2.
# browser: Chromium, which looks at the dashboard. metrics: Prometheus, which scrapes a service.
# Ends with 0 when it is there, else with 1 and a reason for each that is missing.
set -u
export DEBIAN_FRONTEND=noninteractive

has_engine() {
  command -v podman >/dev/null 2>&1 || [ -S /var/run/docker.sock ] || [ -n "${DOCKER_HOST:-}" ]
}

has_kernel() {
  command -v linux.uml >/dev/null 2>&1
}

has_browser() {
  command -v chromium >/dev/null 2>&1
}

has_metrics() {
  command -v prometheus >/dev/null 2>&1 && command -v promtool >/dev/null 2>&1
}

# obtain WHAT IS_THERE PACKAGE...
obtain() {
  what=$1 is_there=$2
  shift 2
  $is_there && return 0
  if [ "$(id -u)" != 0 ]; then
    echo "no $what, and only root can install one" >&2
    return 1
  fi
  if ! command -v apt-get >/dev/null 2>&1; then
    echo "no $what, and no apt-get to install one" >&2
    return 1
  fi
  install="apt-get install -y -qq --no-install-recommends $*"
  $install >/dev/null 2>&1 || { apt-get update -qq >/dev/null 2>&1; $install >/dev/null; }
  $is_there && return 0
  echo "no $what: $install did not bring one" >&2
  return 1
}

missing=0
for wanted in ${*:-engine kernel browser metrics}; do
  case $wanted in
    engine) obtain "container engine" has_engine podman runc || missing=1 ;;
    kernel) obtain "user-mode Linux" has_kernel user-mode-linux || missing=1 ;;
    browser) obtain "Chromium" has_browser chromium || missing=1 ;;
    metrics) obtain "Prometheus" has_metrics prometheus || missing=1 ;;
    *) echo "$wanted is not known: use engine, kernel, browser or metrics" >&2; missing=1 ;;
  esac
done
exit $missing
