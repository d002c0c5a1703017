"""AMQP 0-9-1 without sockets: bytes in, events out; methods in, bytes out.

    types → methods → frames → content → channel → connection
                                kernels (hot loops, compiled)

Nothing here waits, reads a clock or knows a queue. A protocol error of the peer becomes a violation with its reply
code; only misuse by the caller is raised.
"""
