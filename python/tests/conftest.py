"""What all tests need."""

import signal

# Whoever starts the tests in the background may have had Ctrl-C ignored, and with it what
# `_thread.interrupt_main` stands for.
signal.signal(signal.SIGINT, signal.default_int_handler)
