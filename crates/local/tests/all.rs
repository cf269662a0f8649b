//! The local backend on the machine the tests run on.

mod suite;
