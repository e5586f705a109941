#!/bin/sh
# Make .venv, once: the package with the extras that the demo and the tests need, and the embedded model.
# PYTHON chooses the interpreter; TORCH_INDEX, when set, is a package index to take torch from, such as
# https://download.pytorch.org/whl/cpu
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}

fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

[ "$(uname -s)" = Linux ] || fail "the local sandbox needs Linux; on macOS and Windows use a Linux VM or a container (README, Prerequisites)"
command -v "$PYTHON" >/dev/null 2>&1 || fail "there is no $PYTHON; Debian, Ubuntu: sudo apt-get install python3 python3-venv make"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$PYTHON is $("$PYTHON" -c 'import platform; print(platform.python_version())'), and 3.11 or newer is needed; name another by: make PYTHON=python3.12 ..."
"$PYTHON" -c 'import venv, ensurepip' 2>/dev/null ||
    fail "$PYTHON cannot make virtual environments; Debian, Ubuntu: sudo apt-get install python3-venv"

wanted=$(cat pyproject.toml constraints/local.txt scripts/setup.sh | cksum; "$PYTHON" -c 'import sys; print(sys.version)'; pwd)
stamp=.venv/.setup-done
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then exit 0; fi

echo "setup: making .venv (a minute or two; torch is the largest part)"
[ -x .venv/bin/python ] && .venv/bin/python -c 'import pip' 2>/dev/null || "$PYTHON" -m venv --clear .venv
if [ -n "${TORCH_INDEX:-}" ]; then
    .venv/bin/python -m pip install --quiet -c constraints/local.txt --index-url "$TORCH_INDEX" torch
fi
.venv/bin/python -m pip install --quiet -c constraints/local.txt --editable '.[dev]' ||
    fail "pip could not install the packages named above; on a machine without a GPU try: TORCH_INDEX=https://download.pytorch.org/whl/cpu make demo"
.venv/bin/pot setup
printf '%s' "$wanted" > "$stamp"
