//! The examples of `docs/api.md`, run as they stand there.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::remote::serve;
use crate::support::{Place, has};

/// An example: what is typed, and the answer, if one is shown.
struct Example {
    typed: String,
    answer: Option<Value>,
}

fn examples(page: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    // Between fences every second part is a block, which begins with its language.
    for block in page.split("```").skip(1).step_by(2) {
        if let Some(typed) = block.strip_prefix("sh\n") {
            examples.push(Example { typed: typed.into(), answer: None });
        } else if let Some(text) = block.strip_prefix("json\n") {
            examples.last_mut().unwrap().answer = Some(serde_json::from_str(text).unwrap());
        }
    }
    examples
}

/// Whether an answer has all that an example shows, each of the same type.
fn is_like(example: &Value, answer: &Value) -> bool {
    match (example, answer) {
        (Value::Object(shown), Value::Object(there)) => shown.iter().all(|(name, value)| {
            let same = ["kind", "name", "role", "health"].contains(&name.as_str());
            let given = there.get(name);
            // Disks are others here, with other names.
            let same = same && !value.as_str().is_some_and(|text| text.starts_with('/'));
            given.is_some_and(|given| is_like(value, given) && (!same || value == given))
        }),
        (Value::Array(shown), Value::Array(there)) => {
            shown.iter().all(|shown| there.iter().any(|there| is_like(shown, there)))
        }
        (Value::Null, _) => true,
        (shown, there) => std::mem::discriminant(shown) == std::mem::discriminant(there),
    }
}

#[test]
fn the_examples_of_the_page_about_the_api_run() {
    if !has("curl") {
        return;
    }
    let place = Place::new();
    let (_daemon, port) = serve(&place);
    place.must(&["pool", "create", "tank", &place.image("a")]);
    fs::copy(place.path("state/api/certificate.pem"), place.path("certificate.pem")).unwrap();
    let token = place.must(&["token", "create", "ci", "--role", "operator"]);
    fs::write(place.path("token"), token).unwrap();

    let examples = examples(include_str!("../../../../docs/api.md"));
    assert!(examples.len() >= 12, "{}", examples.len());
    let (head, _) = examples[0].typed.rsplit_once("call ").unwrap();
    let before = head.replace("10.0.0.5:9443", &format!("127.0.0.1:{port}"));
    for Example { typed, answer } in &examples {
        // The first one also says what `call` is.
        let call = typed.strip_prefix(head).unwrap_or(typed);
        let said = Command::new("bash")
            .args(["-c", &format!("set -eu\n{before}\n{call}")])
            .current_dir(place.path(""))
            .output()
            .unwrap();
        let text = String::from_utf8(said.stdout).unwrap();
        assert!(said.status.success(), "{call}: {text}{}", String::from_utf8_lossy(&said.stderr));
        match answer {
            Some(example) => {
                let given: Value = serde_json::from_str(&text).unwrap();
                assert!(is_like(example, &given), "{call}\nshows {example}\nand gives {given}");
            }
            None => assert!(text.contains("aquifer_"), "{call}: {text}"),
        }
    }
}
