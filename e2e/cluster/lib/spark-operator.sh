# Kubeflow's Spark operator, by its own chart, which is part of its Go module.
# shellcheck shell=bash

# watched_namespaces: those that an earlier call asked for, as far as they still exist.
watched_namespaces() {
  local namespace
  { helm get values spark-operator --namespace spark-operator --output json 2>/dev/null || true; } |
    sed -nE 's/.*"jobNamespaces":\[([^]]*)\].*/\1/p' | tr -d '"' | tr ',' '\n' | while read -r namespace; do
    [[ $(kubectl get namespace "$namespace" --output 'jsonpath={.status.phase}' 2>/dev/null) != Active ]] || echo "$namespace"
  done
}

# install_spark_operator NAMESPACE...: idempotent; namespaces of earlier calls stay watched. The webhook stays off:
# pods are shaped by the templates of the SparkApplication itself (spec.driver.template), which need no webhook.
# spark-submit lives for seconds: a compiler that optimizes for hours takes a third of them, from Kafka on a small node.
install_spark_operator() {
  local chart namespace namespaces image=localhost/kraftbridge-spark-operator
  build_helm
  chart=$(go_module_directory "github.com/kubeflow/spark-operator/v2@v$SPARK_OPERATOR_VERSION")/charts/spark-operator-chart
  has_image "$image:$SPARK_OPERATOR_VERSION" || die "image $image:$SPARK_OPERATOR_VERSION is not loaded; run: e2e/images/build spark-operator"
  for namespace in "$@"; do
    kubectl get namespace "$namespace" >/dev/null 2>&1 || kubectl create namespace "$namespace" >/dev/null
  done
  namespaces=$({
    printf '%s\n' "$@"
    watched_namespaces
  } | sort -u | paste -sd,)
  # A pod that crashed again and again while nothing watched its namespaces is started again after up to five minutes: too late for helm.
  kubectl delete pods --namespace spark-operator --selector app.kubernetes.io/name=spark-operator --wait=false >/dev/null 2>&1 || true
  helm upgrade --install spark-operator "$chart" --namespace spark-operator --create-namespace \
    --set image.registry=localhost --set image.repository=kraftbridge-spark-operator \
    --set image.tag="$SPARK_OPERATOR_VERSION" --set image.pullPolicy=Never \
    --set "spark.jobNamespaces={$namespaces}" --set webhook.enable=false \
    --set 'controller.env[0].name=SPARK_SUBMIT_OPTS' --set-string 'controller.env[0].value=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' \
    --set controller.resources.requests.cpu=20m --set controller.resources.requests.memory=128Mi \
    --wait --timeout 180s >/dev/null || die "the Spark operator did not become ready: kubectl -n spark-operator describe pods"
  say "Spark operator $SPARK_OPERATOR_VERSION watches: ${namespaces//,/ }"
}
