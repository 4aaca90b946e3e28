#!/usr/bin/env bash
# Checks what deploy/ has, each file by a tool that knows its kind: hadolint, the Compose Specification's
# schema, systemd, Helm and the schemas of Kubernetes. `tools/deployment.sh BIN [HELM]`: the folder of the
# tools, and Helm's command; without one the chart is left out, and so is the unit where systemd is absent.
set -euo pipefail
bin=$1
helm=${2:-}
cd "$(dirname "$0")/../deploy"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$bin/hadolint" docker/Dockerfile
"$bin/check-jsonschema" --quiet --builtin-schema vendor.compose-spec docker/compose.yaml docker/compose.group.yaml

if command -v systemd-analyze > /dev/null; then
    # The unit names a command that is not installed here.
    sed "s#^ExecStart=[^ ]*#ExecStart=$(command -v true)#" systemd/escrowmq.service > "$work/escrowmq.service"
    found=$(systemd-analyze verify "$work/escrowmq.service" 2>&1)
    if [ -n "$found" ]; then
        echo "$found"
        exit 1
    fi
else
    echo "deployment: no systemd-analyze here, the unit is not checked"
fi

if [ -z "$helm" ]; then
    echo "deployment: no helm, the chart is not checked"
    exit 0
fi
"$helm" lint --quiet --strict helm/escrowmq
release=1.31
for values in "" "group.replicas=3,group.secret=g" \
    "group.replicas=3,group.secret=g,group.authority=etcds://etcd:2379?ca=/etc/escrowmq/authority/ca.crt,group.authoritySecret=e,accountsSecret=a,tlsSecret=t" \
    "metrics.serviceMonitor=true,tlsSecret=t,accountsSecret=a,persistence.storageClass=fast"; do
    "$helm" template demo helm/escrowmq --kube-version "$release" --set "$values" > "$work/chart.yaml"
    "$bin/kubernetes-validate" --quiet --no-warn --strict -k "$release" "$work/chart.yaml"
done
if "$helm" template demo helm/escrowmq --kube-version "$release" --set persistence.size=much > /dev/null 2>&1; then
    echo "deployment: the chart takes a size that is none"
    exit 1
fi
if "$helm" template demo helm/escrowmq --kube-version "$release" --set group.replicas=3 > /dev/null 2>&1; then
    echo "deployment: the chart takes a group without a secret"
    exit 1
fi
