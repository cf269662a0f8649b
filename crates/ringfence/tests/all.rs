//! The one integration binary of the facade.

mod suite;
