//! Object stores: one in memory, and a real server that `cargo xtask check remote` starts.

use std::convert::Infallible;

use object_store::memory::InMemory;

use super::*;
use crate::baseline::testing::{proposal, session};
use crate::baseline::{Blessed, Judgement, Key, Sessions, Store};

/// URL of a bucket that may be written to.
const SERVER: &str = "ANEMETER_TEST_BUCKET";

fn in_memory(objects: &Arc<InMemory>) -> Box<dyn Storage> {
    let objects: Arc<dyn ObjectStore> = objects.clone();
    Box::new(Remote::over(objects, "memory://bucket/base".to_owned(), "base").unwrap())
}

fn at_server(folder: &str) -> Box<dyn Storage> {
    let url = std::env::var(SERVER).expect("the URL of a bucket");
    let (scheme, bucket) = url.split_once("://").unwrap();
    open(scheme, &format!("{bucket}/{folder}")).unwrap()
}

fn conditions_hold(storage: &dyn Storage) {
    assert!(storage.read("a/b.json").unwrap().is_none());
    assert_eq!(storage.names().unwrap(), Vec::<String>::new());
    assert!(storage.create("a/b.json", b"one").unwrap());
    assert!(!storage.create("a/b.json", b"two").unwrap(), "there is one already");
    let one = storage.read("a/b.json").unwrap().unwrap();
    assert_eq!(one.bytes, b"one");
    assert!(storage.replace("a/b.json", b"two", &one.version).unwrap());
    assert!(!storage.replace("a/b.json", b"three", &one.version).unwrap(), "it is not the one that was read");
    assert!(!storage.replace("a/none.json", b"three", &one.version).unwrap(), "there is none");
    assert_eq!(storage.read("a/b.json").unwrap().unwrap().bytes, b"two");
    storage.create("a/b~c d.history/1.json", b"").unwrap();
    storage.create("a/readme", b"").unwrap();
    assert_eq!(storage.names().unwrap(), ["a/b.json", "a/b~c d.history/1.json"]);
}

/// Blesses from several threads at once and checks that each report is there.
fn nobody_is_lost(open: impl Fn() -> Box<dyn Storage> + Sync) {
    const AT_ONCE: usize = 8;
    std::thread::scope(|scope| {
        for number in 1..=AT_ONCE {
            let open = &open;
            scope.spawn(move || {
                let judge = |_: Option<&Blessed>| Ok::<_, Infallible>(Judgement::default());
                let store = Store::over(open());
                store.bless(&proposal(vec![session(number)], Sessions::New), judge).unwrap();
            });
        }
    });
    let store = Store::over(open());
    let key = Key::of(&session(1));
    let history = store.history(&key).unwrap();
    let mut created: Vec<String> = history
        .iter()
        .flat_map(|blessed| &blessed.sessions)
        .map(|session| session.header.created.clone())
        .collect();
    created.sort();
    let expected: Vec<String> = (1..=AT_ONCE).map(|number| session(number).header.created).collect();
    assert_eq!(created, expected);
    let audit = store.verify().unwrap();
    assert_eq!((audit.baselines, audit.ancestors, audit.findings.len()), (1, AT_ONCE - 1, 0));
}

#[test]
fn an_object_store_in_memory_keeps_the_conditions() {
    conditions_hold(in_memory(&Arc::default()).as_ref());
    let objects: Arc<InMemory> = Arc::default();
    nobody_is_lost(|| in_memory(&objects));
}

#[test]
fn a_url_without_a_bucket_is_refused() {
    assert!(open("s3", "/").err().unwrap().contains("names no bucket"));
    assert!(open("s3", "bucket/a//b").is_err());
}

#[test]
#[ignore = "needs a server: cargo xtask check remote"]
fn a_server_keeps_the_conditions() {
    conditions_hold(at_server("conditions").as_ref());
    nobody_is_lost(|| at_server("many"));
}

#[test]
#[ignore = "needs a server: cargo xtask check remote"]
fn what_is_missing_at_a_server_is_missing() {
    let store = Store::over(at_server("nothing"));
    assert!(store.latest(&Key::of(&session(1))).unwrap_err().is_missing());
    assert_eq!(store.verify().unwrap().baselines, 0);
}
