"""The commands of `harebell schedule`.

* manage                 put, get, list, patch, trigger, skip, backfill
* filters                options that select one schedule or several schedules
* pause_resume_cancel    pause, resume, cancel: one schedule, or a bulk operation
* history                history, diff, rollback: the versions of a schedule
* preview                preview: the next scheduled times
"""
