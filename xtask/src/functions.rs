//! Checks the length of functions: a function fits a screen.

use proc_macro2::Span;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Block, ImplItemFn, ItemFn, Signature, TraitItemFn};

/// Lines of a function, at most, from `fn` to its closing brace.
pub const MAX_LINES: usize = 60;

/// Reports the functions of a source file that are longer than `limit` lines.
pub fn problems(file: &str, source: &syn::File, limit: usize) -> Vec<String> {
    let mut lengths = Lengths::default();
    lengths.visit_file(source);
    let long = lengths.0.into_iter().filter(|(.., lines)| *lines > limit);
    long.map(|(name, line, lines)| {
        format!("{file}:{line}: `{name}` has {lines} lines; split it at {limit}")
    })
    .collect()
}

/// Name, first line and number of lines of each function.
#[derive(Default)]
struct Lengths(Vec<(String, usize, usize)>);

impl Lengths {
    fn add(&mut self, signature: &Signature, block: &Block) {
        let start = |span: Span| span.start().line;
        let first = start(signature.span());
        let lines = block.span().end().line + 1 - first;
        self.0.push((signature.ident.to_string(), first, lines));
    }
}

impl<'a> Visit<'a> for Lengths {
    fn visit_item_fn(&mut self, function: &'a ItemFn) {
        self.add(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'a ImplItemFn) {
        self.add(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'a TraitItemFn) {
        if let Some(block) = &function.default {
            self.add(&function.sig, block);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_function_is_counted() {
        let text = "//! File.\nfn a() {\n}\nimpl A {\n    pub const fn b(\n    ) {\n        \
                    fn c() {\n        }\n    }\n}\ntrait B {\n    fn d();\n    fn e() {}\n}\n";
        let source = syn::parse_file(text).expect("code");
        assert_eq!(problems("a.rs", &source, 1).len(), 3);
        assert_eq!(problems("a.rs", &source, 4), ["a.rs:5: `b` has 5 lines; split it at 4"]);
        assert_eq!(problems("a.rs", &source, 5), [""; 0]);
    }
}
