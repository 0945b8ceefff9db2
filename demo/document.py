"""What the demo with real weights reads: a text of our own writing, and questions about it.

A base model continues text, it does not chat: so questions and answers are written as a text would have
them. The document is longer than the model's sliding window of 512 tokens.
"""

from __future__ import annotations

DOCUMENT = """The lighthouse at Kestrel Point
A short guide for visitors

The lighthouse at Kestrel Point was built in 1871 by the engineer Margaret Hale. It stands on a low
island of black rock, four kilometres from the fishing village of Saltmouth. The tower is 38 metres
high and has 197 steps. It is painted white, with two red bands, so that sailors can tell it by day
from the lighthouse at Cape Morrow, which is grey.

The first lamp burned rape oil. In 1902 it was replaced by a paraffin lamp, and in 1949 by an electric
one, which is still in use. The lens was made in Paris and weighs almost three tonnes. It floats on a
bath of mercury, so that a child could turn it with one finger. The light shows one long flash and two
short ones every twenty seconds, and can be seen from 41 kilometres away on a clear night.

Until 1986 three keepers lived on the island, each for two months at a time, followed by one month on
shore. They kept hens, and a goat called Duchess, who is remembered for eating the log book of 1933. The
last keeper was Thomas Brandt. He wrote a diary of the weather for thirty years, which is now kept
in the museum of Saltmouth together with the old fog bell. Since then the light has worked by itself.
A technician comes four times a year to clean the lens and to test the batteries.

The worst storm in the history of the lighthouse came in January 1953. Waves broke the windows of the
lamp room, 35 metres above the sea, and put the light out. The keepers carried a lantern up the stairs
and turned the lens by hand all night. Two ships, the Aurora and the Marten, reached the harbour
because of it. Each keeper was given a silver watch by the harbour board, and one of the
three watches can be seen in the entrance hall.

Visitors are welcome from May to September. The boat leaves the harbour of Saltmouth at nine in the
morning and at two in the afternoon, if the sea allows it, and the crossing takes half an hour. A ticket
costs twelve pounds for adults and five pounds for children, and the boat is included. Dogs must stay on
shore, because puffins breed on the island. There is no shop, so bring water and something to eat. The
gallery around the lamp room is open to everyone who can climb the stairs, but no more than eight people may
stand there at the same time. On the first Saturday in August the lamp is lit by hand, as it was in 1871.

Questions and answers about the guide

"""

TALKS: tuple[tuple[str, ...], ...] = (
    (
        "Who built the lighthouse?",
        "What was the name of the goat?",
        "Where is the diary of the last keeper kept?",
    ),
    (
        "How much does a ticket for a child cost?",
        "When does the first boat leave?",
    ),
    ("Which two ships were saved in 1953?",),
)
"""Talks about the document; each one begins anew after it."""
