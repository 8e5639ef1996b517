#!/usr/bin/env bash
# Entry point of Spark's driver and executor pods. The PyPI package of Spark brings none, so this is the
# contract between Spark's Kubernetes backend and its image: the first argument is the role, the rest is in SPARK_*.
# Anything else is a command to run as it is (spark-submit of a Job with a local master, a shell).
set -euo pipefail

class_path="${SPARK_CONF_DIR:+$SPARK_CONF_DIR:}${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$SPARK_HOME/jars/*"
class_path+="${SPARK_EXTRA_CLASSPATH:+:$SPARK_EXTRA_CLASSPATH}${HADOOP_CONF_DIR:+:$HADOOP_CONF_DIR}"

case "${1:-}" in
  driver)
    shift
    exec "$SPARK_HOME/bin/spark-submit" \
      --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
      --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" \
      --deploy-mode client "$@"
    ;;
  executor)
    shift
    # SPARK_JAVA_OPT_0, _1, ...: one JVM option each, in the order of their numbers; a value may hold blanks.
    options=()
    while IFS= read -r name; do options+=("${!name}"); done < <(compgen -e SPARK_JAVA_OPT_ | sort -t_ -k4 -n)
    exec "$JAVA_HOME/bin/java" "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" -cp "$class_path" \
      org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
      --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
      --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
  *) exec "$@" ;;
esac
