//! The worlds that can run a scenario, whatever the machine, and why the others cannot.

use std::sync::Arc;

use underload_aqm::registry::LoadFile;
use underload_record::schema::World;
use underload_sim::trial::TrialLabel;

use crate::document::Document;
use crate::simulation::{PlanError, configure};
use crate::{
    Flow, FlowKind, Options, Path, Scenario, ScenarioError, ScenarioErrors, Variant, builtin,
};

impl Scenario {
    /// Reads a scenario file, and checks its short form too. Returns the first fault.
    pub fn parse(text: &str, name: &str) -> Result<Self, ScenarioError> {
        Self::check(text, name, &mut builtin::load_file).map_err(|errors| errors.first(name))
    }

    /// Reads a scenario file, and checks its short form too, and that a world can run it. `load`
    /// reads files that links name, such as traces; [`builtin::load_file`] has those built in.
    /// Returns the faults of both forms, in the order of their lines.
    pub fn check(text: &str, name: &str, load: &mut LoadFile<'_>) -> Result<Self, ScenarioErrors> {
        let document = Arc::new(Document::parse(text, name)?);
        let mut resolve = |short: bool| {
            let options = Options { short, ..Options::default() };
            Self::resolve(&document, text.to_owned(), &options, load)
        };
        let whole = resolve(false);
        let short = document.root.contains_key("short").then(|| resolve(true));
        match (whole, short.and_then(Result::err)) {
            (Ok(scenario), None) => match (scenario.sim_problem(), scenario.live_problem()) {
                (Some(sim), Some(live)) => {
                    let problem = format!("no world can run it; sim: {sim}; live: {live}");
                    Err(ScenarioErrors(vec![ScenarioError::new(name, "", problem)]))
                }
                _ => Ok(scenario),
            },
            (whole, short) => {
                let mut errors = whole.err().unwrap_or_default();
                errors.merge(short.unwrap_or_default());
                Err(errors)
            }
        }
    }

    /// Returns the worlds that can run it: [`World::Sim`] and [`World::Live`].
    pub fn worlds(&self) -> Vec<World> {
        let problems = [(World::Sim, self.sim_problem()), (World::Live, self.live_problem())];
        let able = problems.into_iter().filter(|(_, problem)| problem.is_none());
        able.map(|(world, _)| world).collect()
    }

    /// Returns why the simulator cannot run it, even with the caller's algorithms; else `None`.
    pub fn sim_problem(&self) -> Option<String> {
        self.variants.iter().find_map(|variant| {
            match configure(variant, 0, TrialLabel::default()) {
                Ok(_) | Err(PlanError::NotProvided { .. }) => None,
                Err(error) => Some(self.of_variant(variant, &error.to_string())),
            }
        })
    }

    /// Returns why the live world can run it on no machine; `None` if it can on some.
    pub fn live_problem(&self) -> Option<String> {
        let sim_only = |flow: &Flow| Some(format!("flow.{}.{}", flow.name, flow.sim_only_key()?));
        let mut lanes = self.variants.iter().flat_map(|variant| variant.path.lanes());
        if let Some((_, lane)) = lanes.find(|(_, lane)| !lane.name.is_empty()) {
            return Some(format!(
                "path.hop.{}: only the simulator has chains of links; other worlds have path.up \
                 and path.down",
                lane.name
            ));
        }
        if let Some(own) = self.own() {
            return Some(format!("{own}: only the simulator runs algorithms of Python"));
        }
        if let Some(key) =
            self.variants.iter().flat_map(|variant| &variant.flows).find_map(sim_only)
        {
            return Some(format!("{key}: only the simulator supports it"));
        }
        self.variants
            .iter()
            .find_map(|variant| Some(self.of_variant(variant, &live_problem(variant)?)))
    }

    /// Returns a problem with the name of the variant that has it, unless there is only one.
    fn of_variant(&self, variant: &Variant, problem: &str) -> String {
        match self.variants.as_slice() {
            [_] => problem.to_owned(),
            _ => format!("variant {}: {problem}", variant.name),
        }
    }
}

fn live_problem(variant: &Variant) -> Option<String> {
    let Path { up, down } = &variant.path;
    if let Some(lane) = up.iter().chain(down).find(|lane| lane.link.users().is_some()) {
        return Some(format!(
            "`{}`: only the simulator has users of one radio; expected another link, or --world sim",
            lane.link.label
        ));
    }
    if variant.ecn().is_none() {
        let problem = "in the live world ECN is a setting of a whole host; expected `ecn` of all \
                       tcp flows or of none";
        return Some(problem.to_owned());
    }
    let is_probe = |flow: &&Flow| matches!(flow.kind, FlowKind::Probe(_));
    match variant.flows.iter().filter(is_probe).count() {
        1 => variant.flows.iter().find_map(|flow| {
            let problem = flow.kind.properties().live_problem(&flow.activity)?;
            Some(format!("flow.{}.{problem}", flow.name))
        }),
        0 => Some("the live world needs a flow with kind = \"probe\"".to_owned()),
        _ => Some("the live world has one probe flow; give it several `classes` instead".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(flows: &str, phases: &str) -> Scenario {
        let text = format!(
            "[path]\nup = \"10mbit\"\n[phases]\n{phases}\n[[flow]]\nkind = \"probe\"\n{flows}"
        );
        let options = Options::default();
        let load = &mut builtin::load_file;
        Scenario::parse_with(&text, "test", &options, load).expect("readable")
    }

    /// Each refusal of a world is known before it runs.
    #[test]
    fn refusals_of_a_world_come_before_the_run() {
        let of = |flows: &str, phases: &str| {
            let scenario = scenario(flows, phases);
            let words = |problem: Option<String>| problem.unwrap_or_default();
            (words(scenario.sim_problem()), words(scenario.live_problem()), scenario.worlds())
        };
        let tcp = "[[flow]]\nkind = \"tcp\"\n";
        let (sim, live, worlds) = of(tcp, "");
        assert_eq!(
            (sim, live, worlds),
            (String::new(), String::new(), vec![World::Sim, World::Live])
        );
        let (sim, live, worlds) = of(&format!("{tcp}congestion_control = \"illinois\""), "");
        assert!(sim.contains("'illinois' is not simulated; expected "), "{sim}");
        assert_eq!((live, worlds), (String::new(), vec![World::Live]));
        let (sim, _, worlds) = of(tcp, "load = \"2h\"");
        assert!(sim.contains("lasts 72") && sim.contains("at most 3600 s"), "{sim}");
        assert_eq!(worlds, [World::Live]);
        let twin = "[[flow]]\nname = \"tcp-0\"\nkind = \"udp\"\nrate = \"1mbit\"\n";
        let (sim, ..) = of(&format!("{tcp}count = 2\n{twin}"), "");
        assert!(sim.contains("two flows are named 'tcp-0'"), "{sim}");
        let (_, live, worlds) = of(&format!("{tcp}stop = \"3s\""), "");
        assert!(live.starts_with("flow.tcp.stop: "), "{live}");
        assert_eq!(worlds, [World::Sim]);
        let small = "[[flow]]\nkind = \"udp\"\nrate = \"1mbit\"\npacket = \"40B\"\n";
        let (_, live, worlds) = of(small, "");
        assert!(live.starts_with("flow.udp.packet: 40B"), "{live}");
        assert_eq!(worlds, [World::Sim]);
        for kind in ["browser", "dash", "webrtc"] {
            let flow = format!("[[flow]]\nname = \"page\"\nkind = \"{kind}\"\n");
            let (sim, live, worlds) = of(&flow, "");
            let expected = format!(
                "flow 'page': kind '{kind}' is not simulated; expected any but browser, dash \
                 and webrtc"
            );
            assert_eq!((sim, live, worlds), (expected, String::new(), vec![World::Live]));
        }
        let (_, live, worlds) = of(&format!("{tcp}host = 2"), "");
        assert!(live.starts_with("flow.tcp.host: only the simulator"), "{live}");
        assert_eq!(worlds, [World::Sim]);
        let text = "[path]\ndown = \"radio:0=6mbit\"\n[[flow]]\nkind = \"probe\"\n";
        let scenario = Scenario::parse(text, "test").expect("readable");
        let live = scenario.live_problem().unwrap_or_default();
        assert!(live.starts_with("`radio:0=6mbit"), "{live}");
        assert_eq!(scenario.worlds(), [World::Sim]);
        // The probe is from host 0, and is no multicast.
        let error =
            Scenario::parse(&text.replace("radio:0", "radio:1"), "test").expect_err("refused");
        assert!(error.to_string().contains("'probe': host 0 is no user of `radio:1"), "{error}");
        let (_, live, _) = of("[[flow]]\nname = \"p2\"\nkind = \"probe\"\n", "");
        assert!(live.contains("one probe flow"), "{live}");
    }

    #[test]
    fn a_scenario_that_no_world_runs_is_refused() {
        let text = "[path]\nup = \"10mbit\"\n[[flow]]\nkind = \"probe\"\n[[flow]]\nkind = \"tcp\"\n\
                    congestion_control = \"illinois\"\nextra_rtt = \"5ms\"\n";
        let error = Scenario::parse(text, "test").expect_err("illinois is Linux's").to_string();
        assert!(error.contains("no world can run it"), "{error}");
        assert!(error.contains("illinois") && error.contains("flow.tcp.extra_rtt"), "{error}");
    }
}
