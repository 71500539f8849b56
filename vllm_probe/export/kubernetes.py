"""A container as a Deployment and a Service of Kubernetes."""

from collections.abc import Iterator
from typing import Any

from vllm_probe.core.units import GIB
from vllm_probe.export.container import CONFIG_TARGET, PORT, Container
from vllm_probe.export.text import as_yaml, comment

_SECRET = "vllm-secrets"  # noqa: S105 - the name of a Secret
_START_S = 10  # seconds between probes while it starts
_STARTS = 360  # probes until it counts as failed: an hour, for a download and a compilation


def kubernetes_yaml(container: Container) -> str:
    """A manifest for `kubectl apply -f`: the vendor's device plug-in gives the pod its devices.

    Secrets come from the Secret `vllm-secrets` where there is one: `hf-token` and `vllm-api-key`.
    """
    labels = {"app.kubernetes.io/name": container.name, "app.kubernetes.io/managed-by": "vllm-probe"}
    name = {"name": container.name, "labels": labels}
    pod: dict[str, Any] = {"containers": [_container(container)], "volumes": list(_volumes(container))}
    if container.access.shares_ipc:
        pod["hostIPC"] = True
    spec = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": {"app.kubernetes.io/name": container.name}},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    service = {
        "selector": {"app.kubernetes.io/name": container.name},
        "ports": [{"name": "http", "port": PORT, "targetPort": "http"}],
    }
    documents: list[dict[str, Any]] = [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": name, "spec": spec},
        {"apiVersion": "v1", "kind": "Service", "metadata": name, "spec": service},
    ]
    if container.config:
        data = {"runtime.json": container.config}
        documents.insert(0, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": name, "data": data})
    return "\n".join([*map(comment, (*container.comments, *_advice(container))), as_yaml(*documents)])


def _advice(container: Container) -> Iterator[str]:
    if container.resource:
        yield f"the cluster needs the device plug-in that offers {container.resource}"
    if container.config:
        yield "then push the image to a registry that the nodes pull from, and put its name there in `image`"
    if container.resource_doubt:
        yield container.resource_doubt
    if container.files:
        yield f"each node needs the model at {container.files[0]}"
    yield "downloads are lost with the pod: put a PersistentVolumeClaim in place of the emptyDir `cache` to keep them"


def _container(container: Container) -> dict[str, Any]:
    probe = {"httpGet": {"path": "/health", "port": "http"}}
    found: dict[str, Any] = {
        "name": container.name,
        "image": container.image,
        "command": list(map(_literal, container.entrypoint)),
        "args": list(map(_literal, container.arguments)),
        "ports": [{"name": "http", "containerPort": PORT}],
        "env": list(_env(container)),
        "resources": _resources(container),
        "securityContext": _security(container),
        "volumeMounts": list(_volume_mounts(container)),
        "startupProbe": {**probe, "periodSeconds": _START_S, "failureThreshold": _STARTS},
        "readinessProbe": {**probe, "periodSeconds": 5},
        "livenessProbe": {**probe, "periodSeconds": 10, "failureThreshold": 3},
    }
    return {key: value for key, value in found.items() if value}


def _env(container: Container) -> Iterator[dict[str, Any]]:
    """The engine's variables; those of the container runtime would take devices that were not given to the pod."""
    yield from ({"name": name, "value": _literal(value)} for name, value in container.env.items())
    for name in container.passes:
        key = name.lower().replace("_", "-")
        yield {"name": name, "valueFrom": {"secretKeyRef": {"name": _SECRET, "key": key, "optional": True}}}


def _resources(container: Container) -> dict[str, Any]:
    if container.resource:
        return {"limits": {container.resource: container.devices}}
    wanted = {}
    if container.cpus:
        wanted["cpu"] = str(container.cpus)
    if container.memory_bytes:
        wanted["memory"] = f"{-(-container.memory_bytes // GIB)}Gi"
    return {"requests": wanted} if wanted else {}


def _security(container: Container) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if container.capabilities:
        found["capabilities"] = {"add": list(container.capabilities)}
    if "seccomp=unconfined" in container.security:
        found["seccompProfile"] = {"type": "Unconfined"}
    return found


def _volumes(container: Container) -> Iterator[dict[str, Any]]:
    yield {"name": "cache", "emptyDir": {}}
    if not container.access.shares_ipc:
        size = container.shared_memory.replace("g", "Gi")
        yield {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": size}}
    for number, path in enumerate(container.files):
        yield {"name": f"model-{number}", "hostPath": {"path": path}}
    if container.config:
        yield {"name": "config", "configMap": {"name": container.name}}


def _volume_mounts(container: Container) -> Iterator[dict[str, Any]]:
    yield {"name": "cache", "mountPath": container.cache}
    if not container.access.shares_ipc:
        yield {"name": "shared-memory", "mountPath": "/dev/shm"}  # noqa: S108 - in the container
    for number, path in enumerate(container.files):
        yield {"name": f"model-{number}", "mountPath": path, "readOnly": True}
    if container.config:
        yield {"name": "config", "mountPath": CONFIG_TARGET, "subPath": "runtime.json", "readOnly": True}


def _literal(text: str) -> str:
    """`text` with the references to variables that Kubernetes would replace escaped."""
    return text.replace("$(", "$$(")
