"""The commands for schedules in files.

* export    `harebell export`: schedules as YAML or JSON
* files     schedules in files and folders
* manifest  a schedule of a file, and the places of its fields
* plan      the steps that make the schedules of one owner equal to the files
* apply     `harebell apply`: the execution of a plan
"""
