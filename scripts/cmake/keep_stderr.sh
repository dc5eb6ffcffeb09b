#!/bin/sh
# usage: keep_stderr.sh FILE COMMAND..
# Runs the command; what it says on stderr goes to FILE, and is shown where the command fails.
file=$1
shift
"$@" 2>"$file" || {
  status=$?
  cat "$file" >&2
  exit $status
}
