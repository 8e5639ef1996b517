#!/bin/bash
# kafka-run-class.sh CLASS ARGUMENTS...   the class in a JVM that replaces this shell.
# Variables as in Kafka's own script. The defaults spare CPU: one collector thread, only the quick compiler,
# because a cluster of these shares one small machine.
# Word splitting of the *_OPTS is wanted throughout.
# shellcheck disable=SC2086
home=$(cd "$(dirname "$0")/.." && pwd)
: "${KAFKA_HEAP_OPTS=-Xmx256M}"
: "${KAFKA_JVM_PERFORMANCE_OPTS=-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto -Djava.awt.headless=true}"
: "${KAFKA_LOG4J_OPTS:=-Dlog4j2.configurationFile=file:$home/config/tools-log4j2.yaml}"
exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" $KAFKA_HEAP_OPTS $KAFKA_JVM_PERFORMANCE_OPTS $KAFKA_JMX_OPTS $KAFKA_LOG4J_OPTS \
  -Dkafka.logs.dir="${LOG_DIR:-$home/logs}" -cp "${CLASSPATH:+$CLASSPATH:}$home/libs/*" $KAFKA_OPTS "$@"
