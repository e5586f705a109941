#!/bin/sh
# Make .venv-docs, once: what builds the documentation site. The package itself is read, not imported.
# PYTHON chooses the interpreter.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}

wanted=$(cat constraints/docs.txt scripts/setup_docs.sh | cksum; "$PYTHON" -c 'import sys; print(sys.version)'; pwd)
stamp=.venv-docs/.setup-done
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then exit 0; fi

echo "setup: making .venv-docs"
"$PYTHON" -m venv --clear .venv-docs
.venv-docs/bin/python -m pip install --quiet -c constraints/docs.txt mkdocs-material 'mkdocstrings[python]' ruff
printf '%s' "$wanted" > "$stamp"
