"""The commands that convert the schedules of other programs to manifests.

* crontab         `harebell import crontab`: the lines of a crontab
* crontab_lines   the conversion of a crontab (pure)
* celery          `harebell import celery`: the entries of Celery beat
* celery_probe    the program that reads an application in the Python environment of Celery
* celery_entries  the conversion of beat entries (pure)
* conversion      the result of a conversion, its check and its output
"""
