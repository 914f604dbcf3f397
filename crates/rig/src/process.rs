//! Programs that the harness runs.
//!
//! Invariant: no child outlives this process. Each is started through `setpriv --pdeathsig KILL`,
//! so the kernel kills it with its parent even if the parent itself is killed. For the kernel the
//! parent is a *thread*, so one thread, which never ends, starts all children. A program that
//! changes its user loses that signal (prctl(2)), as rpcbind does; a namespace kills those in it.
//! Dropping a [`Process`] kills and reaps it. Signals are sent under the lock under which a process
//! is reaped, so a pid that was reused never gets one.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::netns::NetNs;
use crate::{Error, Result};

/// A program with its arguments, to run once or keep running.
#[derive(Clone, Debug)]
pub struct Invocation {
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, Option<OsString>)>,
    netns: Option<NetNs>,
    guarded: bool,
}

impl Invocation {
    /// `program` is a path, or a name to find in `PATH`.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let program = program.as_ref().to_os_string();
        Self { program, args: Vec::new(), env: Vec::new(), netns: None, guarded: true }
    }

    /// As [`Invocation::new`], for an installed tool: found in `PATH` or the system's directories.
    ///
    /// # Errors
    /// [`Error::MissingTool`], with the group of `scripts/setup-deps.sh` that has it.
    pub fn tool(name: &str, group: &'static str) -> Result<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let system = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"];
        std::env::split_paths(&path)
            .chain(system.into_iter().map(PathBuf::from))
            .map(|dir| dir.join(name))
            .find(|candidate| candidate.is_file())
            .map(Self::new)
            .ok_or_else(|| Error::MissingTool { tool: name.to_owned(), group })
    }

    /// Appends one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_os_string());
        self
    }

    /// Appends arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_os_string()));
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.into(), Some(value.as_ref().to_os_string())));
        self
    }

    /// Removes a variable from the inherited environment.
    #[must_use]
    pub fn env_remove(mut self, name: &str) -> Self {
        self.env.push((name.into(), None));
        self
    }

    /// Runs the program in `netns`, which lives at least as long as the program.
    #[must_use]
    pub fn inside(mut self, netns: &NetNs) -> Self {
        self.netns = Some(netns.clone());
        self
    }

    /// Does not kill the program with this process: it ends by itself when its input does.
    #[must_use]
    pub fn ends_with_its_input(mut self) -> Self {
        self.guarded = false;
        self
    }

    /// Program and arguments as one line, for messages.
    #[must_use]
    pub fn line(&self) -> String {
        let words = std::iter::once(&self.program).chain(&self.args);
        words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    /// Runs the program to its end, without input, and returns its outcome; kills it at `limit`.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be started, [`Error::Timeout`].
    pub fn run(&self, limit: Duration) -> Result<Outcome> {
        let started = Instant::now();
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Process::launch(self, command, None)?;
        let stdout = process.take_stdout().map(drain);
        let stderr = process.take_stderr().map(drain);
        let ended = process.wait(limit);
        if ended.is_err() {
            process.kill9();
        }
        let stdout = stdout.and_then(|reader| reader.join().ok()).unwrap_or_default();
        let stderr = stderr.and_then(|reader| reader.join().ok()).unwrap_or_default();
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        let outcome = |status| Outcome { status, stdout, stderr, took: started.elapsed() };
        match ended {
            Ok(status) => Ok(outcome(status)),
            Err(Error::Timeout { what, limit, .. }) => {
                let said = tail(&outcome(ExitStatus::default()).said());
                Err(Error::Timeout { what, limit, said })
            }
            Err(other) => Err(other),
        }
    }

    /// As [`Invocation::run`], but an exit status other than 0 is an error.
    ///
    /// # Errors
    /// Those of `run`; [`Error::Failed`] with the end of the output.
    pub fn check(&self, limit: Duration) -> Result<Outcome> {
        let outcome = self.run(limit)?;
        if outcome.status.success() {
            return Ok(outcome);
        }
        let what = format!("{} ({})", self.line(), outcome.status);
        Err(Error::Failed { what, said: tail(&outcome.said()) })
    }

    /// As [`Invocation::run`], but what the program says appears where this process says things.
    ///
    /// # Errors
    /// As `run`.
    pub fn run_shown(&self, limit: Duration) -> Result<ExitStatus> {
        let mut command = self.command();
        command.stdin(Stdio::null());
        let process = Process::launch(self, command, None)?;
        let ended = process.wait(limit);
        if ended.is_err() {
            process.kill9();
        }
        ended
    }

    /// Starts the program without input; its output is appended to `log`.
    ///
    /// # Errors
    /// [`Error::Io`] if the log cannot be opened or the program cannot be started.
    pub fn spawn(&self, log: &Path) -> Result<Process> {
        let mut command = self.command();
        command.stdin(Stdio::null());
        self.spawn_with(command, log)
    }

    /// As [`Invocation::spawn`], but with pipes on its input and output; only errors go to `log`.
    ///
    /// # Errors
    /// As `spawn`.
    pub fn spawn_piped(&self, log: &Path) -> Result<Process> {
        let mut command = self.command();
        command.stdin(Stdio::piped());
        let mut command = self.logged(command, log)?;
        command.stdout(Stdio::piped());
        Process::launch(self, command, Some(log))
    }

    fn spawn_with(&self, command: Command, log: &Path) -> Result<Process> {
        let command = self.logged(command, log)?;
        Process::launch(self, command, Some(log))
    }

    fn logged(&self, mut command: Command, log: &Path) -> Result<Command> {
        let opened = File::options().create(true).append(true).open(log);
        let file = opened.map_err(Error::at("open", log))?;
        let second = file.try_clone().map_err(Error::at("open", log))?;
        command.stdout(file).stderr(second);
        Ok(command)
    }

    fn command(&self) -> Command {
        let mut words = self.netns.as_ref().map(NetNs::enter).unwrap_or_default();
        if self.guarded {
            words.extend(["setpriv", "--pdeathsig", "KILL", "--"].map(OsString::from));
        }
        words.push(self.program.clone());
        words.extend(self.args.iter().cloned());
        let mut words = words.into_iter();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        // Ctrl-C is only for this program: it decides how the others end.
        command.process_group(0);
        for (name, value) in &self.env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }
}

/// How a program ended, and its output.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Exit status or signal.
    pub status: ExitStatus,
    /// Standard output, as bytes: it may be a file's content.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: String,
    /// Wall time from start to end.
    pub took: Duration,
}

impl Outcome {
    /// Standard output as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Both outputs, for messages.
    #[must_use]
    pub fn said(&self) -> String {
        format!("{}{}", self.text(), self.stderr)
    }
}

/// A running program; killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Arc<Mutex<Child>>,
    pid: u32,
    name: String,
    log: Option<PathBuf>,
    /// Keeps the namespace alive as long as the program in it.
    _netns: Option<NetNs>,
}

impl Process {
    fn launch(invocation: &Invocation, command: Command, log: Option<&Path>) -> Result<Self> {
        let name = invocation.program.to_string_lossy().into_owned();
        let child = start(command).map_err(Error::io(format!("start {name}")))?;
        let pid = child.id();
        let child = Arc::new(Mutex::new(child));
        let log = log.map(Path::to_path_buf);
        Ok(Self { child, pid, name, log, _netns: invocation.netns.clone() })
    }

    /// Process id of the program itself, which its starters have become by `exec`.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it has not ended yet.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self.child().try_wait(), Ok(None))
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// [`Error::Timeout`] after `limit`; the program then still runs.
    pub fn wait(&self, limit: Duration) -> Result<ExitStatus> {
        let start = Instant::now();
        loop {
            let state = self.child().try_wait();
            if let Some(status) = state.map_err(Error::io(format!("wait for {}", self.name)))? {
                return Ok(status);
            }
            if start.elapsed() >= limit {
                let what = format!("end of {}", self.name);
                return Err(Error::Timeout { what, limit, said: self.said() });
            }
            // Short waits for short programs, longer ones to save the processor.
            let nap = start.elapsed() / 8;
            thread::sleep(nap.clamp(Duration::from_millis(1), Duration::from_millis(25)));
        }
    }

    /// Sends SIGKILL, and waits until it is gone. Harmless if it has ended already.
    pub fn kill9(&self) {
        let mut child = self.child();
        // Both fail only for a process that was already reaped.
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Sends `signal`; does nothing if the process has ended.
    ///
    /// # Errors
    /// [`Error::Io`] if the system refuses.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let mut child = self.child();
        if !matches!(child.try_wait(), Ok(None)) {
            return Ok(());
        }
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Error::Malformed(format!("pid {}", self.pid)))?;
        let sent = kill_process(pid, signal).map_err(Into::into);
        sent.map_err(Error::io(format!("signal {}", self.name)))
    }

    /// Sends SIGTERM, and SIGKILL if it has not ended within `limit`.
    ///
    /// # Errors
    /// [`Error::Timeout`] if it had to be killed.
    pub fn terminate(&self, limit: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        let ended = self.wait(limit);
        if ended.is_err() {
            self.kill9();
        }
        ended
    }

    /// Kills the program once `life` is over, even if the rest of the test hangs.
    pub fn kill_after(&self, life: Duration) {
        let child = Arc::downgrade(&self.child);
        thread::spawn(move || {
            let end = Instant::now() + life;
            while let Some(left) = end.checked_duration_since(Instant::now()) {
                if child.strong_count() == 0 {
                    return;
                }
                thread::sleep(left.min(Duration::from_millis(500)));
            }
            if let Some(child) = child.upgrade() {
                // Fails only for a process that has ended.
                let _ = child.lock().unwrap_or_else(PoisonError::into_inner).kill();
            }
        });
    }

    /// Processor time used so far, user and system, all threads (`/proc/PID/stat`, ticks of 10 ms).
    ///
    /// # Errors
    /// [`Error::Io`] if it has ended, [`Error::Malformed`].
    pub fn cpu_time(&self) -> Result<Duration> {
        let path = PathBuf::from(format!("/proc/{}/stat", self.pid));
        let text = std::fs::read_to_string(&path).map_err(Error::at("read", &path))?;
        // The name, field 2, is in parentheses and may contain any characters; utime and stime are
        // 14, 15.
        let after_name = text.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
        let mut fields = after_name.split_whitespace().skip(11).map(str::parse::<u64>);
        match (fields.next(), fields.next()) {
            (Some(Ok(user)), Some(Ok(system))) => Ok(Duration::from_millis((user + system) * 10)),
            _ => Err(Error::Malformed(format!("{}: {text}", path.display()))),
        }
    }

    /// The end of its log.
    #[must_use]
    pub fn said(&self) -> String {
        self.log.as_deref().map(log_tail).unwrap_or_default()
    }

    /// The writing end of its input, once.
    pub fn take_stdin(&mut self) -> Option<std::process::ChildStdin> {
        self.child().stdin.take()
    }

    /// The reading end of its output, once.
    pub fn take_stdout(&mut self) -> Option<std::process::ChildStdout> {
        self.child().stdout.take()
    }

    fn take_stderr(&mut self) -> Option<std::process::ChildStderr> {
        self.child().stderr.take()
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill9();
    }
}

/// The end of a log file, as text.
#[must_use]
pub fn log_tail(log: &Path) -> String {
    tail(&String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()))
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let from = lines.len().saturating_sub(TAIL_LINES_MAX);
    lines.get(from..).unwrap_or_default().join("\n")
}

fn drain(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // Reading a pipe fails only if it is none; use the bytes read so far.
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}

/// Starts `command` from the thread that never ends (see the head of this file).
fn start(command: Command) -> std::io::Result<Child> {
    type Request = (Command, mpsc::Sender<std::io::Result<Child>>);
    static STARTER: OnceLock<mpsc::Sender<Request>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (sender, requests) = mpsc::channel::<Request>();
        thread::spawn(move || {
            for (mut command, answer) in requests {
                // The caller waits; it cannot have gone.
                let _ = answer.send(command.spawn());
            }
        });
        sender
    });
    let gone = || std::io::Error::other("the thread that starts programs is gone");
    let (sender, answer) = mpsc::channel();
    starter.send((command, sender)).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

/// Lines of output that an error carries.
const TAIL_LINES_MAX: usize = 60;

#[cfg(test)]
mod tests;
