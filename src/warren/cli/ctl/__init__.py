"""`warren ctl VERB`: the verbs of rabbitmqctl, rabbitmq-diagnostics and rabbitmq-plugins.

    main      parses a command line by the table of verbs, prints the result, maps errors to exit codes
    verbs     the table: name, arguments, options, help, and what a verb requests
    client    the management API: over the Unix socket, over a URL, or of a stopped broker by its files
    output    formatters: table, json, csv, pretty_table

Only the standard library is imported until a verb needs more: `ping` is the health check of containers.
"""
