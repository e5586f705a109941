#!/bin/sh
# Make .venv-studio, once: the LangGraph dev server that Studio talks to, and this package with its local model.
# PYTHON chooses the interpreter; TORCH_INDEX, when set, is a package index to take torch from, such as
# https://download.pytorch.org/whl/cpu
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}

fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

wanted=$(cat pyproject.toml constraints/local.txt constraints/studio.txt scripts/setup_studio.sh | cksum; "$PYTHON" -c 'import sys; print(sys.version)'; pwd)
stamp=.venv-studio/.setup-done
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then exit 0; fi

echo "setup: making .venv-studio (a minute or two; torch is the largest part)"
"$PYTHON" -m venv --clear .venv-studio
if [ -n "${TORCH_INDEX:-}" ]; then
    .venv-studio/bin/python -m pip install --quiet -c constraints/local.txt --index-url "$TORCH_INDEX" torch
fi
# a package that both files pin, such as protobuf, is the one that langgraph-api wants: pip refuses two pins of one
awk -F== 'function named(name) { gsub(/[_.]/, "-", name); return tolower(name) }
    NR == FNR { pinned[named($1)] = 1; next }
    !(named($1) in pinned)' constraints/studio.txt constraints/local.txt > .venv-studio/local.txt
.venv-studio/bin/python -m pip install --quiet -c .venv-studio/local.txt -c constraints/studio.txt --editable '.[local,studio]' ||
    fail "pip could not install the packages named above; on a machine without a GPU try: TORCH_INDEX=https://download.pytorch.org/whl/cpu make studio"
.venv-studio/bin/pot setup
printf '%s' "$wanted" > "$stamp"
