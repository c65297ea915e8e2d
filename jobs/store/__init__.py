"""Store files in a folder or a bucket: each file is stored completely or not at all, and a killed task can resume."""
