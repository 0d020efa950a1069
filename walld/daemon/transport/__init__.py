"""Sockets and the processes behind them: who is let in, what is read, how it ends."""
