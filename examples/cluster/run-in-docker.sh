#!/bin/sh
# Measures a command in a container of an image without steptime: run-in-docker.sh IMAGE COMMAND...
# The hook is mounted read-only, the folder of records writable; the container only gets two variables more.
# Never run on a cluster; tests run it with bubblewrap in place of Docker.
set -e
image=$1
shift
results=steptime-results/$(date +%Y%m%d-%H%M%S)
options=$(steptime attach --environment --format docker -o "$results")
code=0
eval "docker run --rm $options \"\$image\" \"\$@\"" || code=$?
steptime report "$results" >&2
exit "$code"
