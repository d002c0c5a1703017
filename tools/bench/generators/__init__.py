"""Load generators: clients that cost so little that the broker is what is measured, each a process of its own.

    order.py       the order of a generator, and its readings                 main.py    its process
    wire.py        bytes of AMQP 0-9-1       line.py      a client: login, one call after the other
    batch.py       publishes made ahead      confirms.py  which were confirmed
    deliveries.py  messages found again
    publish.py     at full speed, paced, one at a time    many.py    a hundred connections
    consume.py     until all have come                    redis.py, nats.py    brokers that speak otherwise
    times.py       how long each took, in a form in which slices of one measurement can be joined

They know nothing of Warren's own AMQP: what is wrong there must not be wrong here in the same way. Plain blocking
sockets; a publish is copied from a buffer in which only sequence numbers and times change, and what arrives is looked
at in columns, so a message costs next to nothing. Counts are exact: a message that is confirmed twice, or comes twice
or out of turn, ends the run.
"""
