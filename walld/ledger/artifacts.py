"""Artifacts of sessions: files named by the SHA-256 of what they hold.

Owns: sessions/<uid>/<session>/artifacts/, and that one is whole, verified and durable before it has
its name. Refuses: what mentions them (`sessions/`), types and previews.

A piece at a time: what is not whole yet is a temporary file and a hash in memory. Nothing of it
outlives the process; whoever sends begins again.

A fork's artifacts are second names of the same files: bytes of a hash never change, so nobody can
tell, and they stay until the last session that names them goes.

Invariants
- A1 A file with the name of a hash was verified; read again, it is verified again.
- A2 Who sent an artifact, or a piece of one, to a session that was deleted since is told so, and no
  entry names it there until it was sent again: an upload is never ended behind the delete that it
  began before, nor is an entry without its artifact. Known as long as this process lives; behind a
  kill no session is begun by an entry whose artifact is not there (`ArtifactRequests.check_there`).
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from walld.disk.base import LINK_REFUSED
from walld.disk.retrying import MAY_PASS, patiently
from walld.errors import FormatError, ProtocolError
from walld.ledger.files import keep_aside, sync_name, write_whole
from walld.ledger.names import ARTIFACTS_DIR, is_temporary, session_dir, temporary
from walld.limits import ARTIFACT_BYTES_MAX, ARTIFACT_UPLOADS_PER_UID_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableSequence, Sequence

    from walld.disk.base import Disk, File

__all__ = ["ArtifactStore"]

_DIGEST_BYTES: Final = 32
_DELETED_MAX: Final = 4096
"""Artifacts of deleted sessions that are remembered, but for those of the newest alone."""
_NONE: Final[AbstractSet[str]] = frozenset()


class _Upload:
    """One that is not whole yet. Its file stays open: an error between two opens could be lost."""

    __slots__ = ("digest", "file", "path", "received", "size")

    def __init__(self, path: str, size: int, file: File) -> None:
        self.path = path
        self.size = size
        self.file = file
        self.received = 0
        self.digest = sha256()


class ArtifactStore:
    """The artifacts below one data directory. Digests are 32 bytes, as on the wire."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._uploads: dict[int, dict[str, _Upload]] = {}
        """By uid and path, in the order in which they were begun."""
        self._deleted: dict[str, set[str]] = {}
        """By folder, names of what went with its session, whole or begun, and came not again."""

    def put(
        self, uid: int, session_id: str, digest: bytes, size: int, offset: int, chunk: bytes
    ) -> bool:
        """Take a piece. True: the artifact is there, whole, verified and durable.

        One that is there already is True at once. ProtocolError: "bad_artifact" (a digest that is
        none, a size that cannot be), "artifact_offset" (`limit` is the one to go on from),
        "artifact_missing" (what came before went with the session),
        "artifact_size" and "artifact_hash" (what came is not what was said: begin again). After
        OSError it is begun again as well.
        """
        path = _path(uid, session_id, _hex(digest))
        uploads = self._uploads.setdefault(uid, {})
        upload = uploads.get(path)
        if (upload is None or offset == 0) and self._is_whole(path, digest):
            self._drop(uid, path)
            sync_name(self._disk, path)
            self._sent(path)
            return True
        _check_size(path, size)
        if upload is None and offset and digest.hex() in self.deleted(uid, session_id):
            text = f"{path}: its session was deleted while it was sent"
            raise ProtocolError("artifact_missing", text, offset, 0)
        if offset != (upload.received if upload is not None and offset else 0):
            wanted = upload.received if upload is not None else 0
            raise ProtocolError("artifact_offset", f"{path}: not the next piece", offset, wanted)
        try:
            if offset == 0:
                upload = self._begin(uid, path, size)
            assert upload is not None
            self._add(upload, size, chunk)
            if upload.received < size:
                return False
            self._place(upload, digest)
        except BaseException:
            self._drop(uid, path)
            raise
        uploads.pop(path).file.close()
        self._sent(path)
        return True

    def read(self, uid: int, session_id: str, digest: bytes) -> bytes:
        """Verified bytes. FileNotFoundError where there is none, FormatError where it changed."""
        path = _path(uid, session_id, _hex(digest))
        content = self._read(path)
        found = sha256(content).hexdigest()
        if found != digest.hex():
            raise FormatError(
                f"{path}: SHA-256 of its {len(content)} bytes is {found}, expected {digest.hex()}: "
                "the artifact was changed or damaged; it is kept, and replaced when it is put again"
            )
        return content

    def exists(self, uid: int, session_id: str, digest: bytes) -> bool:
        """There is a file for it; what it holds is not looked at."""
        try:
            self._disk.open(_path(uid, session_id, _hex(digest))).close()
        except FileNotFoundError:
            return False
        return True

    def list(self, uid: int, session_id: str) -> dict[bytes, int]:
        """Digest -> bytes of all that are there."""
        found = {}
        for entry in self._disk.list_dir(f"{session_dir(uid, session_id)}/{ARTIFACTS_DIR}"):
            if entry.kind == "file" and not is_temporary(entry.name):
                with suppress(ValueError):
                    found[bytes.fromhex(entry.name)] = entry.size
        return found

    def link(
        self,
        uid: int,
        session_id: str,
        new_id: str,
        digests: Sequence[bytes],
        made: MutableSequence[bytes],
    ) -> None:
        """The same artifacts in another session of the user, durable. Adds to `made` what is new.

        As second names of their files; as copies where the file system gives none. One that is
        missing, or cannot be copied because it changed, is missing there too.
        """
        if not digests:
            return
        folder = f"{session_dir(uid, new_id)}/{ARTIFACTS_DIR}"
        self._disk.make_dir(folder)
        for digest in digests:
            path, new_path = (_path(uid, one, _hex(digest)) for one in (session_id, new_id))
            try:
                self._disk.link(path, new_path)
            except FileExistsError:
                continue  # already sent there
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno not in LINK_REFUSED:
                    raise
                self._copy(uid, session_id, new_id, digest)
            made.append(digest)
            self._sent(new_path)
        self._disk.sync_dir(folder)

    def remove(self, uid: int, session_id: str, digests: Iterable[bytes]) -> None:
        """Take artifacts away from a session that did not come to be, durably, and its empty
        directories. OSError: call it again.
        """
        folder = session_dir(uid, session_id)
        for digest in digests:
            with suppress(FileNotFoundError):
                self._disk.unlink(_path(uid, session_id, _hex(digest)))
        with suppress(FileNotFoundError):
            self._disk.sync_dir(f"{folder}/{ARTIFACTS_DIR}")
        for path in (f"{folder}/{ARTIFACTS_DIR}", folder):
            self._disk.remove_dir(path)

    def _copy(self, uid: int, session_id: str, new_id: str, digest: bytes) -> None:
        with suppress(FileNotFoundError, FormatError):
            content = self.read(uid, session_id, digest)
            self.put(uid, new_id, digest, len(content), 0, content)

    def is_begun(self, path: str) -> bool:
        """A piece of an artifact came, and the temporary file at `path` takes the next one."""
        return any(temporary(one) == path for begun in self._uploads.values() for one in begun)

    def forget(self, uid: int, session_id: str) -> None:
        """The session is deleted: what was begun for it is not finished (A2)."""
        begin = f"{session_dir(uid, session_id)}/"
        begun = [path for path in self._uploads.get(uid, ()) if path.startswith(begin)]
        for path in begun:
            self._drop(uid, path)
        gone = {path.rpartition("/")[2] for path in begun}
        gone |= {digest.hex() for digest in self.list(uid, session_id)}
        if not gone:
            return
        folder = _path(uid, session_id, "")
        self._deleted[folder] = gone | self._deleted.pop(folder, set())
        while len(self._deleted) > 1 and sum(map(len, self._deleted.values())) > _DELETED_MAX:
            del self._deleted[next(iter(self._deleted))]

    def deleted(self, uid: int, session_id: str) -> AbstractSet[str]:
        """Names of artifacts that went with the session and were not sent again (A2). For any
        thread.
        """
        if not self._deleted:  # asked at each append, and mostly there are none
            return _NONE
        return self._deleted.get(_path(uid, session_id, ""), _NONE)

    def _sent(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        if (gone := self._deleted.get(f"{folder}/")) is not None:
            gone.discard(name)
            if not gone:  # what has no name is in no count of them
                del self._deleted[f"{folder}/"]

    def _begin(self, uid: int, path: str, size: int) -> _Upload:
        uploads = self._uploads[uid]
        self._drop(uid, path)
        while len(uploads) >= ARTIFACT_UPLOADS_PER_UID_MAX:
            self._drop(uid, next(iter(uploads)))
        self._disk.make_dir(path.rpartition("/")[0])
        with suppress(FileNotFoundError):
            self._disk.unlink(temporary(path))
        upload = uploads[path] = _Upload(path, size, self._disk.create(temporary(path)))
        return upload

    def _add(self, upload: _Upload, size: int, chunk: bytes) -> None:
        end = upload.received + len(chunk)
        if size != upload.size or end > size:
            raise ProtocolError(
                "artifact_size",
                f"{upload.path}: another size than was said",
                size if size != upload.size else end,
                upload.size,
            )
        write_whole(upload.file, chunk, upload.received)
        upload.digest.update(chunk)
        upload.received = end

    def _place(self, upload: _Upload, digest: bytes) -> None:
        found = upload.digest.digest()
        if found != digest:
            message = f"{upload.path}: what came has another SHA-256"
            raise ProtocolError("artifact_hash", message, found.hex(), digest.hex())
        upload.file.sync()
        self._disk.rename(temporary(upload.path), upload.path)
        self._disk.sync_dir(upload.path.rpartition("/")[0])

    def _drop(self, uid: int, path: str) -> None:
        upload = self._uploads[uid].pop(path, None)
        if upload is not None:
            with suppress(OSError):
                upload.file.close()
            with suppress(OSError):
                self._disk.unlink(temporary(path))

    def _is_whole(self, path: str, digest: bytes) -> bool:
        """Not one that the disk does not give: it is replaced, as one that changed is."""
        try:
            return sha256(patiently(partial(self._read, path))).digest() == digest
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno in MAY_PASS:
                return False
            folder, _, name = path.rpartition("/")
            found = [one for one in self._disk.list_dir(folder) if one.name == name]
            if not found or found[0].kind == "file":
                raise
            keep_aside(self._disk, path, f"no file, where an artifact belongs: {error.strerror}")
            return False

    def _read(self, path: str) -> bytes:
        file = self._disk.open(path)
        try:
            return file.read_at(min(file.size(), ARTIFACT_BYTES_MAX + 1), 0)
        finally:
            file.close()


def _path(uid: int, session_id: str, name: str) -> str:
    return f"{session_dir(uid, session_id)}/{ARTIFACTS_DIR}/{name}"


def _hex(digest: bytes) -> str:
    if len(digest) != _DIGEST_BYTES:
        raise ProtocolError("bad_artifact", "a SHA-256 is 32 bytes", len(digest), _DIGEST_BYTES)
    return digest.hex()


def _check_size(path: str, size: int) -> None:
    if not 0 <= size <= ARTIFACT_BYTES_MAX:
        raise ProtocolError("bad_artifact", f"{path}: its size", size, ARTIFACT_BYTES_MAX)
