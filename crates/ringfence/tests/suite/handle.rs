use std::sync::Arc;

use ringfence::memory::RecordingBackend;
use ringfence::{
    Backend, BackendSettings, CommandHandle, CommandId, ErrorKind, Fence, Handle, Registry, SandboxId,
};

fn id(text: &str) -> SandboxId {
    SandboxId::new(text).unwrap()
}

fn refusal<T: std::str::FromStr<Err = ringfence::Error> + std::fmt::Debug>(text: &str) -> String {
    let error = text.parse::<T>().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::InvalidArgument, "{text:?}");
    error.to_string()
}

#[test]
fn a_handle_is_read_as_it_is_written() {
    let handle = Handle::new("local", &id("sb-0123456789ab")).unwrap();
    assert_eq!(handle.to_string(), "local:sb-0123456789ab");
    assert_eq!(handle.to_string().parse::<Handle>().unwrap(), handle);
    assert_eq!((handle.scheme(), handle.sandbox().as_str()), ("local", "sb-0123456789ab"));
    // The first colon counts, and an id is whatever the backend says.
    let odd: Handle = "docker-sbx:a:b.C_é".parse().unwrap();
    assert_eq!((odd.scheme(), odd.sandbox().as_str()), ("docker-sbx", "a:b.C_é"));
}

#[test]
fn s_54_a_claim_cannot_be_passed_on_as_text() {
    let fenced = id("sb-1").fenced(Fence::new(7).unwrap());
    assert_eq!(Handle::new("local", &fenced).unwrap().sandbox().fence(), None);
}

#[test]
fn sp_14_what_is_no_handle_is_refused_with_what_was_probably_meant() {
    let form = "a handle such as local:sb-0123456789ab";
    for (text, said) in [
        ("", format!("it is empty; {form}")),
        ("None", format!("\"None\" is not a sandbox; {form}")),
        ("local:", format!("\"local:\" is not a sandbox; {form}")),
        ("local:None", format!("\"local:None\" is not a sandbox; {form}")),
        ("sb-1", "\"sb-1\" does not say which backend has it; local:sb-1".to_owned()),
        (":sb-1", "\"\" is not the name of a backend".to_owned()),
        ("Local:sb-1", "\"Local\" is not the name of a backend".to_owned()),
        (" local:sb-1", "\" local\" is not the name of a backend".to_owned()),
        ("local:sb-1\n", "an id has no '\\n', this one does: \"sb-1\\n\"".to_owned()),
        ("local:a b", "an id has no ' ', this one does: \"a b\"".to_owned()),
        ("local:a\u{1b}", "an id has no '\\u{1b}', this one does: \"a\\u{1b}\"".to_owned()),
        ("local:../x", "an id has no '/', this one does: \"../x\"".to_owned()),
        ("local:sb-1/c1", "\"local:sb-1/c1\" names a command in a sandbox; local:sb-1".to_owned()),
    ] {
        assert_eq!(refusal::<Handle>(text), format!("name a sandbox: {said}"), "{text:?}");
    }
}

#[test]
fn a_command_is_named_behind_its_sandbox() {
    let handle: CommandHandle = "local:sb-1/c12".parse().unwrap();
    assert_eq!(handle, CommandHandle { sandbox: "local:sb-1".parse().unwrap(), command: CommandId(12) });
    assert_eq!(handle.to_string(), "local:sb-1/c12");
    let sandbox = refusal::<CommandHandle>("local:sb-1");
    assert_eq!(
        sandbox,
        "name a background command: local:sb-1 is a sandbox, not a command in it; local:sb-1/c1"
    );
    for (text, said) in [
        ("sb-1/c1", "does not say which backend has it"),
        ("local:sb-1/", "\"\" is not a command such as c1"),
        ("local:sb-1/1", "\"1\" is not a command such as c1"),
        ("local:sb-1/c01", "\"c01\" is not a command such as c1"),
        ("local:sb-1/c+1", "\"c+1\" is not a command such as c1"),
        ("local:sb-1/c1/c2", "\"c1/c2\" is not a command such as c1"),
        ("", "it is empty"),
    ] {
        let told = refusal::<CommandHandle>(text);
        assert!(told.contains(said), "{text:?}: {told}");
    }
}

#[test]
fn the_registry_opens_the_backend_of_a_handle() {
    let registry = Registry::new(BackendSettings::default())
        .with_backend("rec", Arc::new(|| Ok(Arc::new(RecordingBackend::default()) as Arc<dyn Backend>)));
    assert_eq!(registry.open_for(&"rec:x".parse().unwrap()).unwrap().name(), "rec");
    let unknown = registry.open_for(&"modla:x".parse().unwrap()).unwrap_err();
    let told = "open the backend: there is no backend \"modla\", sandbox modla:x; known: local, rec";
    assert_eq!((unknown.kind(), unknown.to_string().as_str()), (&ErrorKind::InvalidArgument, told));
}
