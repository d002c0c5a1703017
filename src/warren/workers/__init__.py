"""Child processes, the tasks that run in them, jobs leased to other processes, and the control socket."""
