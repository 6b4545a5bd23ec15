"""What all tests need."""

import signal

# A shell that starts the tests in the background may ignore Ctrl-C, and with it the signal that
# `_thread.interrupt_main` sends.
signal.signal(signal.SIGINT, signal.default_int_handler)
