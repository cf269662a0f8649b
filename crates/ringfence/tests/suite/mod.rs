mod handle;
mod registry;
