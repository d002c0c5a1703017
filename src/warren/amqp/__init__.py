"""AMQP 0-9-1 without sockets: bytes in, events out; methods in, bytes out.

    types → properties, method_table → methods → frames → content → channel → connection
                                              kernels, property_walk (hot loops, compiled)

Nothing here waits, reads a clock or knows a queue. What a peer does wrong becomes a violation with its reply code;
only a mistake of our own caller is raised.
"""
