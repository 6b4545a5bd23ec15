//! All changes of a file in one source, each behind a switch: built once, run as often as there
//! are changes.
//!
//! `a < b` becomes `(if on(7) { (a) <= (b) } else { (a < b) })`. What a change replaces is a part
//! of the syntax tree, so its operands stay together whatever binds closer in the new text.

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::Context;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::listing::{Change, Genre, Place};

/// A source with its changes.
#[derive(Debug, Default)]
pub struct Woven {
    pub text: String,
    /// Where in the text each change stands alone, by its number.
    pub branches: Vec<(Range<usize>, usize)>,
    /// What was wrapped, outer before inner, and the changes that asked for it.
    pub wrapped: Vec<(Range<usize>, Vec<usize>)>,
}

/// Weaves the numbered changes in. Those which cannot be switched are not in `branches`: in what
/// the compiler computes, and of kinds that this module does not know.
pub fn weave(source: &str, changes: &[(usize, &Change)]) -> anyhow::Result<Woven> {
    let file = syn::parse_file(source).context("the source does not parse")?;
    let mut at: BTreeMap<Place, Vec<(usize, &Change)>> = BTreeMap::new();
    for (number, change) in changes {
        at.entry(change.span.start).or_default().push((*number, change));
    }
    let mut weaver = Weaver { source, at, edits: Vec::new(), computed: 0 };
    weaver.visit_file(&file);
    Ok(emit(source, &weaver.edits))
}

/// The condition that a change is switched on.
fn on(number: usize) -> String {
    format!("crate::mutant_switch::on({number})")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    /// Ends what is wrapped: inner before outer, and before anything that begins here.
    End,
    /// Begins what is wrapped, or stands alone: outer before inner.
    Begin,
}

/// Text to insert.
struct Edit {
    at: usize,
    side: Side,
    /// Parts, and which change each is.
    parts: Vec<(String, Option<usize>)>,
    /// The end of what this begins to wrap, as a place among the edits.
    wraps: Option<usize>,
}

struct Weaver<'a> {
    source: &'a str,
    at: BTreeMap<Place, Vec<(usize, &'a Change)>>,
    edits: Vec<Edit>,
    /// Depth of what is computed by the compiler, where nothing can be switched.
    computed: usize,
}

impl<'a> Weaver<'a> {
    /// The changes of that genre that begin where `span` does.
    fn take(&self, span: proc_macro2::Span, genre: Genre) -> Vec<(usize, &'a Change)> {
        if self.computed > 0 {
            return Vec::new();
        }
        let start = span.start();
        let place = Place { line: start.line, column: start.column + 1 };
        let here = self.at.get(&place).into_iter().flatten().copied();
        here.filter(|(_, change)| change.genre == genre).collect()
    }

    fn text(&self, span: proc_macro2::Span) -> &'a str {
        &self.source[span.byte_range()]
    }

    fn insert(&mut self, at: usize, parts: Vec<(String, Option<usize>)>) {
        self.edits.push(Edit { at, side: Side::Begin, parts, wraps: None });
    }

    /// Wraps `extent` in a choice between the numbered texts and itself, then `inner` visits it.
    fn wrap(
        &mut self,
        extent: Range<usize>,
        choices: Vec<(usize, String)>,
        inner: impl FnOnce(&mut Self),
    ) {
        if choices.is_empty() {
            inner(self);
            return;
        }
        let mut parts = vec![("(".to_owned(), None)];
        for (number, text) in choices {
            parts.push((format!("if {} {{ ", on(number)), None));
            parts.push((text, Some(number)));
            parts.push((" } else ".to_owned(), None));
        }
        parts.push(("{ (".to_owned(), None));
        let begin = self.edits.len();
        self.edits.push(Edit { at: extent.start, side: Side::Begin, parts, wraps: None });
        inner(self);
        self.edits[begin].wraps = Some(self.edits.len());
        let parts = vec![(") })".to_owned(), None)];
        self.edits.push(Edit { at: extent.end, side: Side::End, parts, wraps: None });
    }

    fn computed(&mut self, is: bool, inner: impl FnOnce(&mut Self)) {
        self.computed += usize::from(is);
        inner(self);
        self.computed -= usize::from(is);
    }

    /// A body that may return something else at once.
    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let Some(first) = block.stmts.first() else { return };
        let opaque = self.text(signature.output.span()).contains("impl ");
        if signature.constness.is_some() || opaque {
            return;
        }
        let body = block.brace_token.span.open().byte_range().end;
        for (number, change) in self.take(first.span(), Genre::FnValue) {
            let parts = vec![
                (format!(" if {} {{ ", on(number)), None),
                (format!("return {};", change.replacement), Some(number)),
                (" }".to_owned(), None),
            ];
            self.insert(body, parts);
        }
    }
}

impl<'ast> Visit<'ast> for Weaver<'_> {
    fn visit_item_fn(&mut self, it: &'ast syn::ItemFn) {
        self.function(&it.sig, &it.block);
        self.computed(it.sig.constness.is_some(), |this| visit::visit_item_fn(this, it));
    }

    fn visit_impl_item_fn(&mut self, it: &'ast syn::ImplItemFn) {
        self.function(&it.sig, &it.block);
        self.computed(it.sig.constness.is_some(), |this| visit::visit_impl_item_fn(this, it));
    }

    fn visit_trait_item_fn(&mut self, it: &'ast syn::TraitItemFn) {
        if let Some(block) = &it.default {
            self.function(&it.sig, block);
        }
        visit::visit_trait_item_fn(self, it);
    }

    fn visit_item_const(&mut self, it: &'ast syn::ItemConst) {
        self.computed(true, |this| visit::visit_item_const(this, it));
    }

    fn visit_impl_item_const(&mut self, it: &'ast syn::ImplItemConst) {
        self.computed(true, |this| visit::visit_impl_item_const(this, it));
    }

    fn visit_item_static(&mut self, it: &'ast syn::ItemStatic) {
        self.computed(true, |this| visit::visit_item_static(this, it));
    }

    fn visit_expr_const(&mut self, it: &'ast syn::ExprConst) {
        self.computed(true, |this| visit::visit_expr_const(this, it));
    }

    fn visit_type(&mut self, it: &'ast syn::Type) {
        self.computed(true, |this| visit::visit_type(this, it));
    }

    fn visit_generic_argument(&mut self, it: &'ast syn::GenericArgument) {
        self.computed(true, |this| visit::visit_generic_argument(this, it));
    }

    fn visit_expr_repeat(&mut self, it: &'ast syn::ExprRepeat) {
        self.visit_expr(&it.expr);
        self.computed(true, |this| this.visit_expr(&it.len));
    }

    fn visit_pat(&mut self, it: &'ast syn::Pat) {
        self.computed(true, |this| visit::visit_pat(this, it));
    }

    fn visit_expr_binary(&mut self, it: &'ast syn::ExprBinary) {
        let choices = if holds_let(&it.left) || holds_let(&it.right) {
            Vec::new()
        } else {
            let (left, right) = (self.text(it.left.span()), self.text(it.right.span()));
            let changes = self.take(it.op.span(), Genre::BinaryOperator).into_iter();
            changes
                .map(|(number, it)| (number, format!("({left}) {} ({right})", it.replacement)))
                .collect()
        };
        let extent = it.span().byte_range();
        self.wrap(extent, choices, |this| visit::visit_expr_binary(this, it));
    }

    fn visit_expr_unary(&mut self, it: &'ast syn::ExprUnary) {
        let operand = self.text(it.expr.span()).to_owned();
        let changes = self.take(it.op.span(), Genre::UnaryOperator).into_iter();
        let choices =
            changes.map(|(number, it)| (number, format!("{}{operand}", it.replacement))).collect();
        let extent = it.span().byte_range();
        self.wrap(extent, choices, |this| visit::visit_expr_unary(this, it));
    }

    fn visit_arm(&mut self, it: &'ast syn::Arm) {
        let deleted = self.take(it.span(), Genre::MatchArm);
        let kept: Vec<String> =
            deleted.iter().map(|(number, _)| format!("!{}", on(*number))).collect();
        let kept = kept.join(" && ");
        let number = deleted.first().map(|(number, _)| *number);
        self.visit_pat(&it.pat);
        if let Some((_, guard)) = &it.guard {
            let extent = guard.span().byte_range();
            if number.is_some() {
                self.insert(extent.start, vec![(kept, number), (" && ".to_owned(), None)]);
            }
            let changes = self.take(guard.span(), Genre::MatchArmGuard).into_iter();
            let choices = changes.map(|(number, it)| (number, it.replacement.clone())).collect();
            let is_deletable = number.is_some();
            self.wrap_guard(extent, choices, is_deletable, guard);
        } else if number.is_some() {
            let end = it.pat.span().byte_range().end;
            self.insert(end, vec![(" if ".to_owned(), None), (kept, number)]);
        }
        self.visit_expr(&it.body);
    }
}

impl Weaver<'_> {
    /// A guard, with parentheses of its own where something stands before it.
    fn wrap_guard(
        &mut self,
        extent: Range<usize>,
        choices: Vec<(usize, String)>,
        in_parentheses: bool,
        guard: &syn::Expr,
    ) {
        let end = extent.end;
        if in_parentheses {
            self.insert(extent.start, vec![("(".to_owned(), None)]);
        }
        self.wrap(extent, choices, |this| this.visit_expr(guard));
        if in_parentheses {
            let parts = vec![(")".to_owned(), None)];
            self.edits.push(Edit { at: end, side: Side::End, parts, wraps: None });
        }
    }
}

/// Whether an operand of `&&` binds names, which a choice would hide.
fn holds_let(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(it) => holds_let(&it.left) || holds_let(&it.right),
        _ => false,
    }
}

fn emit(source: &str, edits: &[Edit]) -> Woven {
    let mut order: Vec<usize> = (0..edits.len()).collect();
    order.sort_by_key(|&place| (edits[place].at, edits[place].side, place));
    let mut woven = Woven::default();
    let mut spans = vec![0..0; edits.len()];
    let mut from = 0;
    for place in order {
        let edit = &edits[place];
        woven.text.push_str(&source[from..edit.at]);
        from = edit.at;
        let start = woven.text.len();
        for (part, number) in &edit.parts {
            let start = woven.text.len();
            woven.text.push_str(part);
            if let Some(number) = number {
                woven.branches.push((start..woven.text.len(), *number));
            }
        }
        spans[place] = start..woven.text.len();
    }
    woven.text.push_str(&source[from..]);
    for (place, edit) in edits.iter().enumerate() {
        if let Some(end) = edit.wraps {
            let numbers = edit.parts.iter().filter_map(|(_, number)| *number).collect();
            woven.wrapped.push((spans[place].start..spans[end].end, numbers));
        }
    }
    woven
}

#[cfg(test)]
mod tests {
    use super::super::listing::Extent;
    use super::*;

    /// A change of what first begins with `at` in the source, which is one line.
    fn change(source: &str, at: &str, replacement: &str, genre: Genre) -> Change {
        let column = source.find(at).unwrap() + 1;
        let span = Extent {
            start: Place { line: 1, column },
            end: Place { line: 1, column: column + at.len() },
        };
        let replacement = replacement.to_owned();
        Change { file: String::new(), name: String::new(), span, replacement, genre }
    }

    fn woven(source: &str, changes: &[(&str, &str, Genre)]) -> Woven {
        let changes: Vec<Change> =
            changes.iter().map(|(at, with, genre)| change(source, at, with, *genre)).collect();
        weave(source, &changes.iter().enumerate().collect::<Vec<_>>()).unwrap()
    }

    /// The text with short names for the switches.
    fn text(source: &str, changes: &[(&str, &str, Genre)]) -> String {
        woven(source, changes).text.replace("crate::mutant_switch::", "")
    }

    #[test]
    fn an_operator_is_chosen_and_its_operands_stay_together() {
        let source = "fn f() { a + b * c }";
        let changes = [("+", "-", Genre::BinaryOperator), ("*", "+", Genre::BinaryOperator)];
        assert_eq!(
            text(source, &changes),
            "fn f() { (if on(0) { (a) - (b * c) } else { (a + \
             (if on(1) { (b) + (c) } else { (b * c) })) }) }"
        );
        let twice = [("+", "-", Genre::BinaryOperator), ("+", "*", Genre::BinaryOperator)];
        assert_eq!(
            text("fn f() { a + b }", &twice),
            "fn f() { (if on(0) { (a) - (b) } else if on(1) { (a) * (b) } else { (a + b) }) }"
        );
        let negated = [("!", "", Genre::UnaryOperator)];
        assert_eq!(text("fn f() { !a }", &negated), "fn f() { (if on(0) { a } else { (!a) }) }");
    }

    #[test]
    fn each_change_is_found_again_where_it_stands() {
        let source = "fn f() { a + b * c }";
        let changes = [("+", "-", Genre::BinaryOperator), ("*", "/", Genre::BinaryOperator)];
        let woven = woven(source, &changes);
        let branches: Vec<_> =
            woven.branches.iter().map(|(at, number)| (&woven.text[at.clone()], *number)).collect();
        assert_eq!(branches, [("(a) - (b * c)", 0), ("(b) / (c)", 1)]);
        let wrapped: Vec<_> = woven.wrapped.iter().map(|(_, numbers)| numbers.clone()).collect();
        assert_eq!(wrapped, [vec![0], vec![1]]);
        assert!(woven.text[woven.wrapped[1].0.clone()].ends_with("(b * c) })"));
    }

    #[test]
    fn a_function_returns_at_once() {
        let source = "fn f() -> bool { g() }";
        let changes = [("g()", "true", Genre::FnValue), ("g()", "false", Genre::FnValue)];
        assert_eq!(
            text(source, &changes),
            "fn f() -> bool { if on(0) { return true; } if on(1) { return false; } g() }"
        );
    }

    #[test]
    fn an_arm_goes_and_a_guard_is_replaced() {
        let source = "fn f() { match a { 1 => b, 2 if c => d, _ => e } }";
        let changes = [
            ("1 =>", "", Genre::MatchArm),
            ("2 if", "", Genre::MatchArm),
            ("c =>", "true", Genre::MatchArmGuard),
        ];
        assert_eq!(
            text(source, &changes),
            "fn f() { match a { 1 if !on(0) => b, \
             2 if !on(1) && ((if on(2) { true } else { (c) })) => d, _ => e } }"
        );
    }

    #[test]
    fn what_the_compiler_computes_and_what_binds_names_is_left_alone() {
        for source in [
            "const fn f() -> u8 { 1 + 2 }",
            "const F: u8 = 1 + 2;",
            "static F: u8 = 1 + 2;",
            "fn f() { [0; 1 + 2] }",
            "fn f() { if let Some(a) = b && a + 2 {} }",
        ] {
            let (at, with) = if source.contains("&&") { ("&&", "||") } else { ("+", "-") };
            assert_eq!(text(source, &[(at, with, Genre::BinaryOperator)]), source);
        }
        let inner = "fn f() { if let Some(a) = b && a > 2 {} }";
        let changed = text(inner, &[(">", "<", Genre::BinaryOperator)]);
        assert!(changed.contains("&& (if on(0) { (a) < (2) } else { (a > 2) }) {}"), "{changed}");
    }
}
