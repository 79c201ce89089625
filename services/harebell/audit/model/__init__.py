"""The rules of the audit: schedules and rows of runs in, findings out (pure).

* records          schedules, runs, findings and the window of an audit
* database_facts   what `harebell doctor` reads of a database
* report           the counts and findings of one audit
* waits            deferrals by breakers and overlap slots, for which due runs wait
* rate_waits       deferrals by the quota `runs_per_second`
* coverage         missing and unexpected runs
* lateness         late and stuck runs
* row_checks       invalid rows, whose columns contradict each other
* state_checks     inconsistent states and duplicated runs
* rules            all rules of one schedule, in the order of the report
"""
