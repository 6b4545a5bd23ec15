//! Cable modem configuration files: text, model and bytes.
