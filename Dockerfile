# One image for every Zonekeeper process, and for Spark's, so that driver and executors run the same Python.
FROM python:3.11.11-slim-bookworm

# etcd: a node runs one member process per replica. util-linux brings setpriv.
RUN apt-get update \
    && apt-get install -y --no-install-recommends etcd-client etcd-server openjdk-17-jre-headless util-linux \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/zonekeeper
COPY requirements.lock ./
RUN pip install --no-cache-dir --require-hashes -r requirements.lock

COPY pyproject.toml README.md LICENSE ./
COPY app app
COPY catalog catalog
COPY examples examples
COPY migrations migrations
COPY parser parser
COPY rebalance rebalance
COPY spark spark
RUN pip install --no-cache-dir --no-deps --no-build-isolation .

RUN useradd --system --uid 10001 --home-dir /var/lib/zonekeeper --create-home zonekeeper
USER zonekeeper
WORKDIR /var/lib/zonekeeper
ENV ZONEKEEPER_DATA_DIR=/var/lib/zonekeeper
VOLUME /var/lib/zonekeeper
ENTRYPOINT ["zonectl"]
