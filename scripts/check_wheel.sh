#!/bin/sh
# Build the wheel and try it in a clean venv outside this folder: the core alone, without torch.
set -eu
cd "$(dirname "$0")/.."
root=$(pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf dist
.venv/bin/python -m build --wheel --outdir "$work/dist" . >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
.venv/bin/python -m zipfile -l "$work"/dist/*.whl | awk 'NR > 1 {print $1}' > "$work/names"
if grep -vE '^(pot_agent/|policy_of_thoughts-[^/]*\.dist-info/)' "$work/names"; then
    echo "wheel-check: the wheel holds more than pot_agent (the names above)" >&2; exit 1
fi
grep -q '^pot_agent/py.typed$' "$work/names" || { echo "wheel-check: py.typed is missing" >&2; exit 1; }
.venv/bin/python -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet -c "$root/constraints/local.txt" "$work"/dist/*.whl
cp scripts/try_core.py "$work/"
cd "$work"
"$work/venv/bin/pot" --help >/dev/null
"$work/venv/bin/python" try_core.py
