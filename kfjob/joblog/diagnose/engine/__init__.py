"""The engine of `kfjob diagnose`: lines, then incidents, then the history of the job, what it means, and the ranked causes.

1. `line_reports` reads single lines: their times, success, timeouts. `incident_reader` turns lines into `incidents`: messages,
   and with `tracebacks` exceptions and crashes.
2. `matching` finds the rule that explains an incident.
3. `collector` keeps the occurrences in the `history` of each pod; `states` adds those in states and events.
4. `aftermath` says whether the job went on after an error, and `assessment` what each occurrence means in its job. `job_checks`
   and `rank_checks` find symptoms that no single line shows.
5. `ranking` returns the first cause, what follows from it, and how the job ended; `python_packages` completes its remedy.
"""
