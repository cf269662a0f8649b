//! Doubles and helpers for testing Ringfence backends.
