//! `qemu-img` and `qemu-io`: disk images at `nfs://` URLs through QEMU's own driver, which virtual
//! machines of libvirt and Proxmox may use.
//!
//! That driver writes UNSTABLE and COMMITs at a flush. It never sends again the writes that a
//! restart of the server between the two has lost. So do not kill a server under it and expect the
//! data (see the users' pages on `sync=always`).

use aquifer_rig::process::Outcome;

use super::Clients;
use crate::{Error, Result};

/// Parameters of `qemu-img bench`.
#[derive(Clone, Copy, Debug)]
pub struct Bench {
    /// Requests in all.
    pub count: u32,
    /// Requests outstanding at a time.
    pub depth: u32,
    /// Size of a request, bytes.
    pub bytes: u32,
    /// Writes instead of reads.
    pub write: bool,
    /// A flush after this many writes, at least `depth` of them; 0: none.
    pub flush_every: u32,
    /// The byte that is written everywhere. Zeros are holes to some servers, and cost nothing.
    pub pattern: u8,
}

impl Clients {
    /// `qemu-img create`: an image of `bytes`.
    ///
    /// # Errors
    /// [`Error::MissingTool`], [`Error::Timeout`].
    pub fn image_create(&self, format: &str, image: &str, bytes: u64) -> Result<Outcome> {
        self.run("qemu-img", &["create", "-q", "-f", format, image, &bytes.to_string()])
    }

    /// `qemu-img convert`: copies an image, optionally into another format.
    ///
    /// # Errors
    /// [`Error::MissingTool`], [`Error::Timeout`].
    pub fn image_convert(&self, from: (&str, &str), to: (&str, &str)) -> Result<Outcome> {
        let args = ["convert", "-q", "-f", from.0, "-O", to.0, from.1, to.1];
        self.run("qemu-img", &args)
    }

    /// `qemu-img check`: the image's own metadata (qcow2, not raw).
    ///
    /// # Errors
    /// [`Error::MissingTool`], [`Error::Timeout`].
    pub fn image_check(&self, format: &str, image: &str) -> Result<Outcome> {
        self.run("qemu-img", &["check", "-f", format, image])
    }

    /// `qemu-img compare`: exit status 0 if both have the same content, 1 if not. A longer image
    /// whose end is zeros counts as the same, and so does a hole where the other has zeros.
    ///
    /// # Errors
    /// [`Error::MissingTool`], [`Error::Timeout`].
    pub fn image_compare(&self, a: (&str, &str), b: (&str, &str)) -> Result<Outcome> {
        self.run("qemu-img", &["compare", "-f", a.0, "-F", b.0, a.1, b.1])
    }

    /// `qemu-img info --output=json`.
    ///
    /// # Errors
    /// [`Error::MissingTool`], [`Error::Timeout`].
    pub fn image_info(&self, format: &str, image: &str) -> Result<Outcome> {
        self.run("qemu-img", &["info", "--output=json", "-f", format, image])
    }

    /// `qemu-img bench`; returns the requests per second. It verifies no content.
    ///
    /// # Errors
    /// [`Error::Failed`] if it fails, [`Error::Malformed`] if it does not print its time.
    pub fn image_bench(&self, format: &str, image: &str, bench: Bench) -> Result<f64> {
        let [count, depth, bytes] = [bench.count, bench.depth, bench.bytes].map(|n| n.to_string());
        let flush = format!("--flush-interval={}", bench.flush_every);
        let pattern = format!("--pattern={}", bench.pattern);
        let mut args = vec!["bench", "-f", format, "-t", "none", "-c", &count, "-d", &depth];
        args.extend(["-s", &bytes]);
        if bench.write {
            args.extend(["-w", &pattern]);
            if bench.flush_every > 0 {
                args.push(&flush);
            }
        }
        args.push(image);
        let outcome = super::Call::done(self.run("qemu-img", &args))?;
        let seconds = bench_seconds(&outcome.text())?;
        Ok(f64::from(bench.count) / seconds)
    }

    /// `qemu-io`, one command per entry (`write -P 0x5a 0 64k`, `read -P ...`, `flush`). A read of
    /// another pattern than expected gives exit status 1.
    ///
    /// # Errors
    /// [`Error::MissingTool`], [`Error::Timeout`].
    pub fn image_io(&self, format: &str, image: &str, commands: &[&str]) -> Result<Outcome> {
        let mut args = vec!["-t", "none", "-f", format];
        for command in commands {
            args.extend(["-c", command]);
        }
        args.push(image);
        self.run("qemu-io", &args)
    }
}

/// "Run completed in 0.093 seconds."
fn bench_seconds(text: &str) -> Result<f64> {
    let after = text.rsplit_once("completed in ").map(|(_, after)| after);
    let number = after.and_then(|after| after.split_whitespace().next());
    let seconds = number.and_then(|number| number.parse::<f64>().ok());
    let seconds = seconds.filter(|seconds| *seconds > 0.0);
    seconds.ok_or_else(|| Error::Malformed(format!("qemu-img bench: {text}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_a_bench_is_read_and_nonsense_refused() {
        let text = "Sending 75000 read requests\nRun completed in 0.250 seconds.\n";
        assert!((bench_seconds(text).unwrap() - 0.25).abs() < 1e-9);
        assert!(bench_seconds("Run completed in 0.000 seconds.").is_err());
        assert!(bench_seconds("").is_err());
    }
}
