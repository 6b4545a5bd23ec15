//! Logged-in visitors, and the forms that carry out their actions.

use maud::{Markup, html};

use crate::operator::{Operator, Role};

#[derive(Debug, Clone)]
pub(super) struct Visitor {
    pub(super) operator: Operator,
    pub(super) form_token: String,
}

impl Visitor {
    pub(super) fn is_operator(&self) -> bool {
        self.operator.role == Role::Operator
    }

    /// Returns the hidden field with the session's form token, which prevents cross-site request
    /// forgery.
    pub(super) fn form_field(&self) -> Markup {
        html! { input type="hidden" name="form" value=(self.form_token); }
    }

    /// Returns a form with one button. The browser asks the question `sure` before it submits
    /// `field`.
    pub(super) fn act_form(
        &self,
        action: &str,
        sure: &str,
        field: (&str, &str),
        [button, note]: [&str; 2],
    ) -> Markup {
        html! {
            form.act method="post" action=(action) data-sure=(sure) {
                (self.form_field())
                input type="hidden" name=(field.0) value=(field.1);
                button type="submit" { (button) }
                " " span.small { (note) }
            }
        }
    }
}
