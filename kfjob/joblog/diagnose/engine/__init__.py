"""The engine of `kfjob diagnose`, from the lines of a job's pods to its diagnosis.

1. What lines report: `program_reports` (the program goes on, or has finished), `rank_reports`
   (ranks, collectives, NCCL), and `recent_lines`, which dates lines without a time.
2. Lines become incidents: `incidents` (the values, and single lines), `tracebacks` (exceptions and crashes), `incident_reader`.
3. `matching` finds the rule that explains an incident, and quotes its lines.
4. `collector` keeps the occurrences of symptoms in the `history` of each pod; `states` adds those in states and events.
   `literals` names the lines that matter, so that all others cost one search.
5. `recovery` says whether the job went on after an error, and `assessment` what each occurrence means in its job. `job_checks`
   and `rank_checks` find symptoms that no single line shows.
6. `issues` words them, and `ranking` returns the first cause, what follows from it, and how the job ended.
"""
