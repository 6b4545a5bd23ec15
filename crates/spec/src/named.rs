//! Enums whose values have names.

/// Declares an enum with the name of each value, once: `ALL`, `name`, `from_name` and `Display`.
#[macro_export]
macro_rules! named {
    ($(#[$about:meta])* pub enum $Type:ident {
        $($(#[$doc:meta])* $Value:ident = $name:literal,)*
    }) => {
        $(#[$about])*
        pub enum $Type {
            $($(#[$doc])* $Value,)*
        }

        impl $Type {
            /// Every value, in the order of declaration: `ALL[value as usize]` is `value`.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$Value),*];

            /// Returns the name in files and tables.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$Value => $name,)*
                }
            }

            /// Returns the value with this name; `None` if the name is unknown.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.name() == name)
            }
        }

        impl ::core::fmt::Display for $Type {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}
