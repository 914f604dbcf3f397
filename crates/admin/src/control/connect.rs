//! Lines to type on a hypervisor.
//!
//! The options make each client as patient and as honest as the server; `docs/hypervisors` gives
//! the reasons.

use aquifer_api::{ApiError, ConnectAdvice, ConnectQuery, DatasetInfo, DatasetQuery, Hypervisor};

use super::{Control, Scope};

impl Control {
    /// The lines to type on a hypervisor that uses a dataset.
    ///
    /// # Errors
    /// There is no such dataset, it is not exported, or that hypervisor cannot use it as it is.
    pub fn connect(&self, query: &ConnectQuery) -> Result<ConnectAdvice, ApiError> {
        let ConnectQuery { dataset, hypervisor, host } = query;
        let asked = DatasetQuery { name: Some(dataset.clone()), recursive: false };
        let found = self.datasets(&asked, &Scope::default())?;
        let info = found.iter().find(|info| info.name == *dataset);
        let missing = || ApiError::not_found(format!("there is no dataset {dataset:?}"));
        let host = host.as_deref().unwrap_or(&self.host.name);
        advice(*hypervisor, host, info.ok_or_else(missing)?)
    }
}

/// Options of a mount that gets the TLS that the export requires.
fn protection(
    info: &DatasetInfo,
    hypervisor: Hypervisor,
) -> Result<Option<&'static str>, ApiError> {
    let sharenfs = info.properties.iter().find(|property| property.name == "sharenfs");
    let asked = match sharenfs.and_then(|options| least_asked(&options.value)) {
        None | Some("none") => return Ok(None),
        Some("tls") => "xprtsec=tls,nolock",
        Some(_) => "xprtsec=mtls,nolock",
    };
    match hypervisor {
        Hypervisor::Proxmox | Hypervisor::Libvirt | Hypervisor::Linux => Ok(Some(asked)),
        Hypervisor::XcpNg | Hypervisor::Esxi | Hypervisor::Qemu => {
            Err(ApiError::conflict(format!(
                "{} asks for TLS (xprtsec in sharenfs), which this hypervisor's NFS client does \
                 not know",
                info.name
            )))
        }
    }
}

/// The least protection that the export takes, of those that its `xprtsec` names.
fn least_asked(options: &str) -> Option<&'static str> {
    let mut words = options.split(|c: char| c == ',' || c.is_whitespace());
    let named = words.find_map(|word| word.strip_prefix("xprtsec="))?;
    ["none", "tls", "mtls"].into_iter().find(|kind| named.split(':').any(|word| word == *kind))
}

fn advice(
    hypervisor: Hypervisor,
    host: &str,
    info: &DatasetInfo,
) -> Result<ConnectAdvice, ApiError> {
    let name = &info.name;
    let path = info.nfs_path.as_deref().ok_or_else(|| {
        ApiError::conflict(format!(
            "{name} is not exported: aquifer set sharenfs=rw=HOST:@NETWORK {name}"
        ))
    })?;
    let sync = info.properties.iter().find(|property| property.name == "sync");
    let sync = sync.map(|sync| sync.value.as_str()).unwrap_or_default();
    let short = name.rsplit('/').next().unwrap_or(name);
    let tls = protection(info, hypervisor)?;
    let options = format!("vers=3,hard{}", tls.map(|tls| format!(",{tls}")).unwrap_or_default());
    let mount = |at: &str| format!("mount -t nfs -o {options} {host}:{path} {at}");
    let hard = "hard: a client that gives up while the server is away gives its guests I/O errors";
    let locks = "QEMU locks its images on the server: this host needs rpcbind and rpc.statd for it";
    let (line, why) = match hypervisor {
        Hypervisor::XcpNg => (
            format!(
                "xe sr-create name-label={short} type=nfs shared=true content-type=user \
                 device-config:server={host} device-config:serverpath={path} \
                 device-config:nfsversion=3 device-config:options=hard"
            ),
            vec![hard],
        ),
        Hypervisor::Esxi => (
            format!("esxcli storage nfs add -H {host} -s {path} -v {short}"),
            vec![
                "the same host and path, letter by letter, on every ESXi host: else it is another",
            ],
        ),
        Hypervisor::Proxmox => (
            format!(
                "pvesm add nfs {short} --server {host} --export {path} \
                 --content images,rootdir,iso --options {options}"
            ),
            vec![hard, locks],
        ),
        Hypervisor::Libvirt => {
            (mount(&format!("/var/lib/libvirt/images/{short}")), vec![hard, locks])
        }
        Hypervisor::Linux => (mount("/mnt"), vec![hard, locks]),
        Hypervisor::Qemu => {
            if sync != "always" {
                return Err(ApiError::conflict(format!(
                    "QEMU's own driver does not send again what a restart of the server lost, so \
                     {name} must not be used by it without sync=always: aquifer set sync=always \
                     {name} (or mount it: --for libvirt)"
                )));
            }
            (
                format!("-drive file=nfs://{host}{path}/DISK,format=qcow2,if=virtio"),
                vec![
                    "the driver asks the portmapper, so port 111 must be reachable as 2049 is",
                    "without privileges it calls from ports above 1023: sharenfs needs insecure",
                ],
            )
        }
    };
    let why = why.into_iter().filter(|why| tls.is_none() || *why != locks);
    let tls_needs = "TLS: this host needs tlshd (ktls-utils) with the certificates, and Linux \
                     6.5 or later; locks have no TLS, so they are this host's own (nolock)";
    let why = why.chain(tls.map(|_| tls_needs));
    let mut why: Vec<String> = why.map(str::to_string).collect();
    if let Some(reason) = sync.strip_prefix("disabled:") {
        why.push(format!(
            "sync=disabled ({reason}): a power cut or crash of the server takes back what guests \
             believe to be on disk"
        ));
    }
    Ok(ConnectAdvice { lines: vec![line], why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_asks_for_the_least_protection_that_the_export_takes() {
        for (options, least) in [
            ("rw=@10.1.0.0/24,xprtsec=tls", Some("tls")),
            ("rw xprtsec=mtls:tls", Some("tls")),
            ("rw=cert:hv1.example,xprtsec=mtls", Some("mtls")),
            ("rw,xprtsec=none:tls,secure", Some("none")),
            ("off", None),
        ] {
            assert_eq!(least_asked(options), least, "{options}");
        }
    }
}
