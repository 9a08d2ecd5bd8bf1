"""How each program of the control plane is started: the flags, and which timers the sandbox's speed divides."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from everstep_sandbox.controlplane.credentials import Credentials
from everstep_sandbox.kubernetes.files import write_atomically

# The real system's defaults, in seconds. The API server and the controllers have flags for these; others (pod
# garbage collection every 20 s, 40 s of quarantine for pods of deleted nodes) are constants of their code.
NODE_GRACE_SECONDS = 40.0
NODE_STARTUP_GRACE_SECONDS = 60.0
NODE_PERIOD_SECONDS = 5.0
TOLERATION_SECONDS = 300.0

_SERVICE_ADDRESSES = "10.96.0.0/16"

# What was asked and by whom, without bodies. Components' own reads and leases would drown the rest.
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}]},
        {"level": "None", "userGroups": ["system:nodes"]},
        {"level": "None", "users": ["system:apiserver", "system:kube-scheduler"], "verbs": ["get", "list", "watch"]},
        {"level": "Metadata"},
    ],
}


@dataclass(frozen=True, slots=True)
class Settings:
    """One control plane: where it lives, where its programs listen, how fast its long timers run."""

    directory: Path
    ports: dict[str, int]
    speed: float

    @property
    def own(self) -> Path:
        return self.directory / "controlplane"

    @property
    def credentials(self) -> Credentials:
        return Credentials.of(self.directory)

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.ports['api']}"

    @property
    def webhooks(self) -> str:
        return f"https://127.0.0.1:{self.ports['webhooks']}"

    @property
    def audit_log(self) -> Path:
        return self.directory / "audit.jsonl"

    def write(self) -> None:
        """Writes the files that flags name."""
        write_atomically(self.own / "audit-policy.yaml", yaml.safe_dump(_AUDIT_POLICY))
        jobset = {
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "webhook": {
                "port": self.ports["webhooks"],
                "host": "127.0.0.1",
                "certDir": str(self.credentials.directory),
            },
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self.ports['jobset-health']}"},
        }
        write_atomically(self.own / "jobset.yaml", yaml.safe_dump(jobset))

    def etcd(self) -> list[str]:
        client, peer = (f"http://127.0.0.1:{self.ports[name]}" for name in ("etcd", "etcd-peer"))
        return [
            f"--data-dir={self.own / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            # A machine that loses power loses the sandbox's other parts too.
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def api_server(self) -> list[str]:
        credentials = self.credentials
        toleration = max(1, round(TOLERATION_SECONDS / self.speed))
        return [
            f"--etcd-servers=http://127.0.0.1:{self.ports['etcd']}",
            "--bind-address=127.0.0.1",
            # Endpoints may not be loopback addresses, so nobody is told of this one.
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            # Nodes have names that nobody resolves.
            "--kubelet-preferred-address-types=InternalIP",
            f"--secure-port={self.ports['api']}",
            f"--tls-cert-file={credentials.certificate}",
            f"--tls-private-key-file={credentials.key}",
            f"--token-auth-file={credentials.tokens}",
            "--authorization-mode=RBAC",
            "--allow-privileged=true",
            f"--service-cluster-ip-range={_SERVICE_ADDRESSES}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={credentials.service_account_key}",
            f"--service-account-signing-key-file={credentials.service_account_key}",
            f"--default-not-ready-toleration-seconds={toleration}",
            f"--default-unreachable-toleration-seconds={toleration}",
            f"--audit-policy-file={self.own / 'audit-policy.yaml'}",
            f"--audit-log-path={self.audit_log}",
            # 100 MB each; a hundred of them by default.
            "--audit-log-maxbackup=1",
            "--profiling=false",
        ]

    def controller_manager(self) -> list[str]:
        credentials = self.credentials
        kubeconfig = credentials.kubeconfig("system:kube-controller-manager")
        return [
            f"--kubeconfig={kubeconfig}",
            "--leader-elect=false",
            "--secure-port=0",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={credentials.service_account_key}",
            f"--root-ca-file={credentials.authority}",
            f"--node-monitor-grace-period={_duration(NODE_GRACE_SECONDS / self.speed)}",
            f"--node-startup-grace-period={_duration(NODE_STARTUP_GRACE_SECONDS / self.speed)}",
            f"--node-monitor-period={_duration(NODE_PERIOD_SECONDS / self.speed)}",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            "--concurrent-job-syncs=20",
            "--profiling=false",
        ]

    def scheduler(self) -> list[str]:
        return [
            f"--kubeconfig={self.credentials.kubeconfig('system:kube-scheduler')}",
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            "--profiling=false",
        ]

    def jobset_controller(self) -> list[str]:
        return [
            f"--kubeconfig={self.credentials.kubeconfig('jobset-controller')}",
            f"--config={self.own / 'jobset.yaml'}",
            "--zap-devel=false",
        ]


def _duration(seconds: float) -> str:
    return f"{max(100, round(seconds * 1000))}ms"
