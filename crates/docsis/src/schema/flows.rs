//! Service flows (24, 25) and aggregate service flows (70, 71, 93, 94).

use super::extension::extension;
use super::{Field, Kind, MAX16, MAX32, Scope, class_name, hex, nested, u8, u16, u32};
use crate::code::{aggregate, aqm, buffer, flow, low_latency};

const BUFFER_CONTROL: Scope = &[
    u32(
        buffer::MINIMUM,
        "MinimumBuffer",
        0,
        MAX32,
        "smallest buffer that the flow accepts; the device refuses \
        the flow when it cannot give as much (24,576 is what every modem must be able to give)",
    )
    .unit("bytes"),
    u32(
        buffer::TARGET,
        "TargetBuffer",
        0,
        MAX32,
        "desired buffer; the device takes the closest size it has",
    )
    .unit("bytes"),
    u32(
        buffer::MAXIMUM,
        "MaximumBuffer",
        0,
        MAX32,
        "largest buffer that the flow accepts; the device refuses \
        the flow when all its sizes are larger",
    )
    .unit("bytes"),
];

const AQM: Scope = &[
    u8(aqm::DISABLE, "SfAqmDisable", 0, 1, "1 turns active queue management off for this flow")
        .main("SFAQMDisable"),
    u8(aqm::LATENCY_TARGET, "SfAqmLatencyTarget", 0, 255, "latency that classic AQM aims at")
        .main("SFAQMLatencyTarget")
        .unit("ms"),
    u8(
        aqm::ALGORITHM,
        "AqmAlgorithm",
        0,
        2,
        "0 the device's default, 1 DOCSIS-PIE, 2 immediate AQM",
    )
    .main("AQMAlgorithm"),
    u16(
        aqm::IMMEDIATE_MAX_THRESHOLD,
        "ImmediateAqmMaxThreshold",
        0,
        MAX16,
        "queuing delay from which every packet is marked",
    )
    .main("ImmediateAQMMaxThreshold")
    .unit("us"),
    u8(
        aqm::IMMEDIATE_RANGE_EXPONENT,
        "ImmediateAqmRangeExponent",
        0,
        25,
        "width of the marking ramp, 2^x ns (19: 524 us)",
    )
    .main("ImmediateAQMRangeExponent")
    .unit("log2 ns"),
    Field::new(
        aqm::HISTOGRAM_EDGES,
        "LatencyHistogramEncodings",
        Kind::List { width: 2, low: 1, high: 15 },
        "rising bin edges of the latency histogram that the device keeps",
    )
    .unit("0.01 ms"),
];

const RATE_UNIT: Field = u8(
    flow::RATE_UNIT,
    "DataRateUnitSetting",
    0,
    3,
    "unit of the flow's rates: 0 bit/s, 1 kbit/s, 2 Mbit/s, \
        3 Gbit/s",
);

const fn priority() -> Field {
    u8(7, "TrafficPriority", 0, 7, "priority among flows of otherwise equal rights, 7 is highest")
}
const fn sustained() -> Field {
    u32(
        flow::SUSTAINED_RATE,
        "MaximumSustainedTrafficRate",
        0,
        MAX32,
        "token bucket rate; 0 is unlimited",
    )
    .main("MaxRateSustained")
    .unit("bit/s")
}
const fn burst() -> Field {
    u32(flow::BURST, "MaximumTrafficBurst", 0, MAX32, "token bucket depth")
        .main("MaxTrafficBurst")
        .unit("bytes")
}
const fn reserved_rate() -> Field {
    u32(10, "MinimumReservedTrafficRate", 0, MAX32, "rate reserved for the flow")
        .main("MinReservedRate")
        .unit("bit/s")
}
const fn reserved_packet() -> Field {
    u16(
        11,
        "AssumedMinimumReservedRatePacketSize",
        0,
        MAX16,
        "packet size that the reserved rate \
        is computed with",
    )
    .main("MinResPacketSize")
    .unit("bytes")
}
const fn peak(main_name: &'static str) -> Field {
    u32(
        flow::PEAK_RATE,
        "PeakTrafficRate",
        0,
        MAX32,
        "rate limit while the burst lasts; 0 is unlimited",
    )
    .main(main_name)
    .unit("bit/s")
}
const fn flow_reference(main_name: &'static str) -> Field {
    u16(
        flow::REFERENCE,
        "ServiceFlowReference",
        1,
        MAX16,
        "number by which this file refers to the flow",
    )
    .main(main_name)
}
const fn aggregate_reference(main_name: &'static str) -> Field {
    u16(
        flow::AGGREGATE_REFERENCE,
        "AggregateServiceFlowReference",
        1,
        MAX16,
        "aggregate service flow that this flow \
        belongs to",
    )
    .main(main_name)
}
const fn service_flow_id(main_name: &'static str) -> Field {
    u32(2, "ServiceFlowIdentifier", 1, MAX32, "assigned by the CMTS; not for a file")
        .main(main_name)
}
const fn qos_set() -> Field {
    u8(
        flow::PARAMETER_SET,
        "QosParameterSetType",
        1,
        7,
        "bits: 1 provisioned, 2 admitted, 4 active; 7 is all",
    )
    .main("QosParamSetType")
}
const fn active_timeout() -> Field {
    u16(12, "TimeoutForActiveQosParameters", 0, MAX16, "idle time before deactivation; 0 never")
        .main("ActQosParamsTimeout")
        .unit("s")
}
const fn admitted_timeout() -> Field {
    u16(13, "TimeoutForAdmittedQosParameters", 0, MAX16, "time that admitted resources are held")
        .main("AdmQosParamsTimeout")
        .unit("s")
}
const fn tos() -> Field {
    hex(23, "IpTosOverwrite", 2, 2, "AND mask, then OR mask, applied to the IP TOS byte")
}
const fn required() -> Field {
    hex(31, "ServiceFlowRequiredAttributeMask", 4, 4, "attributes that the channel must have")
}
const fn forbidden() -> Field {
    hex(32, "ServiceFlowForbiddenAttributeMask", 4, 4, "attributes that the channel must not have")
}
const fn aggregation() -> Field {
    hex(
        33,
        "ServiceFlowAttributeAggregationRuleMask",
        4,
        4,
        "how attributes of bonded channels \
        combine",
    )
}
const fn application() -> Field {
    u32(34, "ApplicationIdentifier", 0, MAX32, "names the application that the flow serves")
}
const fn buffer_control() -> Field {
    nested(flow::BUFFER_CONTROL, "BufferControl", BUFFER_CONTROL, "size of the flow's queue")
}
const fn aqm() -> Field {
    nested(flow::AQM, "AqmEncodings", AQM, "active queue management of the flow")
        .main("AQMEncodings")
}
pub(super) const UPSTREAM: Scope = &[
    flow_reference("UsServiceFlowRef"),
    service_flow_id("UsServiceFlowId"),
    u16(3, "ServiceIdentifier", 0, MAX16, "assigned by the CMTS; not for a file"),
    class_name(4, "ServiceClassName", "class at the CMTS whose settings fill the gaps"),
    qos_set(),
    priority(),
    sustained(),
    burst(),
    reserved_rate(),
    reserved_packet(),
    active_timeout(),
    admitted_timeout(),
    u16(14, "MaximumConcatenatedBurst", 0, MAX16, "largest concatenated frame; 0 is unlimited")
        .main("MaxConcatenatedBurst")
        .unit("bytes"),
    u8(
        flow::SCHEDULING,
        "ServiceFlowSchedulingType",
        0,
        6,
        "2 best effort, 3 non-real-time polling, \
        4 real-time polling, 5 unsolicited grants with activity detection, 6 unsolicited grants",
    )
    .main("SchedulingType"),
    hex(16, "RequestTransmissionPolicy", 4, 4, "bits that forbid request and transmission methods")
        .main("RequestOrTxPolicy"),
    u32(17, "NominalPollingInterval", 0, MAX32, "time between polls")
        .main("NominalPollInterval")
        .unit("us"),
    u32(18, "ToleratedPollJitter", 0, MAX32, "how late a poll may be").unit("us"),
    u16(19, "UnsolicitedGrantSize", 0, MAX16, "size of each unsolicited grant").unit("bytes"),
    u32(20, "NominalGrantInterval", 0, MAX32, "time between unsolicited grants").unit("us"),
    u32(21, "ToleratedGrantJitter", 0, MAX32, "how late a grant may be").unit("us"),
    u8(22, "GrantsPerInterval", 0, 127, "unsolicited grants in each interval"),
    tos(),
    u8(26, "MultiplierToNumberOfBytesRequested", 1, 16, "1, 2, 4, 8 or 16: unit of requests")
        .main("MultipliertoNumberofBytesRequested"),
    peak("UpstreamPeakTrafficRate"),
    required(),
    forbidden(),
    aggregation(),
    application(),
    buffer_control(),
    aggregate_reference("UpstreamAggregateServiceFlowReference"),
    u16(37, "MespReference", 1, MAX16, "Metro Ethernet service profile of the flow")
        .main("UpstreamMESPReference"),
    class_name(39, "SfToIatcProfileNameReference", "intra-aggregate traffic class of the flow")
        .main("SFtoIATCProfileNameReference"),
    aqm(),
    RATE_UNIT,
    extension(),
    u16(
        flow::GUARANTEED_GRANT_INTERVAL,
        "GuaranteedGrantInterval",
        0,
        MAX16,
        "time between proactive grants",
    )
    .unit("us"),
    u32(flow::GUARANTEED_GRANT_RATE, "GuaranteedGrantRate", 0, MAX32, "rate of proactive grants")
        .unit("bit/s"),
    u16(46, "GuaranteedRequestInterval", 0, MAX16, "time between request chances").unit("us"),
    u8(48, "AbsoluteQueueDepthRequestEnable", 0, 1, "1 has requests state the whole queue"),
    u8(49, "PgsActivityDetectionDisable", 0, 1, "1 keeps proactive grants while the flow idles")
        .main("PGSActivityDetectionDisable"),
];

pub(super) const DOWNSTREAM: Scope = &[
    flow_reference("DsServiceFlowRef"),
    service_flow_id("DsServiceFlowId"),
    class_name(4, "ServiceClassName", "class at the CMTS whose settings fill the gaps"),
    qos_set(),
    priority(),
    sustained(),
    burst(),
    reserved_rate(),
    reserved_packet(),
    active_timeout(),
    admitted_timeout(),
    u32(14, "MaximumDownstreamLatency", 0, MAX32, "longest wait in the CMTS; 0 is unlimited")
        .main("MaxDsLatency")
        .unit("us"),
    u8(17, "DownstreamResequencing", 0, 1, "0 resequences bonded packets, 1 does not")
        .main("DsResequencing"),
    tos(),
    peak("DownstreamPeakTrafficRate"),
    required(),
    forbidden(),
    aggregation(),
    application(),
    buffer_control(),
    aggregate_reference("DownstreamAggregateServiceFlowReference"),
    u16(37, "MespReference", 1, MAX16, "Metro Ethernet service profile of the flow")
        .main("DownstreamMESPReference"),
    class_name(39, "SfToIatcProfileNameReference", "intra-aggregate traffic class of the flow")
        .main("SFtoIATCProfileNameReference"),
    aqm(),
    RATE_UNIT,
    extension(),
];

const LOW_LATENCY: Scope = &[
    u16(
        low_latency::FLOW_REFERENCE,
        "LowLatencyServiceFlowReference",
        1,
        MAX16,
        "which member flow is the low latency one",
    ),
    class_name(
        low_latency::CLASSIC_CLASS_NAME,
        "ClassicServiceFlowScn",
        "service class of the classic flow",
    )
    .main("ClassicSFSCN"),
    class_name(4, "LowLatencyServiceFlowScn", "service class of the low latency flow")
        .main("LowLatencySFSCN"),
    u8(
        low_latency::COUPLING_FACTOR,
        "AqmCouplingFactor",
        0,
        255,
        "how strongly the classic queue's drops become marks in \
        the low latency one (20 means 2.0)",
    )
    .main("AQMCouplingFactor")
    .unit("tenths"),
    u8(
        low_latency::SCHEDULING_WEIGHT,
        "SchedulingWeight",
        1,
        255,
        "share of the low latency flow while both queues are busy",
    )
    .unit("1/256"),
    u8(
        low_latency::QUEUE_PROTECTION,
        "QueueProtectionEnable",
        0,
        1,
        "1 moves queue-building flows out of the low latency \
        queue",
    ),
    u16(
        low_latency::CRITICAL_DELAY,
        "QpLatencyThreshold",
        0,
        MAX16,
        "queuing delay below which no flow is moved",
    )
    .main("QPLatencyThreshold")
    .unit("us"),
    u16(
        low_latency::CRITICAL_SCORE,
        "QpQueuingScoreThreshold",
        0,
        MAX16,
        "score from which a flow is moved",
    )
    .main("QPQueuingScoreThreshold")
    .unit("us"),
    u8(
        low_latency::AGING,
        "QpDrainRateExponent",
        0,
        255,
        "rate at which scores decay, 2^x bytes/s",
    )
    .main("QPDrainRateExponent")
    .unit("log2 bytes/s"),
];

const MATCHING: Scope = &[
    u32(1, "MatchingByApplicationId", 0, MAX32, "member flows carry this application identifier")
        .main("MatchingbyApplicationId")
        .main_range(0, 1),
    class_name(2, "MatchingByServiceClassName", "member flows have this service class")
        .main("MatchingbyServiceClassName"),
    Field::new(
        3,
        "MatchingByTrafficPriorityRange",
        Kind::List { width: 1, low: 2, high: 2 },
        "member flows have a priority from the first to the second number",
    )
    .main("MatchingbyTrafficPriorityRange"),
];

const fn low_latency() -> Field {
    nested(
        aggregate::LOW_LATENCY,
        "LowLatencyAggregateServiceFlowEncodings",
        LOW_LATENCY,
        "the pair of a classic and \
        a low latency flow (dual queue)",
    )
    .main("LowLatencyAggregateSFEncodings")
}
const fn matching() -> Field {
    nested(
        aggregate::MATCHING,
        "ServiceFlowMatchingCriteria",
        MATCHING,
        "which other flows belong to the aggregate",
    )
    .repeats()
}
const fn profile() -> Field {
    class_name(
        aggregate::PROFILE_NAME,
        "AsfQosProfileName",
        "profile at the CMTS whose settings fill the gaps",
    )
    .main("ASFQoSProfileName")
}
const fn asf_reference(main_name: &'static str) -> Field {
    u16(
        aggregate::REFERENCE,
        "AggregateServiceFlowReference",
        1,
        MAX16,
        "number by which this file refers to the \
        aggregate",
    )
    .main(main_name)
}
const fn mesp(main_name: &'static str) -> Field {
    u16(37, "MespReference", 1, MAX16, "Metro Ethernet service profile").main(main_name)
}

pub(super) const UPSTREAM_AGGREGATE: Scope = &[
    asf_reference("UpstreamServiceFlowReference"),
    profile(),
    priority(),
    sustained(),
    burst(),
    reserved_rate(),
    reserved_packet(),
    peak("UpstreamPeakTrafficRate"),
    mesp("UpstreamMESPReference"),
    matching(),
    RATE_UNIT,
    low_latency(),
];

pub(super) const DOWNSTREAM_AGGREGATE: Scope = &[
    asf_reference("DownstreamServiceFlowReference"),
    profile(),
    priority(),
    sustained(),
    burst(),
    reserved_rate(),
    reserved_packet(),
    peak("DownstreamPeakTrafficRate"),
    mesp("DownstreamMESPReference"),
    matching(),
    RATE_UNIT,
    low_latency(),
];

const CONSTITUENT: Scope = &[
    u16(1, "ConstituentServiceFlowReference", 1, MAX16, "which flow this is about")
        .main("ConstituentSFReference"),
    class_name(3, "ConstituentServiceFlowScn", "service class of the flow")
        .main("ConstituentSFSCN"),
    u8(4, "ConstituentServiceFlowPriority", 0, 7, "priority inside the aggregate")
        .main("ConstituentSFPriority"),
    u8(5, "ConstituentServiceFlowWeight", 0, 255, "weight among flows of the same priority")
        .main("ConstituentSFWeight"),
];

/// Aggregate of the enhanced hierarchical QoS, alike in both directions.
pub(super) const ENHANCED_HQOS: Scope = &[
    asf_reference("ServiceFlowReference"),
    priority(),
    u32(
        flow::SUSTAINED_RATE,
        "MaximumSustainedTrafficRate",
        0,
        MAX32,
        "token bucket rate; 0 is unlimited",
    )
    .main("MaxSustainedRate")
    .unit("bit/s"),
    burst(),
    reserved_rate(),
    reserved_packet(),
    nested(47, "EnhancedHqosIntraAsfSchedulingEncoding", CONSTITUENT, "scheduling of one member")
        .main("EnhancedHQoSIntraASFSchedulingEncoding")
        .repeats(),
];
