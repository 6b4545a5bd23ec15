//! Plans: their steps and load, and forms to apply and stop them.

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};
use underload_fleet::orchestrator::applicable;
use underload_fleet::plan::{BYTES_MAX, Load, Plan};
use underload_fleet::store::{Archive, PlanRow};
use underload_report::{one_line, plain_text};

use super::problem::Problem;
use super::question::Ask;
use super::sheet::{Section, Sheet};
use super::shell;
use super::table::{Cell, Table, number, words};
use super::visitor::Visitor;

/// Maximum number of entries of the operators' log.
const LOG: usize = 50;

pub(super) fn sheet(archive: &mut dyn Archive, ask: &Ask) -> Result<Sheet, Problem> {
    let plans = archive.plans()?;
    let running = plans.iter().filter(|plan| plan.stopped_ms.is_none()).count();
    let sentence = match plans.len() {
        0 => "No plan has been applied yet, so no device measures.".to_owned(),
        all => format!("{running} of {all} plans are running."),
    };
    let mut section = Section::new("Plans", table(&plans));
    "The load is what a plan makes on average, by its own numbers of lines and tiers."
        .clone_into(&mut section.note);
    section.more = html! {
        @for plan in &plans { (details(plan, ask)) }
        @if ask.visitor.is_operator() { (apply_form(ask)) }
    };
    let mut sections = vec![section];
    if ask.visitor.is_operator() {
        let log = archive.log(LOG)?.into_iter().map(|it| (it.at_ms, it.who, it.what));
        sections.push(Section::new("Log of the operators", Table::log(log)));
    }
    Ok(Sheet { title: "Plans".to_owned(), sentences: vec![sentence], sections })
}

fn table(plans: &[PlanRow]) -> Table {
    let row = |row: &PlanRow| {
        let plan = Plan::parse(&row.text).ok();
        let load = plan.as_ref().map(Load::of);
        let of = |value: fn(&Load) -> f64| Cell::number(load.as_ref().map(value));
        let title = plan.as_ref().map_or("not readable by this version", |plan| &plan.title);
        vec![
            Cell::text(&row.name),
            Cell::text(title),
            Cell::When(row.applied_ms),
            row.stopped_ms.map_or_else(|| Cell::text("running"), Cell::When),
            of(|load| load.runs_per_s),
            of(|load| load.servers_bit_per_s.up / 1e9),
            of(|load| load.servers_bit_per_s.down / 1e9),
            of(|load| load.line_bytes_per_month / 1e9),
            of(|load| load.stored_bytes_per_day / 1e9),
        ]
    };
    Table {
        name: "plans",
        columns: vec![
            words("name", "Plan"),
            words("title", "Title"),
            words("applied", "Applied, UTC"),
            words("stopped", "Stopped, UTC"),
            number("runs_per_s", "Runs", "per s"),
            number("up_gbit_per_s", "To servers", "Gbit/s"),
            number("down_gbit_per_s", "From servers", "Gbit/s"),
            number("line_gb_per_month", "A home's month", "GB"),
            number("stored_gb_per_day", "Stored a day", "GB"),
        ],
        rows: plans.iter().map(row).collect(),
    }
}

fn details(plan: &PlanRow, ask: &Ask) -> Markup {
    html! {
        details {
            summary { "Text of " (plan.name) }
            pre tabindex="0" aria-label={ "Text of " (plan.name) } { (plain_text(&plan.text)) }
            @if ask.visitor.is_operator() && plan.stopped_ms.is_none() {
                (ask.visitor.act_form(
                    "/plans/stop",
                    &format!("Stop {}?", plan.name),
                    ("plan", &plan.name),
                    [
                        &format!("Stop {}", plan.name),
                        "No further run starts. The results stay.",
                    ],
                ))
            }
        }
    }
}

fn apply_form(ask: &Ask) -> Markup {
    html! {
        details {
            summary { "Apply a plan" }
            (form(&ask.visitor, ""))
        }
    }
}

fn form(visitor: &Visitor, text: &str) -> Markup {
    html! {
        form.act method="post" action="/plans/apply" {
            (visitor.form_field())
            label for="text" { "The plan's file (TOML)" }
            // Browsers drop the first line break, so the text begins with one.
            textarea #text name="text" rows="16" required spellcheck="false"
                maxlength=(BYTES_MAX) { "\n" (text) }
            button type="submit" name="do" value="check" { "Check" }
            " "
            button type="submit" name="do" value="apply" { "Apply" }
            " " span.small { "A plan that exceeds one of its budgets is refused." }
        }
    }
}

/// The result of checking a plan, which was not applied.
pub(super) enum Verdict {
    /// All mistakes, or why the plan cannot be applied now.
    Refused(String),
    Checked(Box<Plan>),
}

pub(super) fn check(text: &str, now_ms: u64) -> Verdict {
    match applicable(text, now_ms) {
        Ok(plan) => Verdict::Checked(Box::new(plan)),
        Err(refused) => Verdict::Refused(refused.message),
    }
}

/// Returns the form with the text that was sent and the result of the check.
pub(super) fn answer(visitor: &Visitor, text: &str, verdict: &Verdict) -> Response {
    let (status, said) = match verdict {
        Verdict::Refused(mistakes) => (
            StatusCode::BAD_REQUEST,
            html! {
                p.verdict role="alert" { "The plan was not applied." }
                ul { @for mistake in mistakes.lines() { li { (one_line(mistake)) } } }
            },
        ),
        Verdict::Checked(plan) => (StatusCode::OK, load(plan)),
    };
    let around = shell::Around { visitor, path: "/plans" };
    let content = html! {
        h1 { "Apply a plan" }
        (said)
        (form(visitor, text))
        p { a href="/plans" { "Plans" } }
    };
    (status, shell::document("Apply a plan", Some(around), &content)).into_response()
}

fn load(plan: &Plan) -> Markup {
    let load = Load::of(plan);
    let rows = [
        ("Runs", load.runs_per_s, "per s"),
        ("Requests", load.requests_per_s, "per s"),
        ("To servers", load.servers_bit_per_s.up / 1e6, "Mbit/s"),
        ("From servers", load.servers_bit_per_s.down / 1e6, "Mbit/s"),
        ("A home's month", load.line_bytes_per_month / 1e9, "GB"),
        ("Stored a day", load.stored_bytes_per_day / 1e9, "GB"),
        ("Runs that find all servers full", load.blocked_percent, "%"),
    ];
    let row = |(name, value, unit): (&str, f64, &str)| {
        vec![Cell::text(name), Cell::Number(value), Cell::text(unit)]
    };
    let table = Table {
        name: "load",
        columns: vec![words("what", "On average"), number("value", "", ""), words("unit", "")],
        rows: rows.into_iter().map(row).collect(),
    };
    html! {
        p.verdict { "The plan has no mistake. It is not applied yet." }
        (table.html("Load of the plan"))
    }
}
