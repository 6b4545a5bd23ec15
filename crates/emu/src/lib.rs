//! Real-time emulation: the links of `underload-aqm` on live packets between namespaces.
