set -eu
@FIND_KAFKA@
if [ -z "$tools" ]; then echo "@NO_KAFKA@; set spec.controllers.image to one of Kafka 3.9"; exit 1; fi
# The image's own directory of logs may belong to another user.
export LOG_DIR=/tmp/kafka-logs
properties=/tmp/controller.properties
{ cat /etc/kraftbridge/controller.properties; echo "node.id=$NODE_ID"; } > $properties
if [ -n "${PASSWORD_ENCODER_SECRET:-}" ]; then echo "password.encoder.secret=$PASSWORD_ENCODER_SECRET" >> $properties; fi
# Of two lines for one setting the later one counts: listener.properties overrides what follows from the certificates.
for given in /etc/kraftbridge-credentials/listener /etc/kraftbridge-listener; do
  if [ -f $given/listener.properties ]; then { cat $given/listener.properties; echo; } >> $properties; fi
done
zookeeper=/etc/kraftbridge-zookeeper
if grep -q '^zookeeper.connect=' $properties; then
  umask 077
  if [ "$(cat $zookeeper/scheme 2>/dev/null)" = sasl ]; then
    # Kafka authenticates to ZooKeeper by JAAS (or x509) only; quotes and backslashes are escaped as the JAAS file asks for.
    escaped() { sed 's/[\\"]/\\&/g' "$1"; }
    printf 'Client {\n  org.apache.zookeeper.server.auth.DigestLoginModule required\n  username="%s"\n  password="%s";\n};\n' \
      "$(escaped $zookeeper/username)" "$(escaped $zookeeper/password)" > /tmp/zookeeper.jaas
    export KAFKA_OPTS="${KAFKA_OPTS:-} -Djava.security.auth.login.config=/tmp/zookeeper.jaas"
  fi
  if [ -f $zookeeper/ca.crt ]; then
    {
      echo zookeeper.ssl.client.enable=true
      echo zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty
      echo zookeeper.ssl.truststore.type=PEM
      echo zookeeper.ssl.truststore.location=$zookeeper/ca.crt
    } >> $properties
  fi
  keystore=/etc/kraftbridge-credentials/zookeeper/keystore.pem
  if [ -f $keystore ]; then
    { echo zookeeper.ssl.keystore.type=PEM; echo zookeeper.ssl.keystore.location=$keystore; } >> $properties
  fi
fi
if [ ! -f @LOG_DIR@/meta.properties ]; then
  # A blank voter votes: once every voter was formatted, a blank volume waits for a person.
  while [ "$(cat /etc/kraftbridge/format)" != allowed ]; do
    echo "volume of controller $NODE_ID is blank and formatting is not allowed any more; see docs/operations.md"
    sleep 5
  done
  # A cluster id is base64 and may begin with a dash.
  "$tools/kafka-storage$ending" format --cluster-id="$CLUSTER_ID" --config $properties
fi
export KAFKA_OPTS="${KAFKA_OPTS:-} $EXPORTER"
exec "$tools/kafka-server-start$ending" $properties
