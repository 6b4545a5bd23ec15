//! The presets of a plan are equal to the presets of a measurement.

use underload_fleet::plan::{Kind, PRESETS, preset};
use underload_probe::load::Token;
use underload_probe::measure::Ramp;
use underload_probe::preset::{Knobs, Preset};
use underload_record::schema::Direction;

#[test]
fn a_plans_presets_are_those_of_a_measurement() {
    for name in PRESETS {
        let planned = preset(name).expect("it is one of them");
        let measured = Preset::from_name(name).expect("it is one of them, too");
        let measured = measured.steps(&Knobs::default(), Token([0; 16]));
        // A measurement is idle before each load; a plan is idle once before all of them.
        let idle = planned.iter().filter(|step| step.name == "idle");
        for step in idle.clone() {
            assert_eq!(step.duration.as_nanos(), measured[0].config.idle.as_nanos() as u64);
        }
        assert_eq!(planned.len() - idle.count(), measured.len(), "{name}");
        for step in planned {
            let of = measured.iter().find(|it| it.name == step.name);
            let config = &of.unwrap_or_else(|| &measured[0]).config;
            let classes: Vec<u8> =
                config.probe.classes.iter().map(|class| class.marking.dscp).collect();
            assert_eq!(step.classes, classes, "{name}: {}", step.name);
            assert_eq!(step.interval.as_nanos(), config.probe.interval.as_nanos() as u64);
            let Some(it) = of else { continue };
            let direction = it.config.loads.first().map(|flow| flow.direction);
            let kind = match direction {
                None => Kind::Latency,
                Some(Direction::Up) => Kind::Upload,
                Some(_) => Kind::Download,
            };
            assert_eq!(step.kind, kind, "{name}: {}", step.name);
            let lasts = if direction.is_none() { config.idle } else { config.load };
            assert_eq!(step.duration.as_nanos(), lasts.as_nanos() as u64, "{name}: {}", step.name);
            let (Ramp::Detected { at_most: ramp } | Ramp::Fixed(ramp)) = config.ramp;
            assert_eq!(step.warm_up.as_nanos(), ramp.as_nanos() as u64, "{name}: {}", step.name);
        }
    }
}
