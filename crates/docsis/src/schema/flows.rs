//! Service flows (24, 25) and aggregate service flows (70, 71, 93, 94).
//!
//! Functions with the argument `down` make the table of one direction: 0 upstream, 1 downstream.

use super::extension::INSIDE;
use super::{
    CLASS_NAME, Field, MAX16, MAX32, Scope, U8, U16, U32, hex, join, list, nested, u8, u16, u32,
};
use crate::code::{aggregate, aqm, buffer, flow, low_latency};

const BUFFER_CONTROL: Scope = &fields! {
    buffer::MINIMUM, "MinimumBuffer", U32,
        "smallest buffer that the flow accepts; the device refuses the flow when it cannot give \
         as much (24,576 is what every modem must be able to give)", unit("bytes");
    buffer::TARGET, "TargetBuffer", U32,
        "desired buffer; the device selects the closest size that it provides", unit("bytes");
    buffer::MAXIMUM, "MaximumBuffer", U32,
        "largest buffer that the flow accepts; the device refuses the flow when all its sizes are \
         larger", unit("bytes");
};

const AQM: Scope = &fields! {
    aqm::DISABLE, "SfAqmDisable", u8(0, 1), "1 turns active queue management off for this flow",
        main("SFAQMDisable");
    aqm::LATENCY_TARGET, "SfAqmLatencyTarget", U8, "latency that classic AQM aims at",
        main("SFAQMLatencyTarget"), unit("ms");
    aqm::ALGORITHM, "AqmAlgorithm", u8(0, 2),
        "0 the device's default, 1 DOCSIS-PIE, 2 immediate AQM", main("AQMAlgorithm");
    aqm::IMMEDIATE_MAX_THRESHOLD, "ImmediateAqmMaxThreshold", U16,
        "queuing delay from which every packet is marked",
        main("ImmediateAQMMaxThreshold"), unit("us");
    aqm::IMMEDIATE_RANGE_EXPONENT, "ImmediateAqmRangeExponent", u8(0, 25),
        "width of the marking ramp, 2^x ns (19: 524 us)",
        main("ImmediateAQMRangeExponent"), unit("log2 ns");
    aqm::HISTOGRAM_EDGES, "LatencyHistogramEncodings", list(2, 1, 15),
        "rising bin edges of the latency histogram that the device records", unit("0.01 ms");
};

const PRIORITY: Field = field! {
    7, "TrafficPriority", u8(0, 7), "priority among flows that are otherwise equal, 7 is highest"
};
const SUSTAINED: Field = field! {
    flow::SUSTAINED_RATE, "MaximumSustainedTrafficRate", U32, "token bucket rate; 0 is unlimited",
        main("MaxRateSustained"), unit("bit/s")
};
const BURST: Field = field! {
    flow::BURST, "MaximumTrafficBurst", U32, "token bucket depth", main("MaxTrafficBurst"),
        unit("bytes")
};
const RESERVED_RATE: Field = field! {
    10, "MinimumReservedTrafficRate", U32, "rate reserved for the flow", main("MinReservedRate"),
        unit("bit/s")
};
const RESERVED_PACKET: Field = field! {
    11, "AssumedMinimumReservedRatePacketSize", U16,
        "packet size that the reserved rate is computed with",
        main("MinResPacketSize"), unit("bytes")
};
const RATE_UNIT: Field = field! {
    flow::RATE_UNIT, "DataRateUnitSetting", u8(0, 3),
        "unit of the flow's rates: 0 bit/s, 1 kbit/s, 2 Mbit/s, 3 Gbit/s"
};
const fn peak(down: usize) -> Field {
    field! {
        flow::PEAK_RATE, "PeakTrafficRate", U32, "rate limit while the burst lasts; 0 is unlimited",
            main(["UpstreamPeakTrafficRate", "DownstreamPeakTrafficRate"][down]), unit("bit/s")
    }
}

const UPSTREAM_REFERENCE: &str = "UpstreamAggregateServiceFlowReference";
const DOWNSTREAM_REFERENCE: &str = "DownstreamAggregateServiceFlowReference";

const fn flow(down: usize) -> [Field; 24] {
    fields! {
        flow::REFERENCE, "ServiceFlowReference", u16(1, MAX16),
            "number by which this file refers to the flow",
            main(["UsServiceFlowRef", "DsServiceFlowRef"][down]);
        2, "ServiceFlowIdentifier", u32(1, MAX32), "assigned by the CMTS; not for a file",
            main(["UsServiceFlowId", "DsServiceFlowId"][down]);
        4, "ServiceClassName", CLASS_NAME, "class at the CMTS that supplies absent settings";
        flow::PARAMETER_SET, "QosParameterSetType", u8(1, 7),
            "bits: 1 provisioned, 2 admitted, 4 active; 7 is all", main("QosParamSetType");
        PRIORITY; SUSTAINED; BURST; RESERVED_RATE; RESERVED_PACKET;
        12, "TimeoutForActiveQosParameters", U16, "idle time before deactivation; 0 never",
            main("ActQosParamsTimeout"), unit("s");
        13, "TimeoutForAdmittedQosParameters", U16,
            "time for which admitted resources stay reserved",
            main("AdmQosParamsTimeout"), unit("s");
        23, "IpTosOverwrite", hex(2, 2), "AND mask, then OR mask, applied to the IP TOS byte";
        peak(down);
        31, "ServiceFlowRequiredAttributeMask", hex(4, 4), "attributes that the channel must have";
        32, "ServiceFlowForbiddenAttributeMask", hex(4, 4),
            "attributes that the channel must not have";
        33, "ServiceFlowAttributeAggregationRuleMask", hex(4, 4),
            "how attributes of bonded channels combine";
        34, "ApplicationIdentifier", U32, "identifier of the application that the flow serves";
        flow::BUFFER_CONTROL, "BufferControl", nested(BUFFER_CONTROL), "size of the flow's queue";
        flow::AGGREGATE_REFERENCE, "AggregateServiceFlowReference", u16(1, MAX16),
            "aggregate service flow that this flow belongs to",
            main([UPSTREAM_REFERENCE, DOWNSTREAM_REFERENCE][down]);
        37, "MespReference", u16(1, MAX16), "Metro Ethernet service profile of the flow",
            main(["UpstreamMESPReference", "DownstreamMESPReference"][down]);
        39, "SfToIatcProfileNameReference", CLASS_NAME, "intra-aggregate traffic class of the flow",
            main("SFtoIATCProfileNameReference");
        flow::AQM, "AqmEncodings", nested(AQM), "active queue management of the flow",
            main("AQMEncodings");
        RATE_UNIT; INSIDE;
    }
}

const UPSTREAM_ONLY: [Field; 16] = fields! {
    3, "ServiceIdentifier", U16, "assigned by the CMTS; not for a file";
    14, "MaximumConcatenatedBurst", U16, "largest concatenated frame; 0 is unlimited",
        main("MaxConcatenatedBurst"), unit("bytes");
    flow::SCHEDULING, "ServiceFlowSchedulingType", u8(0, 6),
        "2 best effort, 3 non-real-time polling, 4 real-time polling, 5 unsolicited grants with \
         activity detection, 6 unsolicited grants", main("SchedulingType");
    16, "RequestTransmissionPolicy", hex(4, 4), "bits that forbid request and transmission methods",
        main("RequestOrTxPolicy");
    17, "NominalPollingInterval", U32, "time between polls", main("NominalPollInterval"),
        unit("us");
    18, "ToleratedPollJitter", U32, "how late a poll may be", unit("us");
    19, "UnsolicitedGrantSize", U16, "size of each unsolicited grant", unit("bytes");
    20, "NominalGrantInterval", U32, "time between unsolicited grants", unit("us");
    21, "ToleratedGrantJitter", U32, "how late a grant may be", unit("us");
    22, "GrantsPerInterval", u8(0, 127), "unsolicited grants in each interval";
    26, "MultiplierToNumberOfBytesRequested", u8(1, 16), "1, 2, 4, 8 or 16: unit of requests",
        main("MultipliertoNumberofBytesRequested");
    flow::GUARANTEED_GRANT_INTERVAL, "GuaranteedGrantInterval", U16,
        "time between proactive grants", unit("us");
    flow::GUARANTEED_GRANT_RATE, "GuaranteedGrantRate", U32, "rate of proactive grants",
        unit("bit/s");
    46, "GuaranteedRequestInterval", U16, "time between request opportunities", unit("us");
    48, "AbsoluteQueueDepthRequestEnable", u8(0, 1), "1 makes requests report the whole queue";
    49, "PgsActivityDetectionDisable", u8(0, 1), "1 keeps proactive grants while the flow idles",
        main("PGSActivityDetectionDisable");
};
pub(super) const UPSTREAM: Scope = &join::<_, _, 40>(flow(0), UPSTREAM_ONLY);

const DOWNSTREAM_ONLY: [Field; 2] = fields! {
    14, "MaximumDownstreamLatency", U32, "maximum latency in the CMTS; 0 is unlimited",
        main("MaxDsLatency"), unit("us");
    17, "DownstreamResequencing", u8(0, 1), "0 resequences bonded packets, 1 does not",
        main("DsResequencing");
};
pub(super) const DOWNSTREAM: Scope = &join::<_, _, 26>(flow(1), DOWNSTREAM_ONLY);

const LOW_LATENCY: Scope = &fields! {
    low_latency::FLOW_REFERENCE, "LowLatencyServiceFlowReference", u16(1, MAX16),
        "reference of the low latency flow";
    low_latency::CLASSIC_CLASS_NAME, "ClassicServiceFlowScn", CLASS_NAME,
        "service class of the classic flow", main("ClassicSFSCN");
    4, "LowLatencyServiceFlowScn", CLASS_NAME, "service class of the low latency flow",
        main("LowLatencySFSCN");
    low_latency::COUPLING_FACTOR, "AqmCouplingFactor", U8,
        "how strongly the classic queue's drops become marks in the low latency one (20 means \
         2.0)", main("AQMCouplingFactor"), unit("tenths");
    low_latency::SCHEDULING_WEIGHT, "SchedulingWeight", u8(1, 255),
        "share of the low latency flow while both queues are busy", unit("1/256");
    low_latency::QUEUE_PROTECTION, "QueueProtectionEnable", u8(0, 1),
        "1 moves queue-building flows out of the low latency queue";
    low_latency::CRITICAL_DELAY, "QpLatencyThreshold", U16,
        "queuing delay below which no flow is moved", main("QPLatencyThreshold"), unit("us");
    low_latency::CRITICAL_SCORE, "QpQueuingScoreThreshold", U16, "score from which a flow is moved",
        main("QPQueuingScoreThreshold"), unit("us");
    low_latency::AGING, "QpDrainRateExponent", U8, "rate at which scores decay, 2^x bytes/s",
        main("QPDrainRateExponent"), unit("log2 bytes/s");
};

const MATCHING: Scope = &fields! {
    1, "MatchingByApplicationId", U32, "member flows carry this application identifier",
        main("MatchingbyApplicationId"), main_range(0, 1);
    2, "MatchingByServiceClassName", CLASS_NAME, "member flows have this service class",
        main("MatchingbyServiceClassName");
    3, "MatchingByTrafficPriorityRange", list(1, 2, 2),
        "member flows have a priority from the first to the second number",
        main("MatchingbyTrafficPriorityRange");
};

const fn aggregate_reference(main_name: &'static str) -> Field {
    field! {
        aggregate::REFERENCE, "AggregateServiceFlowReference", u16(1, MAX16),
            "number by which this file refers to the aggregate", main(main_name)
    }
}

const fn aggregate(down: usize) -> [Field; 12] {
    fields! {
        aggregate_reference(
            ["UpstreamServiceFlowReference", "DownstreamServiceFlowReference"][down]
        );
        aggregate::PROFILE_NAME, "AsfQosProfileName", CLASS_NAME,
            "profile at the CMTS that supplies absent settings", main("ASFQoSProfileName");
        PRIORITY; SUSTAINED; BURST; RESERVED_RATE; RESERVED_PACKET;
        peak(down);
        37, "MespReference", u16(1, MAX16), "Metro Ethernet service profile",
            main(["UpstreamMESPReference", "DownstreamMESPReference"][down]);
        aggregate::MATCHING, "ServiceFlowMatchingCriteria", nested(MATCHING),
            "which other flows belong to the aggregate", repeats();
        RATE_UNIT;
        aggregate::LOW_LATENCY, "LowLatencyAggregateServiceFlowEncodings", nested(LOW_LATENCY),
            "the pair of a classic and a low latency flow (dual queue)",
            main("LowLatencyAggregateSFEncodings");
    }
}

pub(super) const UPSTREAM_AGGREGATE: Scope = &aggregate(0);
pub(super) const DOWNSTREAM_AGGREGATE: Scope = &aggregate(1);

const CONSTITUENT: Scope = &fields! {
    1, "ConstituentServiceFlowReference", u16(1, MAX16), "reference of the member flow",
        main("ConstituentSFReference");
    3, "ConstituentServiceFlowScn", CLASS_NAME, "service class of the flow",
        main("ConstituentSFSCN");
    4, "ConstituentServiceFlowPriority", u8(0, 7), "priority inside the aggregate",
        main("ConstituentSFPriority");
    5, "ConstituentServiceFlowWeight", U8, "weight among flows of the same priority",
        main("ConstituentSFWeight");
};

/// Aggregate of the enhanced hierarchical QoS, alike in both directions.
pub(super) const ENHANCED_HQOS: Scope = &fields! {
    aggregate_reference("ServiceFlowReference");
    PRIORITY;
    SUSTAINED.main("MaxSustainedRate");
    BURST; RESERVED_RATE; RESERVED_PACKET;
    47, "EnhancedHqosIntraAsfSchedulingEncoding", nested(CONSTITUENT), "scheduling of one member",
        main("EnhancedHQoSIntraASFSchedulingEncoding"), repeats();
};
