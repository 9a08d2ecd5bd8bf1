"""The ConfigMaps and Secrets that a pod names, read before they are needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import aiohttp

from everstep_sandbox.kubelet.api import Api, ApiFailure
from everstep_sandbox.kubelet.environment import ConfigError
from everstep_sandbox.kubelet.volumes import decoded

Object = dict[str, Any]


class References:
    """Data of referenced objects, as of the last `fetch`."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._data: dict[tuple[str, str], Mapping[str, str]] = {}

    def data(self, family: str, name: str) -> Mapping[str, str] | None:
        """The data of `configmaps` or `secrets` `name`, None where it does not exist."""
        return self._data.get((family, name))

    async def fetch(self, pod: Object) -> None:
        """Reads all that the pod refers to; what does not exist is left out. Raises ConfigError when the API fails."""
        for family, name in set(_named(pod)):
            try:
                found = await self._api.get(f"/api/v1/namespaces/{self._namespace}/{family}/{name}")
            except ApiFailure as failure:
                if failure.code != 404:
                    raise ConfigError(f"{family[:-1]} {name!r} can't be read: {failure}") from failure
                self._data.pop((family, name), None)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise ConfigError(f"{family[:-1]} {name!r} can't be read: {error}") from error
            else:
                self._data[family, name] = decoded(found)


def _named(pod: Object) -> Iterator[tuple[str, str]]:
    spec = pod["spec"]
    for volume in spec.get("volumes") or ():
        if "configMap" in volume:
            yield "configmaps", volume["configMap"]["name"]
        if "secret" in volume:
            yield "secrets", volume["secret"]["secretName"]
        for source in (volume.get("projected") or {}).get("sources") or ():
            yield from _of_source(source, "configMap", "secret")
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        for source in container.get("envFrom") or ():
            yield from _of_source(source, "configMapRef", "secretRef")
        for variable in container.get("env") or ():
            yield from _of_source(variable.get("valueFrom") or {}, "configMapKeyRef", "secretKeyRef")


def _of_source(source: Object, config_map: str, secret: str) -> Iterator[tuple[str, str]]:
    if config_map in source:
        yield "configmaps", source[config_map]["name"]
    if secret in source:
        yield "secrets", source[secret]["name"]
