#!/usr/bin/env bash
# Installs Debian's Chromium and its driver, for the tests that open the report in a real browser.
set -euo pipefail
command -v chromium >/dev/null && command -v chromedriver >/dev/null && exit 0
[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || { echo "chromium: needs root and apt-get, or install it by hand" >&2; exit 1; }
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver fonts-dejavu-core >/dev/null
