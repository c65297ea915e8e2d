"""Stripes on Lustre: on recorded output of lfs, and with a small lfs of the test's own on PATH."""

import os

import pytest

from jobs.errors import DatasetError
from jobs.system import lustre
from jobs.system.lustre import StripeLayout, parse_getstripe, read_layout, set_layout

# As Lustre 2.5 to 2.15 print them, with other names of files; of layouts with several parts most lines are left out.
OLD_FILE = """\
testfile
lmm_stripe_count:   4
lmm_stripe_size:    1048576
lmm_layout_gen:     0
lmm_stripe_offset:  2
\tobdidx\t\t objid\t\t objid\t\t group
\t     2\t       7114011\t     0x6c8d1b\t             0
\t     1\t       7203564\t     0x6deaec\t             0
"""
FILE = """\
/lustre/me/0.jpg
lmm_stripe_count:  1
lmm_stripe_size:   4194304
lmm_pattern:       raid0
lmm_layout_gen:    0
lmm_stripe_offset: 61
lmm_pool:          flash
\tobdidx\t\t objid\t\t objid\t\t group
\t    61\t      10861858\t     0xa5bd22\t   0xac0000400

"""
OLD_FOLDER = "temp_dir\nstripe_count:   -1 stripe_size:    33554432 stripe_offset:  -1 \n"
FOLDER = "stripe_count:  1 stripe_size:   1048576 pattern:       0 stripe_offset: -1\n"
POOL_FOLDER = "stripe_count:  1 stripe_size:   1048576 pattern:       raid0 stripe_offset: -1 pool:          ddn_hdd\n"
COMPOSITE_FILE = """\
/mnt/lustre/test.txt
  lcm_layout_gen:  3
  lcm_entry_count: 2
    lcme_id:             1
      lmm_stripe_count:  2
      lmm_stripe_size:   4194304
      lmm_stripe_offset: 0
    lcme_id:             2
"""
COMPOSITE_FOLDER = """\
testdir1
    lcme_id:             N/A
      stripe_count:  -1       stripe_size:   1048576       pattern:       raid0       stripe_offset: -1

"""
NOT_LUSTRE = "lfs setstripe: cannot create: Inappropriate ioctl for device (25)"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (OLD_FILE, (4, 1 << 20, 2, None)),
        (FILE, (1, 4 << 20, 61, "flash")),
        (OLD_FOLDER, (-1, 32 << 20, -1, None)),
        (FOLDER, (1, 1 << 20, -1, None)),
        (POOL_FOLDER, (1, 1 << 20, -1, "ddn_hdd")),
        (f"/lustre/stripe_count: 7/x\n{FOLDER}", (1, 1 << 20, -1, None)),  # a path that looks like a layout
    ],
)
def test_a_plain_layout_is_taken_apart(text, found):
    assert tuple(parse_getstripe(text)[key] for key in ("stripe_count", "stripe_size_bytes", "offset", "pool")) == found


@pytest.mark.parametrize(
    "text",
    [COMPOSITE_FILE, COMPOSITE_FOLDER, "", "no stripe info\n", FILE.replace("4194304", "4 MiB"), "stripe_count: 3\n"],
)
def test_a_layout_of_several_parts_and_what_is_none_is_kept_as_it_was_printed(text):
    assert parse_getstripe(text) == {"raw": text}


def test_the_suffix_tells_every_layout_from_every_other():
    layouts = [StripeLayout(count, size) for count in (None, -1, 1, 11) for size in (None, 1, 16)]

    suffixes = [layout.suffix for layout in layouts]

    assert len(set(suffixes)) == len(layouts)
    assert StripeLayout().suffix == ""
    assert StripeLayout(-1, 4).suffix == "-call-s4MiB"


@pytest.mark.parametrize(
    ("layout", "options"),
    [(StripeLayout(4, 16), "-c 4 -S 16M"), (StripeLayout(-1, None), "-c -1"), (StripeLayout(None, 1), "-S 1M")],
)
def test_a_folder_is_striped_before_it_holds_anything(layout, options, fake_lfs, tmp_path):
    lfs = fake_lfs()

    set_layout(tmp_path / "new" / "data", layout)

    assert lfs.read_text() == f"setstripe {options} {tmp_path}/new/data\n"


def test_a_folder_that_holds_something_keeps_its_stripes(fake_lfs, tmp_path):
    lfs = fake_lfs()
    (tmp_path / "data" / "0000").mkdir(parents=True)

    set_layout(tmp_path / "data", StripeLayout(4))

    assert not lfs.exists()


def test_the_layout_of_a_folder_and_of_a_file_is_read_back(fake_lfs, tmp_path):
    lfs = fake_lfs(folder=FOLDER, file=FILE)

    found = read_layout(tmp_path, tmp_path / "0.jpg", StripeLayout(1, 4))

    assert found == {"folder": parse_getstripe(FOLDER), "file": parse_getstripe(FILE)}
    assert lfs.read_text() == f"getstripe -d {tmp_path}\ngetstripe {tmp_path}/0.jpg\n"


@pytest.mark.parametrize(
    ("layout", "file", "told"),
    [
        (StripeLayout(4), FILE, "0.jpg has stripe_count=1, not the"),
        (StripeLayout(None, 1), FILE, "0.jpg has stripe_size_bytes=4194304, not the"),
        (StripeLayout(2), COMPOSITE_FILE, "several components"),
    ],
)
def test_a_file_that_lies_otherwise_than_asked_is_refused(layout, file, told, fake_lfs, tmp_path):
    fake_lfs(folder=FOLDER, file=file)

    with pytest.raises(DatasetError, match=told) as caught:
        read_layout(tmp_path, tmp_path / "0.jpg", layout)

    assert "lfs migrate" in caught.value.hint


def test_all_targets_is_any_number_of_them(fake_lfs, tmp_path):
    fake_lfs(folder=OLD_FOLDER, file=OLD_FILE)

    assert read_layout(tmp_path, tmp_path / "0.jpg", StripeLayout(-1))["file"]["stripe_count"] == 4


def test_what_lfs_complains_of_is_said_with_a_cure(fake_lfs, tmp_path):
    fake_lfs(complaint=NOT_LUSTRE)

    with pytest.raises(DatasetError, match=r"setstripe -c 4 .*Inappropriate ioctl for device \(25\)") as caught:
        set_layout(tmp_path / "data", StripeLayout(4))
    with pytest.raises(DatasetError, match=r"getstripe -d .*Inappropriate"):
        read_layout(tmp_path, tmp_path / "0.jpg", StripeLayout(4))

    assert "storage.stripe_count=null" in caught.value.hint


def test_stripes_without_the_program_lfs_are_an_error_with_a_cure(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(DatasetError, match="no program lfs") as caught:
        set_layout(tmp_path / "data", StripeLayout(4))

    assert "Lustre client" in caught.value.hint


def test_an_lfs_that_does_not_answer_is_given_up(fake_lfs, tmp_path, monkeypatch):
    fake_lfs(sleeps=True)
    monkeypatch.setattr(lustre, "_TIMEOUT_S", 0.2)

    with pytest.raises(DatasetError, match=r"did not answer within 0\.2 s"):
        set_layout(tmp_path / "data", StripeLayout(4))


@pytest.mark.parametrize("there", [True, False])
def test_where_nothing_was_asked_an_lfs_that_does_not_tell_is_no_error(there, fake_lfs, tmp_path, monkeypatch):
    fake_lfs(complaint=NOT_LUSTRE)
    if not there:
        monkeypatch.setenv("PATH", os.devnull)

    assert read_layout(tmp_path, tmp_path / "0.jpg", StripeLayout()) is None
