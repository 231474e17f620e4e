"""Keys, certificates and kubeconfigs of the test cluster."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Pki:
    """Certificates in a folder; ``server`` is the address of the API server."""

    def __init__(self, folder: Path, server: str) -> None:
        self.folder = folder
        self._server = server

    def make(self, master: str, nodes: int) -> None:
        """Create an authority, and a certificate for each client of the API server."""
        self.folder.mkdir()
        self._openssl("req", "-x509", *_CURVE, "-days", "30", "-subj", "/CN=heronry-k8s", *self._files("ca", "crt"))
        self._openssl("genrsa", "-out", f"{self.folder}/sa.key", "2048")
        self._openssl("rsa", "-in", f"{self.folder}/sa.key", "-pubout", "-out", f"{self.folder}/sa.pub")
        names = f"IP:127.0.0.1,IP:{master},IP:10.89.0.1,DNS:localhost,DNS:kubernetes.default.svc"
        self._certificate("apiserver", "/CN=kube-apiserver", f"subjectAltName={names}\n")
        self._certificate("admin", "/O=system:masters/CN=admin")
        self._certificate("kcm", "/CN=system:kube-controller-manager")
        self._certificate("sched", "/CN=system:kube-scheduler")
        self._certificate("proxy", "/CN=system:kube-proxy")
        for number in range(1, nodes + 1):
            self._certificate(f"node{number}", f"/O=system:nodes/CN=system:node:node{number}")

    def config(self, name: str) -> Path:
        """Return the kubeconfig of a client."""
        return self.folder / f"{name}.conf"

    def _files(self, name: str, kind: str) -> tuple[str, ...]:
        return ("-keyout", f"{self.folder}/{name}.key", "-out", f"{self.folder}/{name}.{kind}")

    def _certificate(self, name: str, subject: str, more: str = "") -> None:
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"extendedKeyUsage=serverAuth,clientAuth\n{more}")
        self._openssl("req", *_CURVE, "-subj", subject, *self._files(name, "csr"))
        self._openssl(
            "x509", "-req", "-in", f"{self.folder}/{name}.csr", "-CA", f"{self.folder}/ca.crt",
            "-CAkey", f"{self.folder}/ca.key", "-CAcreateserial", "-days", "30", "-extfile", str(extensions),
            "-out", f"{self.folder}/{name}.crt",
        )  # fmt: skip
        user = {"client-certificate": f"{self.folder}/{name}.crt", "client-key": f"{self.folder}/{name}.key"}
        cluster = {"server": self._server, "certificate-authority": f"{self.folder}/ca.crt"}
        self.config(name).write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "k", "cluster": cluster}], "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        }))  # fmt: skip

    @staticmethod
    def _openssl(*arguments: str) -> None:
        done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
