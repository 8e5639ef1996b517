#!/bin/sh
# build.sh JAR: compiles the dry start's agent. Release 8, so that the JVM of any image that runs Kafka loads it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
classes=$(mktemp -d)
trap 'rm -rf "$classes"' EXIT
javac --release 8 -Xlint:all,-options -Werror -d "$classes" $(find "$here/src" -name '*.java')
jar --create --file "$1" --manifest "$here/MANIFEST.MF" -C "$classes" .
