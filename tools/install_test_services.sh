#!/usr/bin/env bash
# Installs what marked tests need besides Python, where this machine lets us: a browser for the report, SLURM for the cluster.
# Without them those tests skip and say why.
set -euo pipefail
here=$(dirname "$0")
for script in chromium.sh slurm.sh; do
  [ -x "$here/$script" ] || continue
  "$here/$script" || echo "$script did not succeed: the tests that need it will skip" >&2
done
