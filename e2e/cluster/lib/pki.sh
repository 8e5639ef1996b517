# One certificate authority and a client certificate for each component.
# shellcheck shell=bash

# certificate NAME COMMON_NAME [ORGANIZATION] [SUBJECT_ALT_NAMES]
certificate() {
  local file=$PKI/$1
  [[ -f $file.crt ]] && return
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$file.key" \
    -subj "/${3:+O=$3/}CN=$2" -out "$file.csr" 2>/dev/null
  openssl x509 -req -in "$file.csr" -CA "$PKI/ca.crt" -CAkey "$PKI/ca.key" -CAcreateserial -days 3650 -out "$file.crt.new" \
    -extfile <(
      echo "extendedKeyUsage=serverAuth,clientAuth"
      [[ -z ${4:-} ]] || echo "subjectAltName=$4"
    ) 2>/dev/null
  rm "$file.csr"
  mv "$file.crt.new" "$file.crt"
}

kubeconfig() { # CERTIFICATE FILE
  write_if_changed "$2" <<END
apiVersion: v1
kind: Config
current-context: kraftbridge
contexts: [{name: kraftbridge, context: {cluster: kraftbridge, user: me}}]
clusters: [{name: kraftbridge, cluster: {server: "$API_URL", certificate-authority-data: $(base64 -w0 <"$PKI/ca.crt")}}]
users: [{name: me, user: {client-certificate-data: $(base64 -w0 <"$PKI/$1.crt"), client-key-data: $(base64 -w0 <"$PKI/$1.key")}}]
END
  chmod 600 "$2"
}

make_pki() {
  local component service=kubernetes.default
  mkdir -p "$PKI"
  chmod 700 "$PKI"
  if [[ ! -f $PKI/ca.crt ]]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 \
      -subj /CN=kraftbridge-ca -keyout "$PKI/ca.key" -out "$PKI/ca.crt.new" 2>/dev/null
    mv "$PKI/ca.crt.new" "$PKI/ca.crt"
  fi
  if [[ ! -f $PKI/sa.pub ]]; then
    openssl genrsa -out "$PKI/sa.key" 2048 2>/dev/null
    openssl rsa -in "$PKI/sa.key" -pubout -out "$PKI/sa.pub.new" 2>/dev/null
    mv "$PKI/sa.pub.new" "$PKI/sa.pub"
  fi
  certificate apiserver kube-apiserver "" \
    "IP:$NODE_IP,IP:${SERVICE_CIDR%.0/*}.1,DNS:kubernetes,DNS:$service,DNS:$service.svc,DNS:$service.svc.$CLUSTER_DOMAIN"
  certificate apiserver-kubelet kube-apiserver-kubelet-client system:masters
  certificate admin kraftbridge-admin system:masters
  certificate controller-manager system:kube-controller-manager
  certificate scheduler system:kube-scheduler
  certificate proxy system:kube-proxy
  certificate networkpolicies kraftbridge-networkpolicies
  for component in controller-manager scheduler proxy networkpolicies; do
    kubeconfig "$component" "$PKI/$component.kubeconfig"
  done
  kubeconfig admin "$KUBECONFIG"
  make_kubelet_pki
}

# The Node authorizer tells the kubelets apart by the names in their certificates.
make_kubelet_pki() {
  certificate "$KUBELET" "system:node:$NODE_NAME" system:nodes "IP:$NODE_IP,DNS:$NODE_NAME"
  kubeconfig "$KUBELET" "$PKI/$KUBELET.kubeconfig"
}
