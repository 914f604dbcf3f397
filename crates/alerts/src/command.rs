//! A program that is run for each message.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::message::Message;
use crate::outlet::{SEND_PATIENCE, Sender};
use crate::settings::Program;

impl Sender for Program {
    fn send(&self, message: &Message) -> Result<(), String> {
        let (program, words) = self.run.split_first().ok_or("no program is named")?;
        let mut command = Command::new(program);
        command
            .args(words)
            .env("AQUIFER_HOST", &message.host)
            .env("AQUIFER_SEVERITY", message.severity().word())
            .env("AQUIFER_SUBJECT", message.subject())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        let mut child = command.spawn().map_err(|error| format!("{program}: {error}"))?;
        let text = message.text();
        // In a thread of its own: a program that does not read must not hold this one up.
        let stdin = child.stdin.take();
        let feeds = std::thread::Builder::new().name("alerts-feed".into()).spawn(move || {
            // A program that does not want the text closes the pipe.
            let _ = stdin.map(|mut stdin| stdin.write_all(text.as_bytes()));
        });
        let ended = wait(&mut child, SEND_PATIENCE);
        drop(feeds);
        match ended {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!("{program}: ended with an error")),
            Err(why) => {
                end(&mut child);
                Err(format!("{program}: {why}"))
            }
        }
    }
}

/// Whether it succeeded.
fn wait(child: &mut Child, patience: Duration) -> Result<bool, String> {
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.success()),
            Ok(None) if begun.elapsed() > patience => {
                return Err(format!("did not end for {} s, and was killed", patience.as_secs()));
            }
            Ok(None) => std::thread::sleep(POLL),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Ends it, and whatever it has started.
fn end(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}

const POLL: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    fn program(script: &str, words: &[&str]) -> Program {
        let run = ["/bin/sh", "-c", script, "sh"].into_iter().chain(words.iter().copied());
        Program {
            name: String::new(),
            severity: aquifer_api::Severity::Info,
            run: run.map(str::to_string).collect(),
        }
    }

    #[test]
    fn a_program_gets_the_text_and_what_it_is_about() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("got").display().to_string();
        let told = program("{ echo \"$AQUIFER_SEVERITY $AQUIFER_SUBJECT\"; cat; } > $1", &[&file]);
        told.send(&Message::test("store", 1)).unwrap();
        let got = std::fs::read_to_string(&file).unwrap();
        assert!(got.starts_with("info [aquifer store] test\nTEST info: This is a test"), "{got}");
        let failed = program("exit 3", &[]).send(&Message::test("store", 1)).unwrap_err();
        assert!(failed.contains("ended with an error"), "{failed}");
        let none = Program { run: vec!["/nowhere/at all".into()], ..program("", &[]) };
        assert!(none.send(&Message::test("store", 1)).unwrap_err().contains("No such file"));
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_what_it_started() {
        let mut child = Command::new("/bin/sh");
        let mut child = child.args(["-c", "sleep 1000 & wait"]).process_group(0).spawn().unwrap();
        let late = wait(&mut child, Duration::from_millis(100)).unwrap_err();
        assert!(late.contains("was killed"), "{late}");
        end(&mut child);
        assert!(!child.wait().unwrap().success());
    }
}
