//! Energy, frequencies and time: settings of the modem itself.

use super::{Field, Kind, MAX16, MAX32, Scope, nested, u8, u16, u32};

const DOWNSTREAM_ACTIVITY_DETECTION_PARAMETERS: Scope = &[
    u32(1, "DownstreamEntryBitrateThreshold", 0, MAX32, "rate below which the mode begins")
        .unit("bit/s"),
    u16(2, "DownstreamEntryTimeThreshold", 1, MAX16, "time below that rate").unit("s"),
    u32(3, "DownstreamExitBitrateThreshold", 0, MAX32, "rate above which the mode ends")
        .unit("bit/s"),
    u16(4, "DownstreamExitTimeThreshold", 1, MAX16, "time above that rate").unit("s"),
];

const UPSTREAM_ACTIVITY_DETECTION_PARAMETERS: Scope = &[
    u32(1, "UpstreamEntryBitrateThreshold", 0, MAX32, "rate below which the mode begins")
        .unit("bit/s"),
    u16(2, "UpstreamEntryTimeThreshold", 1, MAX16, "time below that rate").unit("s"),
    u32(3, "UpstreamExitBitrateThreshold", 0, MAX32, "rate above which the mode ends")
        .unit("bit/s"),
    u16(4, "UpstreamExitTimeThreshold", 1, MAX16, "time above that rate").unit("s"),
];

const ENERGY_MANAGEMENT1X1_MODE: Scope = &[
    nested(
        1,
        "DownstreamActivityDetectionParameters",
        DOWNSTREAM_ACTIVITY_DETECTION_PARAMETERS,
        "what counts as little downstream",
    ),
    nested(
        2,
        "UpstreamActivityDetectionParameters",
        UPSTREAM_ACTIVITY_DETECTION_PARAMETERS,
        "what counts as little upstream",
    ),
];

const ENERGY_MANAGEMENT_DLS_MODE: Scope = &[
    nested(
        1,
        "DownstreamActivityDetectionParameters",
        DOWNSTREAM_ACTIVITY_DETECTION_PARAMETERS,
        "what counts as little downstream",
    ),
    nested(
        2,
        "UpstreamActivityDetectionParameters",
        UPSTREAM_ACTIVITY_DETECTION_PARAMETERS,
        "what counts as little upstream",
    ),
];

pub(super) const ENERGY: Scope = &[
    u32(1, "EnergyManagementFeatureControl", 0, 3, "bits: 1 the 1x1 mode, 2 light sleep")
        .main_range(0, 1),
    nested(
        2,
        "EnergyManagement1x1Mode",
        ENERGY_MANAGEMENT1X1_MODE,
        "one channel in each direction while little is sent",
    ),
    u16(3, "EnergyManagementCyclePeriod", 0, MAX16, "shortest time between two entries").unit("s"),
    nested(
        4,
        "EnergyManagementDLSMode",
        ENERGY_MANAGEMENT_DLS_MODE,
        "light sleep on an OFDM channel",
    ),
];

pub(super) const DIPLEXER: Scope = &[
    u8(1, "DiplexerUpstreamUpperBandEdge", 0, 4, "upper end of the upstream, a code"),
    u8(2, "DiplexerDownstreamLowerBandEdge", 0, 1, "lower end of the downstream, a code"),
    u8(3, "DiplexerDownstreamUpperBandEdge", 0, 2, "upper end of the downstream, a code"),
];

pub(super) const ADVANCED_DIPLEXER: Scope = &[
    u16(1, "AdvDiplexerUpstreamUpperBandEdge", 0, MAX16, "upper end of the upstream").unit("MHz"),
    u16(2, "AdvDiplexerDownstreamLowerBandEdge", 0, MAX16, "lower end of the downstream")
        .unit("MHz"),
    u16(3, "AdvDiplexerDownstreamUpperBandEdge", 0, MAX16, "upper end of the downstream")
        .unit("MHz"),
];

pub(super) const SYNCHRONIZATION: Scope = &[
    u8(1, "PTPMasterClockEnable", 1, 2, "whether the modem is a PTP master"),
    u8(2, "PTPProfileConfiguration", 0, 3, "PTP profile"),
    u8(3, "PTPMaxNumberofClockSlavesConfiguration", 0, 255, "PTP slaves at most"),
    u8(4, "SyncEClockEnable", 1, 2, "whether the modem gives a synchronous Ethernet clock"),
];

pub(super) const PTP_ADDRESSES: Scope = &[
    Field::new(1, "PTPSourceIPAddressConfiguration", Kind::Ip, "the modem's address"),
    Field::new(2, "CMTSPTPIPAddressConfiguration", Kind::Ip, "the CMTS's address"),
    Field::new(
        3,
        "PTPDestMulticastMACAddressConfiguration",
        Kind::Mac,
        "multicast address that messages go to",
    ),
];
