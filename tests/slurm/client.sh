#!/bin/sh
# A client of Slurm that counts its calls and fails where it was told to: Lab.silence, Lab.garble,
# Lab.refuse_submissions.
program=${0##*/}
notes=@FOLDER@/clients
printf . >>"$notes/$program.calls"
if [ -e "$notes/$program.garbled" ]; then
  echo "This system is under maintenance | see the web page"
  exit 0
fi
if [ -e "$notes/$program.silent" ]; then # the words and codes of 22.05.8 when nobody answers
  failure="Unable to contact slurm controller (connect failure)"
  case $program in
  sacct)
    echo "sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection to host:127.0.0.1:6819: Connection refused"
    echo "sacct: error: Sending PersistInit msg: Connection refused"
    echo "sacct: error: Problem talking to the database: Connection refused"
    ;;
  sbatch) echo "sbatch: error: Batch job submission failed: $failure" ;;
  scancel) echo "scancel: error: Kill job error on job id $*: $failure" ;;
  sinfo) echo "slurm_load_partitions: $failure" ;;
  *) echo "slurm_load_jobs error: $failure" ;;
  esac >&2
  [ "$program" = scancel ] && exit 8
  exit 1
fi
if [ "$program" = sbatch ] && [ "$1" != --test-only ] && [ -e "$notes/refusal" ]; then
  for ticket in "$notes"/ticket.*; do # the one who removes it has it
    rm "$ticket" 2>/dev/null && exec @REAL@/sbatch "$@"
  done
  cat "$notes/refusal" >&2
  exit 1
fi
exec @REAL@/"$program" "$@"
