"""Images that can't be pulled, because a fault says so or their name is none; all others are there at once."""

from __future__ import annotations

import re

# Repository with an optional registry, tag and digest: https://github.com/distribution/reference
_NAME = re.compile(r"[a-z0-9][a-z0-9._:/-]*(:[\w][\w.-]{0,127})?(@sha256:[0-9a-f]{64})?")


class ImageProblem(Exception):
    """The image is not there. `reason` is the container's waiting reason, the text the runtime's own."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Images:
    """`missing` holds patterns of images that no registry has."""

    def __init__(self) -> None:
        self.missing: list[str] = []

    def check(self, image: str) -> None:
        """Raises ImageProblem."""
        if image and not _NAME.fullmatch(image):
            raise ImageProblem(
                "InvalidImageName",
                f'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}": invalid reference '
                "format",
            )
        if any(re.search(pattern, image) for pattern in self.missing):
            raise ImageProblem(
                "ErrImagePull",
                f'rpc error: code = NotFound desc = failed to pull and unpack image "{image}": failed to resolve '
                f'reference "{image}": {image}: not found',
            )
