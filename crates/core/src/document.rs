//! Documents: JSON or TOML that people and programs write for us.
//!
//! A derived reader takes the fields of a struct also from a list, by position, and would read `[{}, false]` as a spec with
//! an open network. No document of ours is read that way: a struct that is a document is read by what
//! [`object_only!`](crate::object_only) makes, a field of a foreign type by [`object`].

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Reads an object and nothing else. For `#[serde(deserialize_with = "…")]` on a field, and for whole documents.
///
/// # Errors
/// The deserializer's own, for anything that is not an object.
pub fn object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    struct Object<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map))
        }
    }
    deserializer.deserialize_map(Object(PhantomData))
}

/// Makes a struct readable from an object and from nothing else. For the settings of backends as well.
///
/// The struct derives both traits of serde and has `#[serde(remote = "Self")]`. That turns what is derived into functions of
/// the type itself, and this macro implements the traits with them.
///
/// ```
/// use ringfence_core::object_only;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, Default, Serialize, Deserialize)]
/// #[serde(remote = "Self", deny_unknown_fields, default)]
/// struct Settings {
///     open: bool,
/// }
///
/// object_only!(Settings);
///
/// assert!(serde_json::from_str::<Settings>(r#"{"open": true}"#).is_ok());
/// assert!(serde_json::from_str::<Settings>("[true]").is_err());
/// ```
#[macro_export]
macro_rules! object_only {
    ($type:ident) => {
        impl<'de> ::serde::Deserialize<'de> for $type {
            fn deserialize<D: ::serde::Deserializer<'de>>(
                deserializer: D,
            ) -> ::std::result::Result<Self, D::Error> {
                struct Fields($type);
                impl<'de> ::serde::Deserialize<'de> for Fields {
                    fn deserialize<D: ::serde::Deserializer<'de>>(
                        deserializer: D,
                    ) -> ::std::result::Result<Self, D::Error> {
                        <$type>::deserialize(deserializer).map(Self)
                    }
                }
                $crate::document::object::<Fields, D>(deserializer).map(|fields| fields.0)
            }
        }

        impl ::serde::Serialize for $type {
            fn serialize<S: ::serde::Serializer>(
                &self,
                serializer: S,
            ) -> ::std::result::Result<S::Ok, S::Error> {
                <$type>::serialize(self, serializer)
            }
        }
    };
}
