#!/bin/bash
# kafka-server-start.sh FILE.properties
home=$(cd "$(dirname "$0")/.." && pwd)
[[ ${1:-} != -daemon ]] || { echo "$0: -daemon has no place in a container" >&2; exit 1; }
: "${KAFKA_HEAP_OPTS:=-Xmx1G -Xms1G}" "${KAFKA_LOG4J_OPTS:=-Dlog4j2.configurationFile=file:$home/config/log4j2.yaml}"
export KAFKA_HEAP_OPTS KAFKA_LOG4J_OPTS
exec "$home/bin/kafka-run-class.sh" kafka.Kafka "$@"
