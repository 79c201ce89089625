"""The arguments of commands that need more than a type: each module parses one kind.

* schedule_ref    a schedule, by key or by id
* values          times, durations and rates
* assignments     `--set FIELD=VALUE` as a merge patch
* documents       files and folders with JSON or YAML
"""
