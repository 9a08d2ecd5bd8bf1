#!/usr/bin/env bash
# Builds a real Kubernetes control plane from its Go modules into build/controlplane, for the tests of the tier
# `controlplane`. What is built already, from the same modules and with the same Go, is kept.
set -euo pipefail
cd "$(dirname "$0")/.."

modules=$PWD/tests/controlplane/programs
target=$PWD/build/controlplane

say() { printf '%s\n' "$*" >&2; }

# A toolchain that go.mod does not name would be fetched behind the user's back; what is here is what is used.
export GOTOOLCHAIN=local GOFLAGS=-mod=readonly CGO_ENABLED=0

# Prints the version of a module that a go.mod names.
version_of() { (cd "$modules/$1" && go list -m -f '{{.Version}}' "$2"); }

# Builds one program unless it is there: folder of its go.mod, package, name of the program, flags for the linker.
build() {
  local folder=$modules/$1 package=$2 program=$target/bin/$3 flags="-s -w ${4:-}" stamp started=$SECONDS
  stamp=$({ go version; cat "$folder/go.mod" "$folder/go.sum"; printf '%s' "$flags"; } | sha256sum | cut -d' ' -f1)
  if [ -x "$program" ] && [ "$(cat "$program.built-from" 2>/dev/null)" = "$stamp" ]; then
    return
  fi
  say "controlplane: building $3 ($package)"
  (cd "$folder" && go build -trimpath -ldflags "$flags" -o "$program.new" "$package") || {
    say "controlplane: $package of $folder could not be fetched or built; the lines above say why."
    return 1
  }
  mv "$program.new" "$program"
  printf '%s' "$stamp" > "$program.built-from"
  say "controlplane: $3 is ready after $((SECONDS - started)) s"
}

# Puts the JobSet controller's own manifests (CRD, webhooks, roles) beside it.
copy_jobset_manifests() {
  local source new=$target/manifests.new
  # Whoever calls this with || has switched errexit off: each step asks for the one before it.
  source=$(cd "$modules/jobset" && go mod download sigs.k8s.io/jobset && go list -m -f '{{.Dir}}' sigs.k8s.io/jobset) &&
    rm -rf "$new" && mkdir -p "$new" &&
    cp -r "$source"/config/components/{crd,webhook,rbac} "$new/" && chmod -R u+w "$new" &&
    rm -rf "$target/manifests" && mv "$new" "$target/manifests" || {
    say "controlplane: the manifests of sigs.k8s.io/jobset could not be fetched or copied; the lines above say why."
    return 1
  }
}

if ! command -v go >/dev/null; then
  say "controlplane: no Go on the PATH, so nothing is built. Install Go 1.26 to build it. Without a control plane in"
  say "controlplane: build/controlplane its tests are skipped, unless EVERSTEP_TEST_KUBECONFIG names a kubeconfig."
  exit 0
fi
go_version=$(go env GOVERSION)
case $go_version in
  go1.26*) ;;
  *)
    say "controlplane: found $go_version, expected Go 1.26: older ones can't build Kubernetes 1.36, and with 1.27 the"
    say "controlplane: API server's /openapi/v2 is broken. Put Go 1.26 first on the PATH. Nothing is built."
    exit 0
    ;;
esac

mkdir -p "$target/bin"
# Of two builds at the same time the second waits, and finds what the first has built.
exec 9>"$target/.lock"
flock 9
kubernetes=$(version_of kubernetes k8s.io/kubernetes)
# Without a version the API server would emulate none and refuse to serve.
minor=${kubernetes#v1.} minor=${minor%%.*}
stamped="-X k8s.io/component-base/version.gitVersion=$kubernetes"
stamped+=" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$minor"

failed=0
build etcd go.etcd.io/etcd/server/v3 etcd || failed=1
for program in kube-apiserver kube-controller-manager kube-scheduler; do
  build kubernetes "k8s.io/kubernetes/cmd/$program" "$program" "$stamped" || failed=1
done
build jobset sigs.k8s.io/jobset jobset-controller || failed=1
build kwok sigs.k8s.io/kwok/cmd/kwok kwok || failed=1
copy_jobset_manifests || failed=1
[ "$failed" = 0 ] || exit 1
say "controlplane: Kubernetes $kubernetes, JobSet $(version_of jobset sigs.k8s.io/jobset), KWOK $(version_of kwok sigs.k8s.io/kwok) in build/controlplane"
