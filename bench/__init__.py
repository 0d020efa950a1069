"""Every figure the project claims, measured on this machine by one command.

Owns: `python -m bench [NAME...] [--quick]`, one module a question. Refuses: being a test (a goal
that is missed is a row that says so, never an exit code) and touching anything beyond a temporary
folder, loopback and the processes it started itself.
"""
