"""OPUS-MT models of Helsinki-NLP on Hugging Face; `HF_ENDPOINT` or `--mirror` name another host of the same shape.

`huggingface_hub` is asked what a repository holds. The files themselves come by our own downloads, so that they are
resumed, checked and refused as those of every other registry.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dragoman.export.pulling import PullError
from dragoman.export.pulling.releases import Release, RemoteFile, find_pair

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import ModelInfo

AUTHOR, PREFIX = "Helsinki-NLP", "opus-mt-"
_WANTED = ("config.json", "generation_config.json", "tokenizer_config.json", "vocab.json", "source.spm", "target.spm")
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # the first that there is


class OpusRegistry:
    name = "opus"

    def __init__(self, mirror: str | None = None) -> None:
        self._mirror = mirror

    def _api(self) -> "HfApi":
        from huggingface_hub import HfApi

        return HfApi(endpoint=self._mirror.rstrip("/") if self._mirror else None)

    def releases(self) -> Sequence[Release]:
        """Names only: sizes would cost a question for each of more than a thousand models."""
        api = self._api()
        found = _asked(lambda: list(api.list_models(author=AUTHOR, search=PREFIX)), api.endpoint)
        named = [(info, _languages(info.id)) for info in found]
        releases = [_release(info, sides, api.endpoint) for info, sides in named if sides]
        return sorted(releases, key=lambda release: release.pair)

    def find(self, pair: str) -> Release:
        from huggingface_hub.errors import RepositoryNotFoundError

        api, name = self._api(), f"{AUTHOR}/{PREFIX}{pair.lower()}"
        sides = _languages(name)
        if sides is None:
            raise PullError(f"{pair} is not a pair of languages such as pt-en")
        try:
            info = _asked(lambda: api.model_info(name, files_metadata=True), api.endpoint)
        except RepositoryNotFoundError:
            return find_pair(self.releases(), pair, f"{api.endpoint}/{AUTHOR}")  # says which ones are near
        return _release(info, sides, api.endpoint)


def _asked(question: Any, endpoint: str) -> Any:
    import httpx
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

    try:
        return question()
    except RepositoryNotFoundError:
        raise
    except (HfHubHTTPError, httpx.HTTPError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise PullError(
            f"the registry {endpoint} could not be asked ({reason}): check the network, or name another --mirror"
        ) from error


def _languages(name: str) -> tuple[str, str] | None:
    """Of `Helsinki-NLP/opus-mt-pt-en`; models for groups of languages have longer names and are left out."""
    source, _, target = name.rpartition("/")[2].removeprefix(PREFIX).partition("-")
    plain = source.isalpha() and target.isalpha()
    return (source.lower(), target.lower()) if plain and len(source) <= 3 and len(target) <= 3 else None


def _release(info: "ModelInfo", sides: tuple[str, str], endpoint: str) -> Release:
    card = info.card_data
    licence = card.get("license") if card else None
    licences = [tag.removeprefix("license:") for tag in info.tags or () if tag.startswith("license:")]
    files = {each.rfilename: each for each in info.siblings or ()}
    weights = next((name for name in _WEIGHTS if name in files), None)
    names = [name for name in (*_WANTED, weights) if name in files]
    if files and (weights is None or "vocab.json" not in files):
        raise PullError(f"{info.id} has no weights or no vocabulary that can be read: take another registry")
    return Release(
        registry="opus",
        source=sides[0],
        target=sides[1],
        kind="marian",
        release=(info.sha or "")[:12],
        licence=str(licence or (licences[0] if licences else "unknown")),
        origin=f"{endpoint}/{info.id}",
        architecture="marian",
        files=tuple(_file(name, files[name], f"{endpoint}/{info.id}/resolve/{info.sha}") for name in names if name),
    )


def _file(name: str, sibling: Any, base: str) -> RemoteFile:
    return RemoteFile(f"{base}/{name}", name, size=sibling.size, sha256=sibling.lfs.sha256 if sibling.lfs else None)
