# One image for every Zonekeeper process, and for Spark's, so that driver and executors run the same Python.
FROM python:3.11.11-slim-bookworm AS build

WORKDIR /build
ENV PATH=/opt/zonekeeper/bin:$PATH
# What tests need is locked too, and not shipped.
COPY pyproject.toml requirements.lock ./
COPY scripts/shipped.py scripts/shipped.py
RUN python -m venv /opt/zonekeeper \
    && python scripts/shipped.py requirements >shipped.txt \
    && python scripts/shipped.py sbom >/opt/zonekeeper/sbom.cdx.json \
    && pip install --no-cache-dir --require-hashes -r shipped.txt

COPY README.md LICENSE ./
COPY app app
COPY catalog catalog
COPY docs/runbook docs/runbook
COPY migrations migrations
COPY parser parser
COPY rebalance rebalance
COPY spark spark
RUN pip install --no-cache-dir --no-deps --no-build-isolation . \
    && pip uninstall --yes setuptools pip

FROM python:3.11.11-slim-bookworm

# etcd: a node runs one member process per replica, and restores one from a snapshot. util-linux brings setpriv.
RUN apt-get update \
    && apt-get install -y --no-install-recommends etcd-client etcd-server openjdk-17-jre-headless util-linux \
    && rm -rf /var/lib/apt/lists/*

COPY --from=build /opt/zonekeeper /opt/zonekeeper
COPY examples /opt/zonekeeper/examples
ENV PATH=/opt/zonekeeper/bin:$PATH

RUN useradd --system --uid 10001 --home-dir /var/lib/zonekeeper --create-home zonekeeper \
    && chmod 0700 /var/lib/zonekeeper
USER zonekeeper
WORKDIR /var/lib/zonekeeper
ENV ZONEKEEPER_DATA_DIR=/var/lib/zonekeeper
VOLUME /var/lib/zonekeeper
ENTRYPOINT ["zonectl"]
