//! The capabilities of a modem (type 5), which it reports to the CMTS when it registers.

use super::{MAX16, Scope, U8, hex, u8, u16};

pub(super) const MODEM_CAPABILITIES: Scope = &fields! {
    1, "ConcatenationSupport", u8(0, 1), "1 concatenates upstream frames";
    2, "ModemDocsisVersion", u8(0, 5), "0 DOCSIS 1.0, 1 DOCSIS 1.1, 2 2.0, 3 3.0, 4 3.1, 5 4.0",
        main_range(0, 3);
    3, "FragmentationSupport", u8(0, 1), "1 fragments upstream frames";
    4, "PHSSupport", u8(0, 1), "1 suppresses payload headers";
    5, "IGMPSupport", u8(0, 1), "1 supports IGMP";
    6, "BaselinePrivacySupport", u8(0, 1), "0 baseline privacy, 1 baseline privacy plus";
    7, "DownstreamSAIDSupport", U8, "downstream security associations";
    8, "UpstreamSIDSupport", U8, "upstream service identifiers";
    9, "OptionalFilteringSupport", U8, "bit mask of supported filters";
    10, "TransmitPreEqualizerTapsPerModulationInterval", u8(1, 4),
        "taps of the equalizer in a modulation interval";
    11, "NumberofTransmitEqualizerTaps", u8(8, 64), "taps of the equalizer";
    12, "DCCSupport", u8(0, 1), "1 supports dynamic channel changes";
    13, "IPFiltersSupport", u16(64, MAX16), "number of supported IP filters";
    14, "LLCFiltersSupport", u16(10, MAX16), "number of supported LLC filters";
    15, "ExpandedUnicastSIDSpace", u8(0, 1), "1 uses the larger space of service identifiers";
    16, "RangingHoldOffSupport", hex(4, 4), "bit mask of the devices for which ranging holds off";
    17, "L2VPNCapability", u8(0, 1), "1 carries layer 2 VPNs";
    18, "L2VPNeSAFEHostCapability", hex(0, 255), "interface and address of an embedded device";
    19, "DUTFilteringSupport", u8(0, 1), "1 filters downstream unencrypted traffic";
    20, "UpstreamFrequencyRangeSupport", u8(0, 1), "0 standard, 1 extended upstream frequencies";
    21, "UpstreamSymbolRateSupport", U8, "bit mask of supported symbol rates";
    22, "SelectableActiveCodeMode2Support", u8(0, 1), "1 selects active codes in mode 2";
    23, "CodeHoppingMode2Support", u8(0, 1), "1 hops codes in mode 2";
    24, "MultipleTransmitChannelSupport", U8, "upstream channels at once; 0 is one without bonding";
    25, "M512MspsUpstreamTransmitChannel", U8, "upstream channels of 5.12 Msymbol/s";
    26, "M256MspsUpstreamTransmitChannel", U8, "upstream channels of 2.56 Msymbol/s";
    27, "TotalSIDClusterSupport", U8, "total clusters of service identifiers";
    28, "SIDClustersPerServiceFlow", u8(2, 8), "clusters of service identifiers of one flow";
    29, "MultipleReceiveChannelSupport", U8, "downstream channels at once";
    30, "TotalDownstreamServiceIDSupport", u8(32, 255), "total downstream service identifiers";
    31, "ResequencingDownstreamServiceID", u8(16, 255),
        "downstream service identifiers with resequencing";
    32, "MulticastDownstreamServiceID", u8(16, 255), "downstream service identifiers for multicast";
    33, "MulticastDSIDForwarding", u8(0, 2),
        "0 no, 1 GMAC explicit, 2 GMAC promiscuous multicast forwarding";
    34, "FrameControlTypeForwarding", u8(0, 1), "1 forwards frames with the isolation type";
    35, "DPVCapability", U8, "bit mask of supported path verification";
    36, "UnsolicitedGrantServiceSupport", U8, "upstream flows with unsolicited grants";
    37, "MAPandUCDReceiptSupport", u8(0, 1), "1 accepts MAP and UCD on any downstream channel";
    38, "UpstreamDropClassifierSupport", u16(64, MAX16),
        "number of supported upstream drop classifiers";
    39, "IPv6Support", u8(0, 1), "1 carries IPv6";
    40, "ExtendedUpstreamTransmitPower", u8(0, 244),
        "highest transmit power; 0 is the standard one", unit("0.25 dBmV");
    41, "MPLSClassificationSupport", hex(4, 4),
        "bit mask of the MPLS fields that classifiers match";
    42, "DONUCapabilitiesEncoding", hex(0, 255), "settings of DPoE about the optical unit";
    44, "EnergyManagementCapabilities", hex(4, 4), "bit mask of supported energy modes";
    45, "CDOCSISCapabilityEncoding", hex(0, 255), "settings of C-DOCSIS";
    46, "CMSTATUSACK", u8(0, 1), "1 supports acknowledgements of CM-STATUS";
};
