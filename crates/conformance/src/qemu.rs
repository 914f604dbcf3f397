//! A virtual machine in QEMU, with its serial console in a file.
//!
//! Invariants: emulation is chosen explicitly (`-accel tcg`), so a machine behaves the same with
//! and without /dev/kvm. A panic or reboot of the guest ends QEMU. QEMU also ends at its time
//! limit, when its owner is dropped, and when this process dies. The guest's 10.0.2.2 is the
//! loopback interface of the namespace in which QEMU runs.

use std::fs;
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use aquifer_rig::netns::NetNs;
use aquifer_rig::process::{Invocation, Process, log_tail};

use crate::{Error, Result};

/// The configuration of a machine.
#[derive(Clone, Debug)]
pub struct MachineConfig {
    /// Kernel image.
    pub kernel: PathBuf,
    /// Initial file system (cpio).
    pub initrd: PathBuf,
    /// Added to the kernel's command line.
    pub append: String,
    /// Memory, MiB.
    pub memory_mib: u32,
    /// Virtual processors.
    pub cpus: u32,
    /// Namespace to run in; `None`: that of this process.
    pub netns: Option<NetNs>,
    /// Network.
    pub network: Network,
    /// Disks, as virtio-blk: /dev/vda, /dev/vdb, ...
    pub disks: Vec<Disk>,
    /// Connects QEMU's standard input and output to /dev/vport0p1 in the guest.
    pub channel: bool,
    /// QEMU is killed after this time.
    pub life: Duration,
    /// Directory of the console's and QEMU's logs.
    pub logs: PathBuf,
}

/// The network connection of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// Through QEMU itself: the guest can call out, but nobody can call it.
    #[default]
    User,
    /// Through a tap device of the namespace (see [`NetNs::bridge`]): the guest is a host like
    /// others.
    Tap {
        /// The device.
        device: String,
        /// Last byte of the guest's hardware address.
        number: u8,
    },
}

/// A disk of a machine.
#[derive(Clone, Debug)]
pub struct Disk {
    /// A file, or an `nfs://` URL for QEMU's own driver.
    pub source: String,
    /// QEMU's name of the image format: `raw`, `qcow2`.
    pub format: &'static str,
    /// QEMU's cache mode: `none`, `writeback`, `directsync`, ...
    pub cache: &'static str,
}

impl Disk {
    /// A raw image with write-back caching, in which a flush by the guest is a real flush.
    pub fn raw(source: impl Into<String>) -> Self {
        Self { source: source.into(), format: "raw", cache: "writeback" }
    }
}

/// A running machine.
#[derive(Debug)]
pub struct Machine {
    qemu: Process,
    console: PathBuf,
}

impl Machine {
    /// Starts QEMU.
    ///
    /// # Errors
    /// [`Error::MissingTool`], [`Error::Io`]. Only waiting shows that a machine does not boot.
    pub fn start(config: &MachineConfig) -> Result<Self> {
        let console = config.logs.join("console.log");
        let log = config.logs.join("qemu.log");
        let invocation = command_line(config, &escape(&console.to_string_lossy()))?;
        // Waiting for text in the console must not find the text of an earlier machine.
        fs::write(&console, "").map_err(Error::at("create", &console))?;
        let qemu =
            if config.channel { invocation.spawn_piped(&log)? } else { invocation.spawn(&log)? };
        qemu.kill_after(config.life);
        Ok(Self { qemu, console })
    }

    /// Everything the guest has printed on its console.
    #[must_use]
    pub fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.console).unwrap_or_default()).into_owned()
    }

    /// Waits for `text` on the console and returns its line.
    ///
    /// # Errors
    /// [`Error::Timeout`] after `limit`, [`Error::Failed`] if QEMU ends without it.
    pub fn wait_console(&self, text: &str, limit: Duration) -> Result<String> {
        let start = Instant::now();
        loop {
            let running = self.is_running();
            let console = self.console();
            // Only whole lines: the rest of the line may be what the caller needs.
            let whole = console.rfind('\n').and_then(|end| console.get(..end)).unwrap_or_default();
            if let Some(line) = whole.lines().find(|line| line.contains(text)) {
                return Ok(line.trim_end().to_owned());
            }
            if !running {
                return Err(self.failed(&format!("waiting for {text:?}: the machine")));
            }
            if start.elapsed() > limit {
                let what = format!("{text:?} on the console");
                return Err(Error::Timeout { what, limit, said: self.said() });
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the guest has powered itself off.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::Failed`] if QEMU ended with an error or the guest panicked.
    pub fn wait_off(&self, limit: Duration) -> Result<ExitStatus> {
        let timeout = |error| match error {
            Error::Timeout { what, limit, .. } => Error::Timeout { what, limit, said: self.said() },
            other => other,
        };
        let status = self.qemu.wait(limit).map_err(timeout)?;
        // After a panic QEMU ends as after a shutdown: `-no-reboot` treats the reboot as one.
        if !status.success() || self.console().contains("Kernel panic") {
            return Err(self.failed("QEMU"));
        }
        Ok(status)
    }

    /// Pulls the plug: the guest loses all unwritten data.
    pub fn power_cut(&self) {
        self.qemu.kill9();
    }

    /// Whether QEMU runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.qemu.is_running()
    }

    /// The end of console and of QEMU's own messages.
    #[must_use]
    pub fn said(&self) -> String {
        format!("{}\n{}", log_tail(&self.console), self.qemu.said())
    }

    /// The two ends of the channel to /dev/vport0p1: to the guest and from the guest. Available
    /// once.
    pub(crate) fn take_channel(&mut self) -> Option<(ChildStdin, ChildStdout)> {
        Some((self.qemu.take_stdin()?, self.qemu.take_stdout()?))
    }

    fn failed(&self, what: &str) -> Error {
        Error::Failed { what: format!("{what} ended"), said: self.said() }
    }
}

fn command_line(config: &MachineConfig, console: &str) -> Result<Invocation> {
    let mut qemu = Invocation::tool("qemu-system-x86_64", "guest")?
        .args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"])
        // The HPET costs the kernel a calibration loop, which is slow under emulation.
        .args(["-accel", "tcg", "-machine", "pc,hpet=off"])
        .args(["-m", &config.memory_mib.to_string(), "-smp", &config.cpus.to_string()])
        .arg("-kernel")
        .arg(&config.kernel)
        .arg("-initrd")
        .arg(&config.initrd)
        .args(["-append", &format!("{KERNEL_ARGS} {}", config.append)])
        .args([
            "-chardev",
            &format!("file,id=console,path={console}"),
            "-serial",
            "chardev:console",
        ]);
    // First of the virtio devices: the guest names the port by its number.
    if config.channel {
        qemu = qemu
            .args(["-chardev", "stdio,id=agent,signal=off", "-device", "virtio-serial-pci"])
            .args(["-device", "virtserialport,chardev=agent,name=agent"]);
    }
    // No boot ROM: no machine boots from the network.
    let (netdev, address) = match &config.network {
        Network::User => ("user,id=net".into(), String::new()),
        Network::Tap { device, number } => (
            format!("tap,id=net,ifname={device},script=no,downscript=no"),
            format!(",mac=52:54:00:00:00:{number:02x}"),
        ),
    };
    let device = format!("virtio-net-pci,netdev=net,romfile={address}");
    qemu = qemu.args(["-netdev", &netdev, "-device", &device]);
    for (number, disk) in config.disks.iter().enumerate() {
        let (source, format, cache) = (escape(&disk.source), disk.format, disk.cache);
        let drive = format!("file={source},format={format},cache={cache},if=none,id=disk{number}");
        qemu = qemu.args(["-drive", &drive]);
        qemu = qemu.args(["-device", &format!("virtio-blk-pci,drive=disk{number}")]);
    }
    Ok(match &config.netns {
        Some(netns) => qemu.inside(netns),
        None => qemu,
    })
}

/// A comma separates QEMU's options; a doubled comma stands for one.
fn escape(value: &str) -> String {
    value.replace(',', ",,")
}

/// A panic ends the machine at once; the rest saves boot time under emulation.
const KERNEL_ARGS: &str = "console=ttyS0 quiet panic=-1 nokaslr mitigations=off no_timer_check \
    tsc=reliable cryptomgr.notests";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_has_disks_in_order_and_escaped() {
        let disk = |source: &str| Disk { source: source.into(), format: "qcow2", cache: "none" };
        let config = MachineConfig {
            kernel: "/k".into(),
            initrd: "/i".into(),
            append: "x=1".into(),
            memory_mib: 256,
            cpus: 1,
            netns: None,
            network: Network::Tap { device: "tap3".into(), number: 3 },
            disks: vec![disk("/a,b"), disk("nfs://127.0.0.1/export/d")],
            channel: false,
            life: Duration::from_secs(1),
            logs: "/tmp".into(),
        };
        let line = command_line(&config, "/tmp/c").unwrap().line();
        assert!(line.contains("-accel tcg"), "{line}");
        assert!(line.contains("file=/a,,b,format=qcow2,cache=none,if=none,id=disk0"), "{line}");
        assert!(line.contains("file=nfs://127.0.0.1/export/d,format"), "{line}");
        assert!(!line.contains("virtserialport"), "{line}");
        assert!(line.contains("ifname=tap3") && line.contains("mac=52:54:00:00:00:03"), "{line}");
    }
}
