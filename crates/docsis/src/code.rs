//! Named types, by the aggregate that contains them. The code and the schema's tables both use
//! these names.

/// Types at the top level of a file.
pub(crate) mod top {
    /// Padding: one byte without length or value.
    pub(crate) const PAD: u8 = 0;
    pub(crate) const DOWNSTREAM_FREQUENCY: u8 = 1;
    pub(crate) const UPSTREAM_CHANNEL_ID: u8 = 2;
    pub(crate) const NETWORK_ACCESS_CONTROL: u8 = 3;
    pub(crate) const CLASS_OF_SERVICE: u8 = 4;
    pub(crate) const CM_MIC: u8 = 6;
    pub(crate) const CMTS_MIC: u8 = 7;
    pub(crate) const BASELINE_PRIVACY: u8 = 17;
    pub(crate) const MAXIMUM_CPES: u8 = 18;
    pub(crate) const TFTP_TIMESTAMP: u8 = 19;
    pub(crate) const TFTP_MODEM_IPV4: u8 = 20;
    pub(crate) const UPSTREAM_CLASSIFIER: u8 = 22;
    pub(crate) const DOWNSTREAM_CLASSIFIER: u8 = 23;
    pub(crate) const UPSTREAM_FLOW: u8 = 24;
    pub(crate) const DOWNSTREAM_FLOW: u8 = 25;
    pub(crate) const HEADER_SUPPRESSION: u8 = 26;
    pub(crate) const MAXIMUM_CLASSIFIERS: u8 = 28;
    pub(crate) const PRIVACY_ENABLE: u8 = 29;
    pub(crate) const SUBSCRIBER_CONTROL: u8 = 35;
    pub(crate) const SUBSCRIBER_IPV4_LIST: u8 = 36;
    pub(crate) const SUBSCRIBER_FILTER_GROUPS: u8 = 37;
    pub(crate) const TEST_MODES: u8 = 40;
    pub(crate) const EXTENSION: u8 = 43;
    pub(crate) const TFTP_MODEM_IPV6: u8 = 59;
    pub(crate) const DROP_CLASSIFIER: u8 = 60;
    pub(crate) const SUBSCRIBER_IPV6_PREFIXES: u8 = 61;
    pub(crate) const DROP_CLASSIFIER_GROUPS: u8 = 62;
    pub(crate) const SUBSCRIBER_MAXIMUM_IPV6: u8 = 63;
    pub(crate) const STATIC_MULTICAST: u8 = 64;
    pub(crate) const SUBSCRIBER_IPV6_LIST: u8 = 67;
    pub(crate) const DEFAULT_TARGET_BUFFER: u8 = 68;
    pub(crate) const UPSTREAM_AGGREGATE: u8 = 70;
    pub(crate) const DOWNSTREAM_AGGREGATE: u8 = 71;
    pub(crate) const METRO_ETHERNET: u8 = 72;
    pub(crate) const AQM_DISABLE: u8 = 76;
    pub(crate) const LOW_LATENCY_DISABLE: u8 = 91;
    pub(crate) const DISTRIBUTED_HQOS: u8 = 92;
    pub(crate) const UPSTREAM_ENHANCED_AGGREGATE: u8 = 93;
    pub(crate) const DOWNSTREAM_ENHANCED_AGGREGATE: u8 = 94;
    /// End of the data: one byte without length or value.
    pub(crate) const END: u8 = 255;
}

/// Types inside a classifier (22, 23, 60).
pub(crate) mod classifier {
    pub(crate) const REFERENCE: u8 = 1;
    pub(crate) const FLOW_REFERENCE: u8 = 3;
    pub(crate) const PRIORITY: u8 = 5;
    pub(crate) const ACTIVATION: u8 = 6;
    pub(crate) const IPV4: u8 = 9;
    pub(crate) const IPV6: u8 = 12;
}

/// The byte of DSCP and ECN, as lowest, highest and mask, in a classifier's IPv4 and IPv6.
pub(crate) mod header {
    pub(crate) const IPV4_TOS: u8 = 1;
    pub(crate) const IPV6_TRAFFIC_CLASS: u8 = 1;
}

/// Types inside a service flow (24, 25). An aggregate (70, 71) uses the same types for its rates.
pub(crate) mod flow {
    pub(crate) const REFERENCE: u8 = 1;
    /// The name of a service class of the CMTS. The types below it identify the flow.
    pub(crate) const CLASS_NAME: u8 = 4;
    pub(crate) const PARAMETER_SET: u8 = 6;
    pub(crate) const SUSTAINED_RATE: u8 = 8;
    pub(crate) const BURST: u8 = 9;
    pub(crate) const SCHEDULING: u8 = 15;
    pub(crate) const PEAK_RATE: u8 = 27;
    pub(crate) const BUFFER_CONTROL: u8 = 35;
    pub(crate) const AGGREGATE_REFERENCE: u8 = 36;
    pub(crate) const AQM: u8 = 40;
    pub(crate) const RATE_UNIT: u8 = 41;
    pub(crate) const GUARANTEED_GRANT_INTERVAL: u8 = 44;
    pub(crate) const GUARANTEED_GRANT_RATE: u8 = 45;
}

/// Types inside Buffer Control (24.35, 25.35).
pub(crate) mod buffer {
    pub(crate) const MINIMUM: u8 = 1;
    pub(crate) const TARGET: u8 = 2;
    pub(crate) const MAXIMUM: u8 = 3;
}

/// Types inside AQM encodings (24.40, 25.40).
pub(crate) mod aqm {
    pub(crate) const DISABLE: u8 = 1;
    pub(crate) const LATENCY_TARGET: u8 = 2;
    pub(crate) const ALGORITHM: u8 = 3;
    pub(crate) const IMMEDIATE_MAX_THRESHOLD: u8 = 4;
    pub(crate) const IMMEDIATE_RANGE_EXPONENT: u8 = 5;
    pub(crate) const HISTOGRAM_EDGES: u8 = 6;
}

/// Types inside an aggregate service flow (70, 71).
pub(crate) mod aggregate {
    pub(crate) const REFERENCE: u8 = 1;
    pub(crate) const PROFILE_NAME: u8 = 4;
    pub(crate) const MATCHING: u8 = 38;
    pub(crate) const LOW_LATENCY: u8 = 42;
}

/// Types inside an aggregate's low latency encodings (70.42, 71.42).
pub(crate) mod low_latency {
    pub(crate) const FLOW_REFERENCE: u8 = 1;
    pub(crate) const CLASSIC_CLASS_NAME: u8 = 3;
    pub(crate) const COUPLING_FACTOR: u8 = 5;
    pub(crate) const SCHEDULING_WEIGHT: u8 = 6;
    pub(crate) const QUEUE_PROTECTION: u8 = 7;
    pub(crate) const CRITICAL_DELAY: u8 = 8;
    pub(crate) const CRITICAL_SCORE: u8 = 9;
    pub(crate) const AGING: u8 = 10;
}

/// Types inside the specification's extension field (43).
pub(crate) mod extension {
    pub(crate) const EXTENDED_MIC: u8 = 6;
}

/// Types inside the extended CMTS MIC's settings (43.6).
pub(crate) mod extended_mic {
    pub(crate) const DIGEST_TYPE: u8 = 1;
    pub(crate) const BITMAP: u8 = 2;
    pub(crate) const EXPLICIT_DIGEST: u8 = 3;
}
