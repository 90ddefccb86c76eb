//! Defines enums whose variants have names, so that each name stands beside its variant.

/// Defines an enum with `ALL` its variants, in order, and a method that returns the name of one.
#[doc(hidden)]
#[macro_export]
macro_rules! named {
    (
        $(#[$attr:meta])* $vis:vis enum $type:ident { $($variant:ident = $name:literal,)* }
        $(#[$doc:meta])* fn $method:ident
    ) => {
        $(#[$attr])*
        $vis enum $type { $($variant),* }

        impl $type {
            /// All of them.
            $vis const ALL: [$type; [$($name),*].len()] = [$($type::$variant),*];

            $(#[$doc])*
            $vis const fn $method(self) -> &'static str {
                match self {
                    $($type::$variant => $name),*
                }
            }
        }
    };
}
