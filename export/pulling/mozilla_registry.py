"""Mozilla's models for Firefox Translations: the public `models.json`, and the records of Remote Settings.

`models.json` is asked by default. Remote Settings serves Firefox's own users, so it is asked only when `--mirror`
names such an address (it ends with `/records`). Both are told apart by what they answer.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from dragoman.export.pulling import PullError
from dragoman.export.pulling.fetching import Fetcher
from dragoman.export.pulling.releases import Release, RemoteFile, expect, find_pair, language, version_key

BUCKET = "https://storage.googleapis.com/moz-fx-translations-data--303e-prod-translations-data"
LICENCE = "MPL-2.0"
_LISTING = "db/models.json"

# Which of two releases is taken: shipped to all before shipped to some; then the architecture that Mozilla trains now.
_STATUSES = ("Release", "Release Desktop", "Release Android")
_FILTERS = {"": 0, "env.appinfo.OS != 'Android'": 1, "env.appinfo.OS == 'Android'": 2}
_ARCHITECTURES = ("base-memory", "base", "tiny")
# role in models.json, file type in Remote Settings; vocab, or one of each side
_VOCABULARIES = (({"vocab"}, {"srcVocab", "trgVocab"}), ({"vocab"}, {"srcvocab", "trgvocab"}))


class MozillaRegistry:
    name = "mozilla"

    def __init__(self, fetcher: Fetcher, mirror: str | None = None, architecture: str | None = None) -> None:
        self._fetcher, self._architecture = fetcher, architecture
        self._base = (mirror or BUCKET).rstrip("/")
        is_document = self._base.endswith((".json", "/records"))
        self._address = self._base if is_document else f"{self._base}/{_LISTING}"
        self._mirrored = mirror is not None
        self._found: list[Release] | None = None

    def releases(self) -> Sequence[Release]:
        if self._found is None:
            answer = expect(self._fetcher.read_json(self._address), dict, f"the registry {self._address}")
            self._found = self._of_records(answer) if "data" in answer else self._of_models(answer)
        return self._found

    def find(self, pair: str) -> Release:
        return find_pair(self.releases(), pair, f"the registry {self._address}")

    # models.json

    def _of_models(self, answer: dict[str, Any]) -> list[Release]:
        what = f"the registry {self._address}"
        models = expect(answer.get("models"), dict, what)
        base = self._file_base(expect(answer.get("baseUrl", ""), str, what))
        chosen = []
        for entries in models.values():
            shipped = [entry for entry in expect(entries, list, what) if self._is_wanted(expect(entry, dict, what))]
            if shipped:
                chosen.append(self._of_entry(min(shipped, key=_preference), base))
        return sorted(chosen, key=lambda release: release.pair)

    def _file_base(self, published: str) -> str:
        """A mirror has the files beside its listing; otherwise they are where the listing says."""
        if self._mirrored or not published:
            return self._address.removesuffix(_LISTING).rsplit("/", 1)[0]
        return published.rstrip("/")

    def _is_wanted(self, entry: dict[str, Any]) -> bool:
        return entry.get("releaseStatus") in _STATUSES and self._architecture in (None, entry.get("architecture"))

    def _of_entry(self, entry: dict[str, Any], base: str) -> Release:
        what = f"an entry of {self._address}"
        files = expect(entry.get("files"), dict, what)
        _check_roles({role for role, file in files.items() if file}, "lexicalShortlist", _VOCABULARIES[0], what)
        remote = {role: _file_of_entry(file, base, what) for role, file in files.items() if file}
        model = remote["model"]
        return Release(
            registry=self.name,
            source=language(expect(entry.get("sourceLanguage"), str, what)),
            target=language(expect(entry.get("targetLanguage"), str, what)),
            kind="firefox",
            release=(model.sha256 or str(PurePosixPath(files["model"]["path"]).parent))[:12],
            licence=LICENCE,
            origin=model.url,
            architecture=str(entry.get("architecture") or ""),
            files=tuple(remote.values()),
            facts={"releaseStatus": entry.get("releaseStatus"), "metrics": entry.get("metrics") or {}},
        )

    # Remote Settings

    def _of_records(self, answer: dict[str, Any]) -> list[Release]:
        what = f"the registry {self._address}"
        groups: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
        for record in expect(answer["data"], list, what):
            if expect(record, dict, what).get("filter_expression", "") not in _FILTERS:
                continue  # for testers of Firefox
            if self._architecture in (None, record.get("architecture")):
                keys = ("sourceLanguage", "targetLanguage", "version", "architecture", "filter_expression")
                groups[tuple(str(record.get(key) or "") for key in keys)].append(record)
        base = self._attachments() if groups else ""
        newest: dict[str, tuple[Any, Release]] = {}
        for (source, target, version, architecture, shown), records in groups.items():
            pair = f"{language(source)}-{language(target)}"
            rank = (-_FILTERS[shown], version_key(version), -_architecture_rank(architecture))
            if (pair not in newest or rank > newest[pair][0]) and _is_whole(records):
                newest[pair] = rank, self._of_group(source, target, version, architecture, records, base)
        return [newest[pair][1] for pair in sorted(newest)]

    def _attachments(self) -> str:
        """Where the server says that its attachments are."""
        root = self._address.split("/buckets/")[0] + "/"
        answer = self._fetcher.read_json(root)
        try:
            return str(answer["capabilities"]["attachments"]["base_url"]).rstrip("/")
        except (KeyError, TypeError) as error:
            raise PullError(f"{root} does not say where its attachments are: name another --mirror") from error

    def _of_group(
        self, source: str, target: str, version: str, architecture: str, records: list[dict[str, Any]], base: str
    ) -> Release:
        what = f"a record of {self._address}"
        files = tuple(_file_of_record(record, base, what) for record in records)
        model = next(file for file, record in zip(files, records, strict=True) if record["fileType"] == "model")
        return Release(
            registry=self.name,
            source=language(source),
            target=language(target),
            kind="firefox",
            release=version,
            licence=LICENCE,
            origin=model.url,
            architecture=architecture,
            files=files,
        )


def _architecture_rank(architecture: str) -> int:
    return _ARCHITECTURES.index(architecture) if architecture in _ARCHITECTURES else len(_ARCHITECTURES)


def _preference(entry: dict[str, Any]) -> tuple[int, int]:
    return _STATUSES.index(entry["releaseStatus"]), _architecture_rank(str(entry.get("architecture")))


def _check_roles(roles: set[str], optional: str, vocabularies: Sequence[set[str]], what: str) -> None:
    if "model" not in roles or not any(wanted <= roles for wanted in vocabularies):
        raise PullError(f"{what} lacks a model or a vocabulary: choose another --architecture or --mirror")


def _is_whole(records: list[dict[str, Any]]) -> bool:
    """All files of one version and architecture; a release that is being uploaded lacks some for a while."""
    kinds = {str(record.get("fileType")) for record in records}
    return "model" in kinds and any(wanted <= kinds for wanted in _VOCABULARIES[1])


def _file_of_entry(file: object, base: str, what: str) -> RemoteFile:
    record = expect(file, dict, what)
    path = expect(record.get("path"), str, what)
    name = PurePosixPath(path).name
    size, sha256 = record.get("uncompressedSize"), record.get("uncompressedHash")
    return RemoteFile(
        url=f"{base}/{path.lstrip('/')}",
        name=name.removesuffix(".gz").removesuffix(".zst"),
        size=size if isinstance(size, int) else None,
        sha256=sha256 if isinstance(sha256, str) and sha256 else None,
    )


def _file_of_record(record: dict[str, Any], base: str, what: str) -> RemoteFile:
    attachment = expect(record.get("attachment"), dict, what)
    return RemoteFile(
        url=f"{base}/{expect(attachment.get('location'), str, what).lstrip('/')}",
        name=PurePosixPath(expect(record.get("name"), str, what)).name,
        packed_size=attachment.get("size"),
        packed_sha256=attachment.get("hash"),
        size=record.get("decompressedSize"),
        sha256=record.get("decompressedHash"),
    )
