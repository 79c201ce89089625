"""The rules of the audit: schedules and rows of runs in, findings out (pure).

* records          schedules, runs, findings and the window of an audit
* report           the counts and findings of one audit
* waits            deferrals by breakers and overlap slots, for which due runs wait
* coverage         missing and unexpected runs
* lateness         late and stuck runs
* row_checks       invalid rows, whose columns contradict each other
* state_checks     inconsistent states and duplicated runs
* rules            all rules of one schedule, in the order of the report
"""
