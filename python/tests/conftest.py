"""Fixtures of all tests."""

import signal

# A shell that starts the tests in the background may ignore Ctrl-C, and thus the signal
# of `_thread.interrupt_main`, too.
signal.signal(signal.SIGINT, signal.default_int_handler)
