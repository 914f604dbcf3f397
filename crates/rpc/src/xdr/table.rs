//! The one macro: XDR definitions as tables.

/// Defines enums and structs in the words of an RFC, with [`Encode`](crate::xdr::Encode) and
/// [`Decode`](crate::xdr::Decode) field by field. An enum lists every value of the type, decodes
/// nothing else, and gets `ALL`, `wire` and `from_wire`; a struct may borrow from its input
/// through one lifetime.
///
/// ```
/// aquifer_rpc::xdr_table! {
///     /// How sure.
///     enum StableHow {
///         /// Not at all.
///         Unstable = 0,
///         /// Very.
///         FileSync = 2,
///     }
///
///     /// A name in a directory.
///     struct DirOp<'a> {
///         /// Where.
///         dir: u64,
///         /// What.
///         name: &'a [u8],
///     }
/// }
/// # fn main() {
/// use aquifer_rpc::xdr::{Decode, Decoder};
/// assert_eq!(StableHow::from_wire(2), Some(StableHow::FileSync));
/// let bytes = [0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1, b'a', 0, 0, 0];
/// let op = DirOp::decode(&mut Decoder::new(&bytes));
/// assert_eq!(op, Ok(DirOp { dir: 7, name: b"a" }));
/// # }
/// ```
#[macro_export]
macro_rules! xdr_table {
    () => {};

    (
        $(#[$meta:meta])*
        enum $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $value:literal,)+ }
        $($rest:tt)*
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$variant_meta])* $variant,)+ }

        impl $name {
            /// Every value of the type, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The number that stands for this value on the wire.
            pub const fn wire(self) -> u32 {
                match self { $(Self::$variant => $value,)+ }
            }

            /// The value that `wire` stands for.
            pub const fn from_wire(wire: u32) -> Option<Self> {
                match wire { $($value => Some(Self::$variant),)+ _ => None }
            }
        }

        impl $crate::xdr::Encode for $name {
            fn encode(&self, to: &mut $crate::xdr::EncodeBuf) {
                to.u32(self.wire());
            }
        }

        impl<'de> $crate::xdr::Decode<'de> for $name {
            fn decode(
                from: &mut $crate::xdr::Decoder<'de>,
            ) -> Result<Self, $crate::xdr::XdrError> {
                let offset = from.position();
                let value = from.u32()?;
                Self::from_wire(value).ok_or($crate::xdr::XdrError::BadValue {
                    offset,
                    what: stringify!($name),
                    value,
                })
            }
        }

        $crate::xdr_table! { $($rest)* }
    };

    (
        $(#[$meta:meta])*
        struct $name:ident $(<$life:lifetime>)? {
            $($(#[$field_meta:meta])* $field:ident: $type:ty,)+
        }
        $($rest:tt)*
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name $(<$life>)? { $($(#[$field_meta])* pub $field: $type,)+ }

        impl $(<$life>)? $crate::xdr::Encode for $name $(<$life>)? {
            fn encode(&self, to: &mut $crate::xdr::EncodeBuf) {
                $($crate::xdr::Encode::encode(&self.$field, to);)+
            }
        }

        $crate::xdr_table! { @decode $name $(<$life>)? { $($field)+ } }
        $crate::xdr_table! { $($rest)* }
    };

    (@decode $name:ident <$life:lifetime> { $($field:ident)+ }) => {
        impl<$life> $crate::xdr::Decode<$life> for $name<$life> {
            fn decode(
                from: &mut $crate::xdr::Decoder<$life>,
            ) -> Result<Self, $crate::xdr::XdrError> {
                Ok($name { $($field: $crate::xdr::Decode::decode(from)?,)+ })
            }
        }
    };

    (@decode $name:ident { $($field:ident)+ }) => {
        impl<'de> $crate::xdr::Decode<'de> for $name {
            fn decode(
                from: &mut $crate::xdr::Decoder<'de>,
            ) -> Result<Self, $crate::xdr::XdrError> {
                Ok($name { $($field: $crate::xdr::Decode::decode(from)?,)+ })
            }
        }
    };
}
