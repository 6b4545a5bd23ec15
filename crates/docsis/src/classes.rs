//! The configuration that a modem gets from its CMTS: service classes are resolved, Buffer Control is
//! passed on as far as the CMTS supports it, and PCMM changes flows.
//!
//! Named service classes: a CMTS supplies the settings that a service flow leaves to the class whose
//! name it has (24.4, 25.4). What the flow sets itself overrides the class.
//!
//! A file of classes is a configuration whose service flows are the classes of their direction.

use crate::code::flow;
use crate::qos::Direction;
use crate::tlv::{Config, Item, Tlv, Value};

/// How far a CMTS supports Buffer Control of modems (CM-GL-Buffer-V01, section 6.3.1). Each level
/// includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CmtsSupport {
    /// Buffer Control does not reach the modem.
    None,
    /// The CMTS copies the settings of the configuration file.
    Minimal,
    /// The CMTS also supplies those of named service classes.
    Scalable,
    /// PCMM also creates and changes service flows at run time.
    Dynamic,
}

impl CmtsSupport {
    pub const ALL: [Self; 4] = [Self::None, Self::Minimal, Self::Scalable, Self::Dynamic];

    pub const fn name(self) -> &'static str {
        ["none", "minimal", "scalable", "dynamic"][self as usize]
    }

    /// Returns the flows that the modem gets from such a CMTS: those of `config` with the settings
    /// of `classes`, after the `changes` by PCMM.
    pub fn registered(self, config: &Config, classes: &Config, changes: &Config) -> Config {
        let without = |config: &Config, least| {
            let mut config = config.clone();
            let flows = config.items.iter_mut().filter_map(upstream_flow).filter(|_| self < least);
            flows.for_each(|settings| settings.retain(|it| it.code != flow::BUFFER_CONTROL));
            config
        };
        let config = without(config, Self::Minimal);
        let mut flows = resolve(&config, &without(classes, Self::Scalable));
        for direction in Direction::BOTH.iter().filter(|_| self == Self::Dynamic) {
            let changes = changes.settings_of_type(direction.flow_code());
            changes.for_each(|change| apply(&mut flows, change));
        }
        flows
    }
}

fn upstream_flow(item: &mut Item) -> Option<&mut Vec<Tlv>> {
    match item {
        Item::Tlv(Tlv { code, value: Value::Nested(settings) })
            if *code == Direction::Upstream.flow_code() =>
        {
            Some(settings)
        }
        _ => None,
    }
}

/// Replaces the settings of `change` in the flow with its reference, or adds it as a flow.
fn apply(config: &mut Config, change: &Tlv) {
    let reference = |tlv: &Tlv| (tlv.code, tlv.number(flow::REFERENCE));
    let is_changed = |item: &&mut Item| match item {
        Item::Tlv(tlv) => reference(tlv) == reference(change),
        Item::Pad => false,
    };
    match config.items.iter_mut().find(is_changed) {
        Some(Item::Tlv(Tlv { value: Value::Nested(settings), .. })) => {
            settings.retain(|own| change.child(own.code).is_none());
            settings.extend(change.children().iter().cloned());
        }
        _ => config.items.push(Item::Tlv(change.clone())),
    }
}

/// Returns `config` with the settings of `classes` in each flow that names one of them.
pub fn resolve(config: &Config, classes: &Config) -> Config {
    let mut resolved = config.clone();
    for item in &mut resolved.items {
        let Item::Tlv(tlv) = item else { continue };
        let Some(class) = name(tlv).and_then(|name| find(classes, tlv.code, name)) else {
            continue;
        };
        let is_absent =
            |setting: &&Tlv| setting.code > flow::CLASS_NAME && tlv.child(setting.code).is_none();
        let supplied: Vec<Tlv> = class.children().iter().filter(is_absent).cloned().collect();
        if let Value::Nested(own) = &mut tlv.value {
            own.extend(supplied);
        }
    }
    resolved
}

/// Returns the class of a direction's flows (type `code`) with this name.
pub(crate) fn find<'a>(classes: &'a Config, code: u8, named: &[u8]) -> Option<&'a Tlv> {
    classes.settings_of_type(code).find(|class| name(class) == Some(named))
}

/// Returns the name of a flow's class without the zero byte that ends it.
pub(crate) fn name(tlv: &Tlv) -> Option<&[u8]> {
    let is_flow = Direction::BOTH.iter().any(|direction| direction.flow_code() == tlv.code);
    let bytes = tlv.child(flow::CLASS_NAME).filter(|_| is_flow)?.as_bytes()?;
    Some(bytes.strip_suffix(b"\0").unwrap_or(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qos::ServiceFlow;
    use crate::text::read;

    const FLOW: &str = "[[UpstreamServiceFlow]]\nServiceFlowReference = ";

    fn targets(config: &Config) -> Vec<(u16, Option<u32>)> {
        let flows = config.settings_of_type(Direction::Upstream.flow_code());
        let flows = flows.filter_map(ServiceFlow::from_tlv);
        flows.map(|flow| (flow.reference, flow.buffer.and_then(|it| it.target))).collect()
    }

    #[test]
    fn each_level_of_a_cmts_adds_a_way_for_buffer_control_to_reach_the_modem() {
        let buffer = |bytes: u32| format!("BufferControl = {{ TargetBuffer = {bytes} }}\n");
        let parsed = |text: &str| read(text).expect("a text");
        let own = format!("{FLOW}1\n{}", buffer(8_192));
        let config = parsed(&format!("{own}{FLOW}2\nServiceClassName = 'gold'\n"));
        let class = "[[UpstreamServiceFlow]]\nServiceClassName = 'gold'\n";
        let classes = parsed(&format!("{class}{}", buffer(16_384)));
        let change = format!("{FLOW}1\n{}{FLOW}7\n{}", buffer(32_768), buffer(51_200));
        let changes = parsed(&change);
        let (none, own, class) = (None, Some(8_192), Some(16_384));
        for (support, expected) in [
            (CmtsSupport::None, vec![(1, none), (2, none)]),
            (CmtsSupport::Minimal, vec![(1, own), (2, none)]),
            (CmtsSupport::Scalable, vec![(1, own), (2, class)]),
            (CmtsSupport::Dynamic, vec![(1, Some(32_768)), (2, class), (7, Some(51_200))]),
        ] {
            let registered = support.registered(&config, &classes, &changes);
            assert_eq!(targets(&registered), expected, "{support:?}");
        }
    }
}
