# The two images of kraftbridge, as targets of one file:
#   operator   the kopf operator; no Java
#   verifier   the Spark job, usable as driver and executor on Kubernetes
#
# With docker (BuildKit), from the top of the repository:
#   mvn dependency:copy -Dartifact=io.prometheus.jmx:jmx_prometheus_javaagent:1.0.1 -Dmdep.stripVersion -DoutputDirectory=build/jars
#   docker build --target operator --build-context jars=build/jars -t kraftbridge-operator:dev .
#   docker build --target verifier -t kraftbridge-verifier:dev .
# Without docker and without an image registry: e2e/images/build operator verifier
#
# Layers are ordered by how often they change: packages, dependencies, and only then our own code.
ARG BASE=debian:bookworm-slim
# The stage below, or an image made of it earlier: then a change of our code does not touch a gigabyte of Spark again.
ARG SPARK=spark

# ---------------------------------------------------------------- Python, in every image
FROM ${BASE} AS python
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates python3 tini \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
ENV PATH=/opt/kraftbridge/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONUNBUFFERED=1

# ---------------------------------------------------------------- the tools that fill the environments; in no image
FROM python AS builder
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3-venv
RUN --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /opt/builder \
 && /opt/builder/bin/pip install --disable-pip-version-check hatchling==1.27.0 setuptools wheel \
 && python3 -m venv --without-pip /opt/kraftbridge/venv
# Byte code is checked by nothing (unchecked-hash): files' times do not survive every way of copying them.
ENV PIP="/opt/builder/bin/pip --disable-pip-version-check --python /opt/kraftbridge/venv/bin/python" \
    COMPILE="python3 -m compileall -q -j 2 --invalidation-mode unchecked-hash"

FROM builder AS operator-dependencies
COPY requirements/runtime.lock /tmp/
RUN --mount=type=cache,target=/root/.cache/pip \
    $PIP install --no-compile --require-hashes --requirement /tmp/runtime.lock \
 && $COMPILE /opt/kraftbridge/venv/lib

# Left out is what no verification loads: Hive, ORC, MLlib, the shells, YARN, RocksDB, streaming, QUIC, other platforms' libraries; of pyarrow
# Flight, S3, headers and tests. Python's workers would run pyspark from a zip without compiled files, and read its directory again before
# each task, although pyspark is installed. Hadoop's client stays, for object stores. Jars have one time, on which the archive of their
# classes depends.
FROM builder AS verifier-dependencies
COPY requirements/verifier.lock /tmp/
RUN --mount=type=cache,target=/root/.cache/pip \
    $PIP install --no-compile --require-hashes --requirement /tmp/verifier.lock
RUN cd /opt/kraftbridge/venv/lib/python3*/site-packages \
 && rm -rf pyarrow/include pyarrow/src pyarrow/tests pyarrow/includes numpy/tests numpy/*/tests \
           pyarrow/libarrow_flight* pyarrow/_flight* pyarrow/libarrow_s3* pyarrow/_s3fs* \
 && mv pyspark /opt/spark \
 && ln -s /opt/spark pyspark \
 && mkdir -p /opt/spark/conf \
 && cd /opt/spark/jars \
 && rm -rf hive-* spark-hive* derby* datanucleus-* jdo-* javax.jdo-* libfb303-* libthrift-* orc-* \
           spark-mllib* breeze* spark-graphx* spire* cats-kernel* algebra_* JTransforms-* arpack* lapack-* blas-* jdistlib-* \
           rocksdbjni-* leveldbjni-* spark-yarn* hadoop-yarn-* hadoop-shaded-guava-yarn* \
           spark-repl* scala-compiler-* jline-* spark-streaming_* spark-connect* connect-repl spark-ganglia* \
           spark-pipelines* netty-codec-*quic* netty-codec-http3* netty-tcnative-*-osx-* netty-tcnative-*-windows-* \
 && rm -rf /opt/spark/data /opt/spark/examples /opt/spark/ml /opt/spark/mllib /opt/spark/pipelines /opt/spark/python/lib/*.zip \
 && find . -name '*.jar' -exec touch --date=2025-01-01T00:00:00Z {} + \
 && $COMPILE /opt/kraftbridge/venv/lib /opt/spark

# ---------------------------------------------------------------- our own code
# Installed into an empty environment at the same path; only what that adds goes into the images.
FROM builder AS code
WORKDIR /src
COPY pyproject.toml README.md ./
COPY crds crds
COPY operator operator
RUN /opt/builder/bin/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir /tmp/wheel . \
 && $PIP install --quiet --no-deps --no-index --no-compile /tmp/wheel/*.whl \
 && $COMPILE /opt/kraftbridge/venv/lib \
 && site=$(echo /opt/kraftbridge/venv/lib/python3*/site-packages) \
 && mkdir -p "/out${site#/opt/kraftbridge}" /out/venv/bin \
 && cp -r "$site"/kraftbridge* "/out${site#/opt/kraftbridge}/" \
 && cp /opt/kraftbridge/venv/bin/kraftbridge /out/venv/bin/ \
 && ln -s "$site/kraftbridge/verification/__main__.py" /out/run_verification.py

# ---------------------------------------------------------------- the agent: a copy of a broker's pod takes it from the operator's image, a rehearsal from the verifier's
FROM ${BASE} AS agent
RUN mkdir -p /usr/share/man/man1 \
 && apt-get update \
 && apt-get install -y --no-install-recommends openjdk-17-jdk-headless
COPY agent /src
RUN /src/build.sh /dry-start-agent.jar

# ---------------------------------------------------------------- operator
FROM python AS operator
COPY --from=operator-dependencies /opt/kraftbridge /opt/kraftbridge
# The operator's own image is the init container that gives this agent to the controllers' pods.
COPY --from=jars jmx_prometheus_javaagent.jar /opt/kraftbridge/
COPY --from=agent /dry-start-agent.jar /opt/kraftbridge/
RUN echo 'kraftbridge:x:65532:65532:kraftbridge:/nonexistent:/usr/sbin/nologin' >>/etc/passwd \
 && echo 'kraftbridge:x:65532:' >>/etc/group
# No module is ever taken from the directory in which the process happens to start.
ENV PYTHONSAFEPATH=1
# Dozens of threads take turns in reading answers of many MiB. A large buffer goes back to the kernel at once, and a thread has no arena of its own.
ENV GLIBC_TUNABLES=glibc.malloc.arena_max=2:glibc.malloc.mmap_threshold=262144
USER 65532:65532
ENTRYPOINT ["kraftbridge"]
COPY --from=code /out /opt/kraftbridge
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="kraftbridge operator" \
      org.opencontainers.image.version="${VERSION}"

# ---------------------------------------------------------------- the verifier's Java: the modules that Spark and the Hadoop client use
FROM ${BASE} AS java
RUN mkdir -p /usr/share/man/man1 \
 && apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates openjdk-17-jdk-headless
# jdk.incubator.vector: Spark's launcher adds it. jdk.security.auth: Hadoop's login. jdk.crypto.ec, jdk.naming.dns: TLS, and names in the cluster.
RUN jlink --output /opt/java --strip-java-debug-attributes --no-header-files --no-man-pages --add-modules \
    java.se,jdk.crypto.ec,jdk.incubator.vector,jdk.jfr,jdk.management,jdk.naming.dns,jdk.net,jdk.security.auth,jdk.security.jgss,jdk.unsupported,jdk.zipfs \
 && cp --dereference /etc/ssl/certs/java/cacerts /opt/java/lib/security/cacerts \
 && cp -r /usr/share/doc/openjdk-17-jre-headless/copyright /opt/java/legal/

# ---------------------------------------------------------------- Spark without our code: also what a Spark operator needs
FROM python AS spark-files
# Group 0 may write what user 185 may: a platform that assigns user ids (OpenShift) runs a container as that group.
RUN echo 'spark:x:185:185:spark:/home/spark:/bin/bash' >>/etc/passwd \
 && echo 'spark:x:185:' >>/etc/group \
 && mkdir -p /home/spark /opt/spark/work-dir \
 && chown 185:0 /home/spark /opt/spark/work-dir \
 && chmod g=u /home/spark /opt/spark/work-dir /etc/passwd
COPY --from=java /opt/java /opt/java
COPY --from=verifier-dependencies /opt/spark /opt/spark
COPY --from=verifier-dependencies /opt/kraftbridge /opt/kraftbridge
COPY docker/java /opt/kraftbridge/java/bin/java
# Hadoop's login looks up the uid's name, so it needs the line in passwd above.
ENV JAVA_HOME=/opt/kraftbridge/java \
    SPARK_HOME=/opt/spark \
    PYSPARK_PYTHON=/opt/kraftbridge/venv/bin/python \
    PYSPARK_DRIVER_PYTHON=/opt/kraftbridge/venv/bin/python \
    HOME=/home/spark
WORKDIR /opt/spark/work-dir

FROM spark-files AS spark-classes
COPY docker/spark-classes /tmp/
RUN /tmp/spark-classes /tmp/spark.jsa

FROM spark-files AS spark
COPY --from=spark-classes /tmp/spark.jsa /opt/java/spark.jsa
USER 185:185
# The archive fits the class path of Spark's launcher, or the build fails here. Without it every start takes 60 % more processor time.
RUN "$JAVA_HOME/bin/java" -Xshare:on -cp "$SPARK_HOME/conf/:$SPARK_HOME/jars/*" -version
LABEL org.opencontainers.image.title="kraftbridge spark" \
      org.opencontainers.image.version="4.1.4"

# ---------------------------------------------------------------- verifier
FROM ${SPARK} AS verifier
COPY docker/verifier-entrypoint.sh /opt/kraftbridge/entrypoint.sh
# A broker of a rehearsal has it on its class path.
COPY --from=agent /dry-start-agent.jar /opt/kraftbridge/
ENTRYPOINT ["/usr/bin/tini", "-s", "--", "/opt/kraftbridge/entrypoint.sh"]
COPY --from=code /out /opt/kraftbridge
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="kraftbridge verifier" \
      org.opencontainers.image.version="${VERSION}"
