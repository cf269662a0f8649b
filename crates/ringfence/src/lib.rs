//! A place for AI agents to run the code they write: one contract, many backends.
