//! The queue of the tutorial: its laws, and the statements of the page about it.

#[allow(dead_code, reason = "an example's main is not called here")]
#[path = "../examples/own_queue.rs"]
mod own_queue;

const EXAMPLE: &str = include_str!("../examples/own_queue.rs");
const PAGE: &str = include_str!("../../../docs/tutorials/own-queue.md");

#[test]
fn the_page_shows_the_example_and_what_it_prints() {
    let blocks: Vec<&str> = PAGE.split("```rust\n").skip(1).collect();
    assert!(blocks.len() >= 2, "the rule and its laws");
    for block in blocks {
        let code = block.split("```").next().unwrap_or_default();
        // Excerpts of the file; `...` stands for omitted text.
        for part in code.split("...\n").map(str::trim_end) {
            assert!(EXAMPLE.contains(part), "not in the example:\n{part}");
        }
    }
    let printed = own_queue::compared();
    assert!(PAGE.contains(&format!("\n{printed}\n")), "the page does not show: {printed}");
}
