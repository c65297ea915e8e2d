"""Stores of files, in a folder or a bucket: a file is put as a whole and verified; a killed task can resume."""
