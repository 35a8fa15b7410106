# Certificates, etcd, API server, controller-manager, scheduler and cluster DNS. Sourced by scripts/cluster.
# shellcheck shell=bash

make_certificates() {
  mkdir -m 700 "$PKI"
  quietly openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=kfjob-test-cluster \
    -keyout "$PKI/ca.key" -out "$PKI/ca.crt"
  quietly openssl ecparam -name prime256v1 -genkey -noout -out "$PKI/service-accounts.key"
  certificate apiserver /CN=kube-apiserver "DNS:kubernetes.default.svc,DNS:kubernetes.default,IP:$NODE_IP,IP:$API_SERVICE_IP,IP:127.0.0.1"
  certificate kubelet "/O=system:nodes/CN=system:node:$NODE_NAME" "DNS:$NODE_NAME,IP:$NODE_IP"
  certificate admin /O=system:masters/CN=kfjob-admin
  certificate front-proxy /CN=front-proxy # for other API servers behind this one, such as Kueue's
  certificate controller-manager /CN=system:kube-controller-manager
  certificate scheduler /CN=system:kube-scheduler
  certificate kube-proxy /CN=system:kube-proxy
  certificate coredns /CN=kfjob:dns
  local user
  for user in kubelet controller-manager scheduler kube-proxy coredns; do
    certificate_kubeconfig "$user" >"$PKI/$user.kubeconfig"
  done
  (umask 077 && certificate_kubeconfig admin >"$KUBECONFIG_ADMIN")
}

certificate() { # NAME SUBJECT [ALTERNATIVE-NAMES]
  quietly openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "$2" -keyout "$PKI/$1.key" -out "$PKI/$1.csr"
  quietly openssl x509 -req -in "$PKI/$1.csr" -CA "$PKI/ca.crt" -CAkey "$PKI/ca.key" -CAcreateserial -days 30 -out "$PKI/$1.crt" \
    -extfile <(printf 'extendedKeyUsage=serverAuth,clientAuth\n%s' "${3:+subjectAltName=$3}")
}
quietly() { local output; output=$("$@" 2>&1) || die "\`$1 $2\` failed: $output"; }

kubeconfig() { # USER NAMESPACE CREDENTIAL-YAML: print a kubeconfig
  cat <<EOF
apiVersion: v1
kind: Config
current-context: kfjob-test
clusters:
- {name: kfjob-test, cluster: {server: "$API_SERVER", certificate-authority-data: $(base64 -w0 <"$PKI/ca.crt")}}
contexts:
- {name: kfjob-test, context: {cluster: kfjob-test, user: $1, namespace: $2}}
users:
- {name: $1, user: {$3}}
EOF
}
certificate_kubeconfig() { # NAME
  kubeconfig "$1" default \
    "client-certificate-data: $(base64 -w0 <"$PKI/$1.crt"), client-key-data: $(base64 -w0 <"$PKI/$1.key")"
}

start_etcd() { # no fsync: the store ends with the cluster
  start_in_node etcd "$BIN/etcd" --name=kfjob --data-dir="$STATE/etcd" --unsafe-no-fsync --log-level=warn \
    --listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379 \
    --listen-peer-urls=http://127.0.0.1:2380 --initial-advertise-peer-urls=http://127.0.0.1:2380 \
    --initial-cluster=kfjob=http://127.0.0.1:2380
}

start_apiserver() {
  start_in_node kube-apiserver "$BIN/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 \
    --advertise-address="$NODE_IP" --secure-port=6443 --service-cluster-ip-range="$SERVICE_CIDR" \
    --client-ca-file="$PKI/ca.crt" --tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key" \
    --kubelet-client-certificate="$PKI/admin.crt" --kubelet-client-key="$PKI/admin.key" \
    --kubelet-preferred-address-types=InternalIP --kubelet-certificate-authority="$PKI/ca.crt" \
    --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$PKI/service-accounts.key" \
    --service-account-signing-key-file="$PKI/service-accounts.key" \
    --proxy-client-cert-file="$PKI/front-proxy.crt" --proxy-client-key-file="$PKI/front-proxy.key" \
    --requestheader-client-ca-file="$PKI/ca.crt" --requestheader-allowed-names=front-proxy \
    --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
    --requestheader-extra-headers-prefix=X-Remote-Extra- \
    --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged
}

start_controllers() {
  start_in_node kube-controller-manager "$BIN/kube-controller-manager" --kubeconfig="$PKI/controller-manager.kubeconfig" \
    --use-service-account-credentials --service-account-private-key-file="$PKI/service-accounts.key" \
    --root-ca-file="$PKI/ca.crt" --leader-elect=false --kube-api-qps=200 --kube-api-burst=400
  start_in_node kube-scheduler "$BIN/kube-scheduler" --kubeconfig="$PKI/scheduler.kubeconfig" --leader-elect=false \
    --kube-api-qps=200 --kube-api-burst=400
}

start_dns() { # external names do not exist; CoreDNS answers so at once
  cat >"$STATE/Corefile" <<EOF
.:53 {
  bind $NODE_IP
  health 127.0.0.1:8080
  ready 127.0.0.1:8181
  errors
  cache 5
  kubernetes cluster.local in-addr.arpa {
    kubeconfig $PKI/coredns.kubeconfig
    ttl 2
  }
  template ANY ANY . {
    rcode NXDOMAIN
  }
}
EOF
  start_in_node coredns "$BIN/coredns" -conf "$STATE/Corefile"
}

apiserver_ready() { kubectl get --raw /readyz; }
node_ready() { [ "$(kubectl get node "$NODE_NAME" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}')" = True ]; }
node_get() { in_node curl -sf -m 2 "$1"; }
