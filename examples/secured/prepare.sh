#!/usr/bin/env bash
# Makes the passwords and certificates of this example.
#   ./prepare.sh                        in pki/: the authority, the brokers' certificate, every login
#   ./prepare.sh shop-kraft-1a2b3c4d    in controllers/pki/: the certificate of these controllers, and what they say to the brokers
# In production, let cert-manager issue the certificates (docs/security.md).
set -euo pipefail
cd "$(dirname "$0")"
umask 077
namespace=kafka domain=${CLUSTER_DOMAIN:-cluster.local} # of this KafkaMigration: status.clusterDomain

issue() { # FILE COMMON_NAME ALTERNATIVE_NAME...
  local file=$1 name=$2 names
  shift 2
  names=$(printf ',DNS:%s' "$@")
  openssl req -new -newkey rsa:2048 -nodes -keyout "$file.key" -subj "/CN=$name" -out "$file.csr" 2>/dev/null
  openssl x509 -req -in "$file.csr" -CA pki/ca.crt -CAkey pki/ca.key -CAcreateserial -days 365 -out "$file.crt" 2>/dev/null \
    -extfile <(printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\n' "${names#,}")
  rm "$file.csr"
}

login() { # MODULE USER
  echo "org.apache.kafka.common.security.$1 required username=\"$2\" password=\"$(cat "pki/$2.password")\";"
}

client() { # MECHANISM LOGIN
  printf 'security.protocol=SASL_SSL\nsasl.mechanism=%s\nsasl.jaas.config=%s\n' "$1" "$2"
  printf 'ssl.truststore.type=PEM\nssl.truststore.certificates=%s\n' "$(awk '{printf "%s\\n", $0}' pki/ca.crt)"
}

if [ $# -eq 0 ]; then
  mkdir -p pki
  openssl req -x509 -newkey rsa:2048 -nodes -keyout pki/ca.key -out pki/ca.crt -days 3650 -subj "/CN=authority of the example" 2>/dev/null
  brokers=()
  for i in 0 1 2; do brokers+=("kafka-$i.kafka-headless" "kafka-$i.kafka-headless.$namespace.svc.$domain"); done
  issue pki/kafka kafka "${brokers[@]}"
  cat pki/kafka.key pki/kafka.crt > pki/kafka.pem
  for user in zookeeper kafka kraftbridge controller encoder; do openssl rand -hex 16 | tr -d '\n' > "pki/$user.password"; done
  password=$(cat pki/zookeeper.password) module=org.apache.zookeeper.server.auth.DigestLoginModule
  printf 'Server {\n  %s required\n  user_kafka="%s";\n};\n' $module "$password" > pki/server.jaas
  printf 'Client {\n  %s required\n  username="kafka"\n  password="%s";\n};\n' $module "$password" > pki/client.jaas
  login scram.ScramLoginModule kafka > pki/internal.login
  login plain.PlainLoginModule controller > pki/controller.login
  client SCRAM-SHA-512 "$(login scram.ScramLoginModule kraftbridge)" > pki/client.properties
  client PLAIN "$(cat pki/controller.login)" > pki/controller.properties
else
  mkdir -p controllers/pki
  issue controllers/pki/tls kafka-controllers "*.$1.$namespace.svc.$domain"
  cp pki/ca.crt controllers/pki/ca.crt
  own=$(cat pki/controller.login)
  cat > controllers/pki/listener.properties <<END
# the controllers' listener
sasl.mechanism.controller.protocol=PLAIN
listener.name.controller.sasl.enabled.mechanisms=PLAIN
listener.name.controller.plain.sasl.jaas.config=${own%;} user_controller="$(cat pki/controller.password)";
# how the controllers reach the brokers until all are KRaft brokers
listener.name.internal.scram-sha-512.sasl.jaas.config=$(cat pki/internal.login)
listener.name.internal.ssl.truststore.type=PEM
listener.name.internal.ssl.truststore.location=/etc/kraftbridge-listener/ca.crt
END
fi
