"""What lies in a folder, or below a prefix of a fake store, as it is: a dict of bytes by name."""

from collections.abc import MutableMapping
from pathlib import Path


class Files(MutableMapping):
    """The files below a folder, as a dict; what is written is as large as it is."""

    def __init__(self, root):
        self.root = Path(root)

    def __getitem__(self, name):
        try:
            return (self.root / name).read_bytes()
        except FileNotFoundError:
            raise KeyError(name) from None

    def __setitem__(self, name, data):
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_bytes(data)

    def __delitem__(self, name):
        (self.root / name).unlink()

    def __iter__(self):
        return (str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file())

    def __len__(self):
        return len([*self])

    def version(self, name):
        """Something that another one, put under the same name, has not."""
        return (self.root / name).stat().st_ino, (self.root / name).stat().st_mtime_ns


class Objects(Files):
    """The objects below the prefix ``p/`` of a fake store, as a dict."""

    def __getitem__(self, name):
        return self.root.objects[f"p/{name}"]

    def __init__(self, store):
        self.root = store

    def __setitem__(self, name, data):
        self.root.objects[f"p/{name}"] = data

    def __delitem__(self, name):
        del self.root.objects[f"p/{name}"]

    def __iter__(self):
        return (key.removeprefix("p/") for key in [*self.root.objects])

    def version(self, name):
        return id(self[name])  # it lives on: the test holds what was there
