//! Energy, frequencies and time: settings of the modem itself.

use super::{Kind, MAX16, Scope, U8, U16, U32, nested, u8, u16, u32};

const DOWNSTREAM_ACTIVITY: Scope = &fields! {
    1, "DownstreamEntryBitrateThreshold", U32, "rate below which the mode begins", unit("bit/s");
    2, "DownstreamEntryTimeThreshold", u16(1, MAX16), "time below that rate", unit("s");
    3, "DownstreamExitBitrateThreshold", U32, "rate above which the mode ends", unit("bit/s");
    4, "DownstreamExitTimeThreshold", u16(1, MAX16), "time above that rate", unit("s");
};

const UPSTREAM_ACTIVITY: Scope = &fields! {
    1, "UpstreamEntryBitrateThreshold", U32, "rate below which the mode begins", unit("bit/s");
    2, "UpstreamEntryTimeThreshold", u16(1, MAX16), "time below that rate", unit("s");
    3, "UpstreamExitBitrateThreshold", U32, "rate above which the mode ends", unit("bit/s");
    4, "UpstreamExitTimeThreshold", u16(1, MAX16), "time above that rate", unit("s");
};

/// Thresholds of the 1x1 mode and of light sleep.
const ACTIVITY: Scope = &fields! {
    1, "DownstreamActivityDetectionParameters", nested(DOWNSTREAM_ACTIVITY),
        "thresholds of low downstream traffic";
    2, "UpstreamActivityDetectionParameters", nested(UPSTREAM_ACTIVITY),
        "thresholds of low upstream traffic";
};

pub(super) const ENERGY: Scope = &fields! {
    1, "EnergyManagementFeatureControl", u32(0, 3), "bits: 1 the 1x1 mode, 2 light sleep",
        main_range(0, 1);
    2, "EnergyManagement1x1Mode", nested(ACTIVITY),
        "one channel in each direction while traffic is low";
    3, "EnergyManagementCyclePeriod", U16, "shortest time between two entries", unit("s");
    4, "EnergyManagementDLSMode", nested(ACTIVITY), "light sleep on an OFDM channel";
};

pub(super) const DIPLEXER: Scope = &fields! {
    1, "DiplexerUpstreamUpperBandEdge", u8(0, 4), "upper edge of the upstream band, as a code";
    2, "DiplexerDownstreamLowerBandEdge", u8(0, 1), "lower edge of the downstream band, as a code";
    3, "DiplexerDownstreamUpperBandEdge", u8(0, 2), "upper edge of the downstream band, as a code";
};

pub(super) const ADVANCED_DIPLEXER: Scope = &fields! {
    1, "AdvDiplexerUpstreamUpperBandEdge", U16, "upper edge of the upstream band", unit("MHz");
    2, "AdvDiplexerDownstreamLowerBandEdge", U16, "lower edge of the downstream band", unit("MHz");
    3, "AdvDiplexerDownstreamUpperBandEdge", U16, "upper edge of the downstream band", unit("MHz");
};

pub(super) const SYNCHRONIZATION: Scope = &fields! {
    1, "PTPMasterClockEnable", u8(1, 2), "whether the modem is a PTP master";
    2, "PTPProfileConfiguration", u8(0, 3), "PTP profile";
    3, "PTPMaxNumberofClockSlavesConfiguration", U8, "maximum number of PTP slaves";
    4, "SyncEClockEnable", u8(1, 2), "whether the modem provides a synchronous Ethernet clock";
};

pub(super) const PTP_ADDRESSES: Scope = &fields! {
    1, "PTPSourceIPAddressConfiguration", Kind::Ip, "the modem's address";
    2, "CMTSPTPIPAddressConfiguration", Kind::Ip, "the CMTS's address";
    3, "PTPDestMulticastMACAddressConfiguration", Kind::Mac,
        "multicast destination address of PTP messages";
};
