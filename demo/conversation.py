"""An agent's conversation, of our own writing: a system prompt with tools, questions, tool results."""

from __future__ import annotations

SYSTEM = """You are a careful assistant for the operators of a small weather station network.
You may call these tools by answering with one JSON object and nothing else:
- stations(): lists all stations with their height in metres and the date of their last service.
- readings(station, hours): the hourly readings of one station: temperature, humidity, pressure, wind.
- neighbours(station): the three nearest stations with their distance in kilometres.
- report(title, body): files a report for the technicians. Use it once, at the end.
Work step by step. Say what you know, what you do not know, and which reading told you so. Never
guess a value that a tool can tell you. A reading is suspicious when it differs from the mean of its
neighbours by more than three times their spread, corrected by 0.65 degrees for every 100 metres of
height. Pressure is never corrected. A station that has not answered for six hours is silent. Keep
answers short. Dates are written year first. Do not repeat a table that you were given.
"""

TURNS: tuple[tuple[tuple[str, str], ...], ...] = (
    (("user", "Station Birchfield reported 31 degrees last night. Is that a fault or was it warm?"),),
    (
        (
            "tool",
            '{"station": "Birchfield", "height_m": 212, "hours": [{"hour": "22", "temperature": 30.8, "humidity": 41,'
            ' "pressure": 1009.2}, {"hour": "23", "temperature": 31.0, "humidity": 40, "pressure": 1009.1},'
            ' {"hour": "00", "temperature": 31.1, "humidity": 40, "pressure": 1009.1}, {"hour": "01",'
            ' "temperature": 30.9, "humidity": 41, "pressure": 1009.0}]}',
        ),
    ),
    (
        (
            "tool",
            '{"station": "Birchfield", "neighbours": [{"name": "Alder Pass", "height_m": 640, "km": 7.1},'
            ' {"name": "Mill Weir", "height_m": 180, "km": 9.4}, {"name": "Old Quay", "height_m": 12, "km": 15.0}]}',
        ),
    ),
    (
        (
            "tool",
            '{"station": "Mill Weir", "hours": [{"hour": "22", "temperature": 17.9}, {"hour": "23",'
            ' "temperature": 17.4}, {"hour": "00", "temperature": 17.0}, {"hour": "01", "temperature": 16.8}]}',
        ),
        ("user", "Take Alder Pass and Old Quay as well before you decide."),
    ),
    (
        (
            "tool",
            '{"station": "Alder Pass", "hours": [{"hour": "22", "temperature": 14.6}, {"hour": "23",'
            ' "temperature": 14.3}, {"hour": "00", "temperature": 14.2}, {"hour": "01", "temperature": 14.0}]}',
        ),
        (
            "tool",
            '{"station": "Old Quay", "hours": [{"hour": "22", "temperature": 19.2}, {"hour": "23",'
            ' "temperature": 19.0}, {"hour": "00", "temperature": 18.8}, {"hour": "01", "temperature": 18.7}]}',
        ),
    ),
    (("user", "So which sensor do you trust, and what would the corrected value have been at midnight?"),),
    (("user", "File the report, then tell me in one sentence what the technician should bring."),),
    (("tool", '{"filed": true, "number": "2031-0417"}'),),
    (
        (
            "user",
            "Thank you. Does the same fault show at any other station that was serviced on the same day?",
        ),
    ),
    (
        (
            "tool",
            '{"stations": [{"name": "Birchfield", "serviced": "2031-04-02"}, {"name": "Fen Edge", "serviced":'
            ' "2031-04-02"}, {"name": "Mill Weir", "serviced": "2030-11-19"}, {"name": "Old Quay", "serviced":'
            ' "2030-12-01"}, {"name": "Alder Pass", "serviced": "2031-01-15"}]}',
        ),
    ),
)
