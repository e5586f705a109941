# The policy server in a container: docs/server.md, "In a container", has the commands.
# BASE and TORCH_INDEX: python's image and torch's CPU build, or a CUDA image and an empty index for torch's own choice.
ARG BASE=python:3.12-slim
FROM ${BASE}

ARG EXTRAS=local,server
ARG CONSTRAINTS=constraints/local.txt
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

# CUDA's images bring no Python. vLLM compiles small parts of itself when it starts, and wants a compiler and headers.
RUN set -eu; \
    if ! command -v python3 >/dev/null || [ "${EXTRAS}" != "${EXTRAS#*vllm}" ]; then \
        apt-get update; \
        apt-get install --yes --no-install-recommends python3 python3-venv python3-dev gcc g++; \
        rm -rf /var/lib/apt/lists/*; \
    fi; \
    python3 -m venv /opt/pot; \
    useradd --system --create-home --home-dir /var/cache/pot --shell /usr/sbin/nologin pot; \
    install --directory --owner pot --group pot --mode 0700 /var/lib/pot
ENV PATH=/opt/pot/bin:${PATH} \
    PIP_NO_CACHE_DIR=1

WORKDIR /src
COPY constraints constraints
RUN set -eu; \
    touch none.txt; \
    if [ -n "${TORCH_INDEX}" ]; then \
        pip install --constraint "${CONSTRAINTS:-none.txt}" --index-url "${TORCH_INDEX}" torch; \
    fi
COPY pyproject.toml README.md LICENSE THIRD_PARTY.md ./
COPY pot_agent pot_agent
RUN pip install --constraint "${CONSTRAINTS:-none.txt}" ".[${EXTRAS}]" && rm -rf /src/*

ENV POT_HOST=0.0.0.0 \
    POT_PORT=8719 \
    POT_STATE=/var/lib/pot \
    POT_HOME=/var/cache/pot/converted
# The demonstration model, so that the image answers without a hub; volumes that are new begin with what is here.
RUN pot setup && chown --recursive pot:pot /var/cache/pot

USER pot
WORKDIR /var/cache/pot
# Sessions; and what is fetched or converted: the hub's cache, vLLM's, our own.
VOLUME ["/var/lib/pot", "/var/cache/pot"]
EXPOSE 8719
# Weights are loaded before the port opens, which takes minutes for a large model.
HEALTHCHECK --interval=30s --timeout=5s --start-period=600s --retries=3 \
    CMD ["python3", "-c", "import os, urllib.request as r; r.urlopen(f\"http://127.0.0.1:{os.environ['POT_PORT']}/health\", timeout=4)"]
# Beyond loopback the server refuses to start without POT_TOKEN. Docker's signal ends it as Ctrl-C does.
STOPSIGNAL SIGTERM
ENTRYPOINT ["pot"]
CMD ["serve"]
