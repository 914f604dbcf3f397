//! A headless Chromium, driven by the DevTools protocol over two pipes (`--remote-debugging-pipe`):
//! messages are JSON with a NUL behind each.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A browser with one page. It ends when it is dropped.
pub struct Browser {
    process: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    last: u64,
    session: Option<String>,
    /// Complaints of the page.
    pub complaints: Vec<String>,
    _profile: TempDir,
}

impl Browser {
    /// `None`, and a message, if there is none.
    pub fn start() -> Option<Browser> {
        if getrlimit(Resource::As).current.is_some() {
            eprintln!("SKIPPED: a browser reserves more addresses than `ulimit -v` allows here");
            return None;
        }
        let there = Command::new("chromium").arg("--version").output();
        if !there.is_ok_and(|said| said.status.success()) {
            eprintln!("SKIPPED: no chromium here; scripts/setup-deps.sh browser installs it");
            return None;
        }
        let profile = tempfile::tempdir().unwrap();
        // The shell gives it the pipes as 3 and 4, where it wants them.
        let mut process = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "chromium"])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--no-first-run", "--disable-background-networking", "--disable-extensions"])
            // The certificate is the daemon's own.
            .args(["--ignore-certificate-errors", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (send, from) = channel();
        let mut pipe = BufReader::new(process.stdout.take().unwrap());
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while pipe.read_until(0, &mut message).is_ok_and(|bytes| bytes > 0) {
                message.pop();
                let read = serde_json::from_slice(&message).unwrap();
                message.clear();
                if send.send(read).is_err() {
                    break;
                }
            }
        });
        let to = process.stdin.take().unwrap();
        let (session, complaints) = (None, Vec::new());
        let mut browser =
            Browser { process, to, from, last: 0, session, complaints, _profile: profile };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = Some(attached["sessionId"].as_str().unwrap().into());
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    pub fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
    }

    /// The value of an expression in the page; of a promise, what comes of it.
    #[track_caller]
    pub fn eval(&mut self, expression: &str) -> Value {
        let asked = json!({
            "expression": expression, "awaitPromise": true, "returnByValue": true,
        });
        let answer = self.call("Runtime.evaluate", asked);
        let failed = answer.get("exceptionDetails");
        assert!(failed.is_none(), "{expression}: {failed:?}");
        answer["result"]["value"].clone()
    }

    #[track_caller]
    pub fn text(&mut self, expression: &str) -> String {
        let value = self.eval(expression);
        value.as_str().unwrap_or_else(|| panic!("{expression}: {value}")).to_string()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub fn wait_for(&mut self, expression: &str) {
        let limit = Instant::now() + PATIENCE;
        while self.eval(expression) != json!(true) {
            let page = "document.body.innerText.slice(0, 2000)";
            assert!(Instant::now() < limit, "waited for {expression}:\n{}", self.text(page));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Clicks what a selector finds first, once it is there.
    #[track_caller]
    pub fn click(&mut self, selector: &str) {
        let found = format!("document.querySelector({})", json!(selector));
        self.wait_for(&format!("{found} !== null"));
        self.eval(&format!("{found}.click()"));
    }

    /// Types where the focus is.
    pub fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    pub fn press(&mut self, key: &str) {
        let text = if key == "Enter" { "\r" } else { "" };
        let code = if key == "Enter" { 13 } else { 9 };
        for kind in ["keyDown", "keyUp"] {
            let event = json!({
                "type": kind, "key": key, "code": key, "text": text,
                "windowsVirtualKeyCode": code,
            });
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    pub fn set_width(&mut self, width: u32) {
        let metrics =
            json!({"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// For people: what it looks like goes to `$AQUIFER_SHOTS/NAME.png`, if that is set.
    pub fn shoot(&mut self, name: &str) {
        let Some(directory) = std::env::var_os("AQUIFER_SHOTS") else { return };
        let shot = self.call("Page.captureScreenshot", json!({"captureBeyondViewport": true}));
        let path = std::path::Path::new(&directory).join(format!("{name}.png"));
        let mut decoder = Command::new("base64")
            .arg("-d")
            .stdin(Stdio::piped())
            .stdout(std::fs::File::create(path).unwrap())
            .spawn()
            .unwrap();
        let mut into = decoder.stdin.take().unwrap();
        into.write_all(shot["data"].as_str().unwrap().as_bytes()).unwrap();
        drop(into);
        assert!(decoder.wait().unwrap().success());
    }

    #[track_caller]
    fn call(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let message = match self.from.recv_timeout(PATIENCE) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => panic!("{method}: no answer"),
                Err(RecvTimeoutError::Disconnected) => panic!("{method}: the browser has ended"),
            };
            if message["id"] == self.last {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
            self.complaints.extend(complaint(&message));
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the complaint of an event: exceptions, errors of the console, what the policy forbade.
/// That a server refused or did not answer is no fault of the page.
fn complaint(event: &Value) -> Option<String> {
    let params = &event["params"];
    let text = || Some(params.to_string());
    match event["method"].as_str()? {
        "Runtime.exceptionThrown" => text(),
        "Runtime.consoleAPICalled" if params["type"] == "error" => text(),
        "Log.entryAdded" => {
            let entry = &params["entry"];
            let is_ours = entry["level"] == "error" && entry["source"] != "network";
            is_ours.then(text)?
        }
        _ => None,
    }
}

const PATIENCE: Duration = Duration::from_secs(60);
